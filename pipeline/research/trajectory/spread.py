"""The variance of Pass@k three ways, on the oldest and the newest checkpoint.

The delta method (its appendix D) and the exact variance of the estimator have the observed shares
in place of p, so both call a question that was always or never solved certain. The posterior, which
Bayes@N uses, does not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display.table import Column, Table
from pipeline.research.trajectory.stability import Row, names
from pipeline.research.trajectory.tracks import Track
from scoring.metrics.passk_variance import delta_variance, posterior_variance, sampling_variance

Floats = npt.NDArray[np.float64]
POINTS = 201  # of p in a picture


def variances(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """Of Pass@k over all questions, on the oldest and the newest single checkpoint of each."""
    rows = []
    for track in (track for track in tracks if track.window == 1):
        for which, at in (("oldest", 0), ("newest", -1)):
            counts = track.counts[at]
            for k in (k for k in cfg.pass_k if k <= track.trials):
                rows.append(
                    {
                        "training": track.training,
                        "dataset": track.dataset,
                        "protocol": f"Pass@{k}",
                        "which": which,
                        "name": track.names[at],
                        "k": k,
                        "n": int(counts.sum(axis=-1).min()),
                        **_three(counts, k),
                    }
                )
    return rows


def _three(counts: npt.NDArray[np.int64], k: int) -> Row:
    """Variances of the mean over questions, of counts (M, 2)."""
    n, c = counts.sum(axis=-1), counts[:, 1]
    delta, exact, posterior = (
        float(of.sum()) / len(n) ** 2
        for of in (
            delta_variance(c / n, k, n),
            sampling_variance(c / n, k, n),
            posterior_variance(c, n, k),
        )
    )
    return {
        "delta": delta,
        "plug_in": exact,
        "posterior": posterior,
        "delta_ratio": delta / exact if exact else None,
        "posterior_ratio": posterior / exact if exact else None,
    }


class Ratios(NamedTuple):
    """To the exact variance at the true p, by k ("k = 4"), each (POINTS,), NaN at 0 and 1."""

    delta: dict[str, Floats]
    posterior: dict[str, Floats]  # mean over what may be seen


def along_p(n: int, pass_k: Sequence[int]) -> tuple[Floats, Ratios]:
    """Delta and expected posterior variance over the exact one by success rate, for k up to n.

    Of one question with n trials. k = 1, where the delta method is exact, is left out.
    """
    p = np.linspace(0, 1, POINTS)
    seen = np.arange(n + 1)
    chances = binom.pmf(seen, n, p[:, None])
    found = Ratios({}, {})
    for k in (k for k in pass_k if 1 < k <= n):
        exact = sampling_variance(p, k, n)
        mean = chances @ posterior_variance(seen, n, k)
        for of, values in ((found.delta, delta_variance(p, k, n)), (found.posterior, mean)):
            of[f"k = {k}"] = np.divide(values, exact, np.full(p.shape, np.nan), where=exact > 0)
    return p, found


def table(rows: Sequence[Row]) -> Table:
    """The rows of `variances` as a table."""
    variance = "{:.3g}"
    columns = [
        *names(rows),
        Column("which", "checkpoint", align="left"),
        Column("name", "name", align="left"),
        Column("n", "trials"),
        Column("delta", "delta method", format=variance, group="variance"),
        Column("plug_in", "plug-in", format=variance, group="variance"),
        Column("posterior", "posterior", format=variance, group="variance"),
        Column("delta_ratio", "delta method", format="{:.3f}", group="to plug-in"),
        Column("posterior_ratio", "posterior", format="{:.3f}", group="to plug-in"),
        Column("k", "k", wide=True),
    ]
    notes = [
        "delta method: MaP's appendix D; plug-in: the estimator's variance over repeated samples,"
        " exact but for p: both have c/N in its place, so a question always or never solved adds"
        " nothing",
        "posterior: of p ~ Beta(1 + c, 1 + N - c), as Bayes@N has it",
        "picture: one question by its true p; variance by the delta method over the exact one, and"
        " the posterior's, averaged over what may be seen (dashed), over the exact one",
    ]
    return Table("variance of Pass@k, three ways", columns, rows, notes)
