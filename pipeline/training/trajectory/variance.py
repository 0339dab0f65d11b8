"""The variance of Pass@k three ways, on the oldest and the newest checkpoint.

The delta method (its appendix D) and the exact variance of the estimator have the observed shares
in place of p, so both call a question that was always or never solved certain. The posterior, which
Bayes@N uses, does not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binom

from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.tables import Row
from bayes_at_n.pipeline.training.trajectory.stability import place
from bayes_at_n.pipeline.training.trajectory.tracks import Track
from bayes_at_n.scoring.metrics.passk_variance import (
    delta_variance,
    posterior_variance,
    sampling_variance,
)
from bayes_at_n.scoring.numerics.inputs import Floats

POINTS = 201  # of p in a picture


def variances(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Table:
    """Of Pass@k over all questions, on the oldest and the newest single checkpoint of each."""
    rows = [
        {
            "training": track.training,
            "dataset": track.dataset,
            "protocol": f"Pass@{k}",
            "which": which,
            "name": track.names[at],
            "k": k,
            "n": track.trials,
            **_three(track.trials, track.R[at].sum(axis=-1), k),
        }
        for track in tracks
        if track.window == 1
        for which, at in (("oldest", 0), ("newest", -1))
        for k in protocols.passes(cfg.metrics, track.trials)
    ]
    three = {"delta": "delta method", "plug_in": "plug-in", "posterior": "posterior"}
    ratios = {"delta_ratio": "delta method", "posterior_ratio": "posterior"}
    heads = [
        *place(rows),
        *columns(align="left", which="checkpoint", name="name"),
        *columns(n="trials"),
        *columns("{:.3g}", three, group="variance"),
        *columns("{:.3f}", ratios, group="to plug-in"),
        *columns(wide=True, k="k"),
    ]
    notes = [
        "delta method: MaP's appendix D; plug-in: the estimator's variance over repeated samples,"
        " exact but for p: both have c/N in its place, so a question always or never solved adds"
        " nothing",
        "posterior: of p ~ Beta(1 + c, 1 + N - c), as Bayes@N has it",
        "picture: one question by its true p; variance by the delta method over the exact one, and"
        " the posterior's, averaged over what may be seen (dashed), over the exact one",
    ]
    return Table("variance of Pass@k, three ways", heads, rows, notes)


def _three(n: int, correct: Any, k: int) -> Row:
    """Variances of the mean over questions (M,), of which `correct` of n trials are."""
    c = np.asarray(correct, dtype=np.int64)
    each = delta_variance(c / n, k, n), sampling_variance(c / n, k, n), posterior_variance(c, n, k)
    delta, exact, posterior = (float(of.sum()) / len(c) ** 2 for of in each)
    return {
        "delta": delta,
        "plug_in": exact,
        "posterior": posterior,
        "delta_ratio": delta / exact if exact else None,
        "posterior_ratio": posterior / exact if exact else None,
    }


def along_p(n: int, ks: Sequence[int]) -> tuple[Floats, dict[str, Floats], dict[str, Floats]]:
    """Delta and expected posterior variance over the exact one by success rate, for k up to n.

    Of one question with n trials. k = 1, where the delta method is exact, is left out. Returns
    success rates (POINTS,); delta over exact by k ("k = 4"), and the posterior's variance, averaged
    over what may be seen, over exact; (POINTS,) each, NaN at 0 and 1.
    """
    p = np.linspace(0, 1, POINTS)
    seen = np.arange(n + 1)
    chances = binom.pmf(seen, n, p[:, None])
    deltas: dict[str, Floats] = {}
    posteriors: dict[str, Floats] = {}
    for k in (k for k in ks if 1 < k <= n):
        exact = sampling_variance(p, k, n)
        mean = chances @ posterior_variance(seen, n, k)
        for of, values in ((deltas, delta_variance(p, k, n)), (posteriors, mean)):
            of[f"k = {k}"] = np.divide(values, exact, np.full(p.shape, np.nan), where=exact > 0)
    return p, deltas, posteriors
