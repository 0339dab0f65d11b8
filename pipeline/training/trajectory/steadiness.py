"""How steadily scores follow training: of the trials as they are, and of replicates of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.training.protocols import AVERAGE, BAYES
from bayes_at_n.pipeline.training.tables import Row
from bayes_at_n.pipeline.training.trajectory.tracks import Track
from bayes_at_n.scoring.metrics.table import Metric
from bayes_at_n.scoring.ranking import trajectory as follow


class Steadiness(NamedTuple):
    """How steadily scores (..., n) follow training, each (...)."""

    tau: Any  # MaP's
    tau_b: Any  # masked where all steps tie
    down: Any
    flat: Any  # share of the steps at which the score goes neither up nor down

    def cells(self) -> Row:
        """Of one curve; None where there is no τ_b.

        >>> steadiness([0.1, 0.3, 0.1 + 0.2, 0.2, 0.2]).cells()["flat"]
        0.5
        """
        parts = self._asdict().items()
        return {name: None if np.ma.is_masked(part) else float(part) for name, part in parts}


def steadiness(scores: Any) -> Steadiness:
    """How steadily scores (..., n) follow training."""
    flat = np.mean(np.diff(scoring.ranks(scores), axis=-1) == 0, axis=-1)
    taus = follow.monotone_tau(scores), follow.progress_tau_b(scores)
    return Steadiness(*taus, follow.down_share(scores), flat)


def replicates(
    track: Track, metrics: Sequence[Metric], cfg: TrajectoryConfig, trials: int | None = None
) -> dict[str, Steadiness]:
    """How steady every replicate of so many trials is, by metric, on the same draws; (replicates,).

    Bayes@N orders models as the average does, which is computed.
    """
    scores = follow.resampled_scores(
        track.R,
        {metric.name: (AVERAGE if metric.name == BAYES else metric).estimate for metric in metrics},
        trials=trials,
        replicates=cfg.replicates,
        seed=cfg.seed,
    )
    return {name: steadiness(drawn) for name, drawn in scores.items()}


def spread(drawn: Steadiness | None, steps: int, cfg: TrajectoryConfig) -> Row:
    """Mean and interval over replicates, such as tau_mean, tau_low and tau_high.

    None where no replicate has a value, and where nothing is drawn, as of greedy decoding. The
    interval of either tau is the whole scale where so few steps tell none from chance.
    """
    cells: Row = {}
    for name in Steadiness._fields:
        values = np.ma.compressed(getattr(drawn, name)) if drawn else np.empty(0)
        ends = zip(("mean", "low", "high"), follow.spread(values, cfg.confidence), strict=True)
        cells |= {f"{name}_{end}": value for end, value in ends}
        if values.size and name.startswith("tau") and not follow.tells(steps, cfg.confidence):
            cells |= {f"{name}_low": -1.0, f"{name}_high": 1.0}
    cells["tau_b_undefined"] = float(drawn.tau_b.mask.mean()) if drawn else None
    return cells
