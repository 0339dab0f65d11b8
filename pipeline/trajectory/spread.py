"""The variance of Pass@k three ways, on the newest checkpoint: where MaP's formula is good.

The delta method (its appendix D) and the exact variance of the estimator have the observed shares
in place of p, so both call a question that was always or never solved certain. The posterior, which
Bayes@N uses, does not.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.tabular import Column, Table
from pipeline.trajectory.settings import TrajectoryConfig
from pipeline.trajectory.stability import Row, names
from pipeline.trajectory.tracks import Track
from scoring import Counts
from scoring.passk_variance import delta_variance, pass_at_k_delta_sigma, sampling_variance

Floats = npt.NDArray[np.float64]
POINTS = 201  # of p in a picture


def variances(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """σ of Pass@k on the newest single checkpoint of each training run and data set."""
    rows = []
    for track in (track for track in tracks if track.window == 1):
        newest = track.counts[-1]
        n = newest.sum(axis=-1)
        p = newest[:, 1] / n
        for k in cfg.pass_k:
            if k > track.trials:
                continue
            delta = float(pass_at_k_delta_sigma(Counts(newest), k))
            exact = float(np.sqrt(sampling_variance(p, k, n).sum()) / len(n))
            posterior = float(scoring.pass_at_k_ci(Counts(newest), k)[1])
            rows.append(
                {
                    "training": track.training,
                    "dataset": track.dataset,
                    "protocol": f"Pass@{k}",
                    "name": track.names[-1],
                    "k": k,
                    "n": int(n.min()),
                    "delta": delta,
                    "exact": exact,
                    "posterior": posterior,
                    "delta_ratio": delta / exact if exact else None,
                    "posterior_ratio": posterior / exact if exact else None,
                }
            )
    return rows


def along_p(n: int, pass_k: Sequence[int]) -> tuple[Floats, dict[str, Floats]]:
    """Delta over exact variance by success rate, for every k from 2 to n; NaN at 0 and 1."""
    p = np.linspace(0, 1, POINTS)
    ratios = {}
    for k in (k for k in pass_k if 1 < k <= n):
        exact = sampling_variance(p, k, n)
        ratio = np.divide(delta_variance(p, k, n), exact, np.full(p.shape, np.nan), where=exact > 0)
        ratios[f"k = {k}"] = ratio
    return p, ratios


def table(rows: Sequence[Row]) -> Table:
    """The rows of `variances` as a table."""
    sigma = "{:.5f}"
    columns = [
        *names(rows),
        Column("name", "checkpoint", align="left"),
        Column("n", "trials"),
        Column("delta", "delta method", format=sigma, group="σ"),
        Column("exact", "exact", format=sigma, group="σ"),
        Column("posterior", "posterior", format=sigma, group="σ"),
        Column("delta_ratio", "delta", format="{:.3f}", group="to exact"),
        Column("posterior_ratio", "posterior", format="{:.3f}", group="to exact"),
        Column("k", "k", wide=True),
    ]
    notes = [
        "delta method: MaP's appendix D; exact: the estimator's variance over repeated samples;"
        " both with c/N in place of p, where a question always or never solved adds nothing",
        "posterior: of p ~ Beta(1 + c, 1 + N - c), as the intervals of Pass@k and Bayes@N use it",
    ]
    return Table("σ of Pass@k, three ways", columns, rows, notes)
