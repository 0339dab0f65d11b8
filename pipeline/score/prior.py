"""Another run as the prior: its trials are evidence from before the first trial of this one.

Questions are matched by their hash; the other run must hold all of this one's.

Source: arXiv 2510.04265, Algorithm 1 (R0); the weight is our addition (docs/scoring.md).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.scoring import PriorConfig
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.outcomes import CORRECT, PENDING, Codes
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.scoring import Counts


class Prior(NamedTuple):
    """A run whose trials are the prior of M questions of another one."""

    run: Run
    rows: list[int]  # M: where the run has each question
    codes: Codes  # (M', N') outcomes of its own questions in the trials that count
    weight: float | None  # of how many trials of a question they have; None: of N'

    def outcomes(self) -> Counts:
        """Return R0 of wrong and correct answers: counts (M, 2)."""
        right, graded = self.codes == CORRECT, self.codes != PENDING
        own = np.stack([of.sum(axis=1) for of in (graded & ~right, right)], axis=-1)
        return scoring.down_weight(Counts(own[self.rows]), self.weight or self.codes.shape[1], 2)


def drifted(prior: Prior, matrix: Any, confidence: float) -> str:
    """Say that a prior's attempts are unlike those of the run, (M, N); empty where they are not."""
    if not matrix.count(axis=1).all():
        return ""
    trials = (prior.codes != PENDING).sum(axis=1)[prior.rows]
    found = scoring.prior_drift(matrix, prior.outcomes(), trials, confidence)
    if found.p >= scoring.DRIFT_LEVEL:
        return ""
    return (
        f"prior={prior.run.path}: was {'better' if found.z > 0 else 'worse'} than this run (z ="
        f" {abs(found.z):.1f}; another checkpoint?); with it the {percent(confidence)} interval"
        f" holds the truth in about {found.coverage:.0%}: prior.weight=1 or none"
    )


def load(cfg: PriorConfig, run: Run, marks: Mapping[str, str]) -> Prior:
    """Load the prior that settings name for a run.

    `marks`: its questions, M, as `Outcomes.positions` calls them, with their ids. Where `prior.run`
    is no run folder but holds one of the run's name, that is the prior. Raises UserError: no such
    run, or one that does not fit.
    """
    path = Path(str(cfg.run)).expanduser()
    if run.cfg.point_weights:
        raise UserError(f"prior={path}: not for points; leave it out")
    if not (path / "config.yaml").exists() and (path / run.path.name).is_dir():
        path /= run.path.name
    try:
        other = open_run(path)
        earlier = outcomes.read(other)
        rows = earlier.positions()
    except UserError as error:
        raise UserError(f"prior={path}: {error}") from error
    if other.path.resolve() == run.path.resolve():
        raise UserError(f"prior={path}: is this run itself, so its trials would count twice")
    if missing := [name for mark, name in marks.items() if mark not in rows]:
        lacks = f"{len(missing)} of this run's questions ({', '.join(missing[:3])})"
        raise UserError(f"prior={path}: lacks {lacks}; name a run of the same questions")
    trials = cfg.trials or earlier.codes.shape[1]
    complete = int((earlier.codes != PENDING).all(axis=0).cumprod().sum())
    if complete < (trials if cfg.weight is None else 1) or earlier.codes.shape[1] < trials:
        why = f"of {path} only the first {complete} trials are graded"
        raise UserError(f"prior.trials={trials}: {why}")
    return Prior(other, [rows[mark] for mark in marks], earlier.codes[:, :trials], cfg.weight)
