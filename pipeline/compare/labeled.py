"""Scores corrected by human labels, by which models are compared where all runs have some.

Where one has none, the judge's error would pass for a difference. Runs' labels are independent.
"""

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.score import people
from bayes_at_n.pipeline.store import labels, outcomes
from bayes_at_n.pipeline.store.outcomes import PENDING
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.numerics.results import Summary, normal_summary

CORRECTED = "scores are corrected by human labels"


def corrected(cohort: Cohort, level: float) -> tuple[Summary, Floats] | None:
    """Correct the models' avg, (L,), also by question, (L, M); None unless all runs have labels.

    Sigma is that of a normal as wide, for all pairs at once, as Student's with few labels.
    """
    if (key := ("labels", level)) not in cohort.scored:
        z = scoring.pairs_quantile(max(len(cohort.names), 2), level)
        known = [
            [of for m in cohort.runs() if m.name == name and (of := _of_run(m, level, z))]
            for name in cohort.names
        ]
        cohort.scored[key] = None
        if all(len(of) == len(cohort.parts or [cohort]) for of in known):
            shares = np.stack([np.concatenate([by for by, _ in of]) for of in known])
            sigma = np.array([np.linalg.norm([by.size * s for by, s in of]) for of in known])
            score = normal_summary(shares.mean(axis=1), sigma / shares.shape[1], level)
            cohort.scored[key] = score, shares
    return cohort.scored[key]  # type: ignore[no-any-return]


def shares(cohort: Cohort, level: float) -> Floats:
    """Return the mean outcome of each question, (L, M), corrected where models are."""
    known = corrected(cohort, level)
    return known[1] if known else scoring.values(cohort.matrix()).mean(axis=2).filled(np.nan)


def _of_run(member: Member, level: float, z: float) -> tuple[Floats, float] | None:
    """Correct a run's avg on the questions compared: by question, (M,), and its sigma."""
    if not labels.files(member.run):
        return None
    graded = outcomes.read(member.run, quiet=True)
    index = {name: i for i, name in enumerate(graded.question_ids)}
    at = np.array([index[name] for name in member.question_ids])
    codes = np.full_like(graded.codes, PENDING)
    codes[at] = graded.codes[at]
    if (known := people.samples(member.run, graded._replace(codes=codes))) is None:
        return None
    found = scoring.prediction_powered(sample := known[1]["outcomes"], level)
    parts = np.bincount(np.asarray(sample.rows), sample.parts(found.rate, found.value)) * at.size
    return parts[at.argsort().argsort()], found.normal_sigma(z)
