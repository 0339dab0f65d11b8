"""Scores corrected by human labels, by which models are compared where all runs have some.

Where one has none, the judge's error would pass for a difference. Runs' labels are independent.
"""

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.score import labels
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.outcomes import PENDING
from bayes_at_n.scoring.intervals.judged import Corrected
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.numerics.results import Summary, normal_summary

CORRECTED = "scores are corrected by human labels"


def corrected(cohort: Cohort, level: float) -> tuple[Summary, Summary, Floats] | None:
    """Correct the models' avg, once for a cohort; None unless all runs have labels.

    Returns scores, (L,), with the intervals that `score` prints; the same for comparisons, with the
    sigma of a normal as wide, for all pairs at once, as Student's with few labels; and means by
    question, (L, M). Of pooled datasets the first are those for comparisons, too.
    """
    if (key := ("labels", level)) not in cohort.scored:
        runs = [member for member in cohort.runs() if member.name in cohort.names]
        complete = all(labels.files(of.run) for of in runs)
        found = [(of.name, known) for of in runs if complete and (known := _of_run(of, level))]
        cohort.scored[key] = None
        if found and len(found) == len(runs):
            z = scoring.pairs_quantile(max(len(cohort.names), 2), level)
            models = [[of for of_name, of in found if of_name == name] for name in cohort.names]
            shares = np.stack([np.concatenate([by for _, by in of]) for of in models])
            sums = [[by.size * one.normal_sigma(z) for one, by in of] for of in models]
            sigma = np.array([np.linalg.norm(of) for of in sums]) / shares.shape[1]
            avg = normal_summary(shares.mean(axis=1), sigma, level)
            own = avg if cohort.parts else Summary(*np.array([of[0][0][:4] for of in models]).T)
            own = own._replace(value=own.value.clip(0, 1))
            cohort.scored[key] = own, avg, shares
    return cohort.scored[key]  # type: ignore[no-any-return]


def shares(cohort: Cohort, level: float) -> Floats:
    """Return the mean outcome of each question, (L, M), corrected where models are."""
    known = corrected(cohort, level)
    return known[2] if known else scoring.values(cohort.matrix()).mean(axis=2).filled(np.nan)


def _of_run(member: Member, level: float) -> tuple[Corrected, Floats] | None:
    """Correct a run's avg on the questions compared, also by question, (M,)."""
    graded = outcomes.read(member.run, quiet=True)
    index = {name: i for i, name in enumerate(graded.question_ids)}
    at = np.array([index[name] for name in member.question_ids])
    codes = np.full_like(graded.codes, PENDING)
    codes[at] = graded.codes[at]
    if (known := labels.samples(member.run, graded._replace(codes=codes))) is None:
        return None
    found = scoring.prediction_powered(sample := known[1]["outcomes"], level)
    parts = np.bincount(np.asarray(sample.rows), sample.parts(found.rate, found.value)) * at.size
    return found, parts[at.argsort().argsort()]
