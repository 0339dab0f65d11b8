"""Other runs as priors of a comparison: one for all models, or each model's own by its name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column
from bayes_at_n.pipeline.score import prior
from bayes_at_n.pipeline.score.prior import Prior
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.scoring import Counts


def load(cohort: Cohort, cfg: AnalysisConfig) -> list[Prior]:
    """The prior of each member, (L,); none without `prior=RUN`, or without run folders.

    Raises UserError: as `pipeline.score.prior.load`, naming the model.
    """
    found = []
    for member in cohort.members if cfg.prior.run is not None else []:
        own = outcomes.read(member.run, quiet=True)
        ids = {own.question_ids[i]: mark for mark, i in own.positions().items()}
        try:
            marks = {ids[name]: name for name in member.question_ids}
            found.append(prior.load(cfg.prior, member.run, marks))
        except UserError as error:
            raise UserError(f"{member.name}: {error}") from error
    return found


def columns(cohort: Cohort, cfg: AnalysisConfig) -> dict[Column, npt.ArrayLike]:
    """Bayes@N of correct outcomes with the priors, and the ranks by it; nothing without priors."""
    priors = load(cohort, cfg)
    if not priors:
        return {}
    R0 = Counts(np.stack([one.outcomes().values for one in priors]))
    level = cfg.scoring.confidence
    summary = scoring.bayes_ci(cohort.matrix(), R0=R0, confidence=level, bounds=(0.0, 1.0))
    keys = ("prior_mu", "prior_sigma", "prior_low", "prior_high")
    heads = ("μ with prior", "σ with prior", "prior low", "prior high")
    shown = {
        Column(
            key, head, None, "{:.4f}", short=head.replace("with ", ""), wide=key != keys[0]
        ): part
        for key, head, part in zip(keys, heads, summary, strict=True)
    }
    method: Any = cfg.scoring.method
    places = scoring.ranks(summary.value, method=method)
    return shown | {Column("prior_rank", "rank with prior", short="rank prior"): places}


def of_rubric(priors: Sequence[Prior], records: Sequence[dict[str, Any]]) -> Counts | None:
    """R0 (L, M, C + 1) of a rubric with each member's thresholds; None where one has no prior."""
    found = [prior.of_rubric(one, of) for one, of in zip(priors, records, strict=True)]
    known = [counts.values for counts in found if counts is not None]
    return Counts(np.stack(known)) if known and len(known) == len(found) else None
