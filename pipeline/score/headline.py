"""The score that is reported of a run: Bayes@N under an estimated prior, or what takes its place.

Imported by `status`, so it takes no SciPy before it computes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import joined
from bayes_at_n.pipeline.config.scoring import CapsConfig

Parts = dict[str, Any]
_BY_LIKELIHOOD = {"options": "accuracy", "gold": "bits per byte"}
_INTERVALS = {"none": "paper's interval", "questions": "interval over questions"}  # of avg


def headline(matrix: Any, settings: CapsConfig) -> Parts:
    """Compute the score to report of outcomes (M, N), masked where pending, by `scoring.prior`.

    A question without a trial counts under the uniform prior only. Returns `metric`, "bayes" or
    "avg", `prior`, as :func:`scoring.score_prior` has it, `value`, `sigma`, `low` and `high`.
    """
    prior = settings.prior
    begun = matrix if prior == "uniform" else matrix[np.ma.count(matrix, axis=1) > 0]
    found, known = scoring.score_and_prior(begun, None, settings.confidence, prior)
    metric = "avg" if known in _INTERVALS else "bayes"
    return {"metric": metric, "prior": known, **found._asdict()}


def named(priors: Mapping[str, str], trials: int | str = "N") -> tuple[str, str]:
    """Name the score that is reported, and say what of its prior, which is given by run.

    In place of a prior, others have what they score: "options", "gold", "labels" of people.

    >>> named({"a": "estimated"}, 80), "".join(named({"a": "uniform"}))
    (('Bayes@80', ', prior estimated from these questions'), 'Bayes@N, uniform prior')
    >>> "".join(named({"a": "none"}, 1))
    "avg@1, paper's interval: the prior cannot be estimated from one trial"
    >>> "".join(named({"a": "questions"}, 1))
    'avg@1, interval over questions: the prior cannot be estimated from one trial'
    >>> named({"a": "estimated", "b": "none"})[1]
    ", prior estimated from these questions (b: avg, paper's interval, as it cannot be estimated)"
    >>> named({"a on x": "uniform", "a on y": "labels"})[1]
    ', uniform prior (a on y: corrected avg)'
    """
    if len(kinds := {*priors.values()}) == 1 and kinds <= _BY_LIKELIHOOD.keys():
        return _BY_LIKELIHOOD[kinds.pop()], ", by likelihood, interval over questions"
    if kinds == {"labels"}:
        return "avg (corrected)", " by human labels, intervals with the judge's error"
    lacking = [name for name, prior in priors.items() if prior in _INTERVALS]
    interval = " or ".join(of for prior, of in _INTERVALS.items() if prior in priors.values())
    if len(lacking) == len(priors):
        why = f"cannot be estimated from {'one trial' if trials == 1 else 'these questions'}"
        return f"avg@{trials}", f", {interval}: the prior {why}"
    by_people = [name for name, prior in priors.items() if prior == "labels"]
    but = f" ({joined(lacking, 5)}: avg, {interval}, as it cannot be estimated)"
    but = but * bool(lacking) + f" ({joined(by_people, 5)}: corrected avg)" * bool(by_people)
    known = "uniform prior" if "uniform" in kinds else "prior estimated from these questions"
    return f"Bayes@{trials}", f", {known}{but}"
