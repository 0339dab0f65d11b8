"""How often intervals hold the truth: simulation with known success probabilities.

Here all intervals see the same simulated outcomes. There are two different truths, and an interval
is made for one of them:

* the mean probability of *these* questions, with only the trials random: Bayes@N, avg@N, Wald,
  Wilson, empirical Bayes. Pass p and leave ``target`` out.
* the mean of the *pool* that the questions come from, with questions and trials random: the
  clustered standard error and the bootstrap over questions. Draw questions anew for every
  replicate (:func:`rates`) and pass the pool's mean (:func:`pool_mean`) as ``target``.

All errors are a ValueError: an unknown method, numbers out of range, p of a wrong shape.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from scoring.intervals.classical import bootstrap_ci, clustered_ci, wald_ci, wilson_ci
from scoring.intervals.exact import bayes_exact_ci
from scoring.metrics.bayes import avg_ci, bayes_ci
from scoring.metrics.empirical import covering_ci, empirical_bayes_ci
from scoring.numerics import checks
from scoring.numerics.arrays import check_probabilities
from scoring.numerics.inputs import Counts, Floats, Ints

# Replicates that are simulated and scored at once, for memory.
CHUNK = 500

Truth: TypeAlias = float | tuple[float, float]

# Name: function, and what it is called with besides counts and confidence. The estimate is the
# first of what a function returns, the interval the last two.
METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "bayes": (bayes_ci, {"bounds": (0.0, 1.0)}),
    "bayes_exact": (bayes_exact_ci, {}),
    "empirical_bayes": (empirical_bayes_ci, {}),
    "avg": (avg_ci, {"bounds": (0.0, 1.0)}),
    "covering": (covering_ci, {"bounds": (0.0, 1.0)}),
    "wald": (wald_ci, {}),
    "wilson": (wilson_ci, {}),
    "bootstrap": (bootstrap_ci, {"replicates": 500}),
    "bootstrap_questions": (bootstrap_ci, {"replicates": 500, "resample": "questions"}),
    "clustered": (clustered_ci, {}),
}


class Coverage(NamedTuple):
    """What a method's interval did over replicates; every figure with its Monte-Carlo error."""

    coverage: float  # share of replicates whose interval holds the target
    coverage_se: float
    width: float  # mean of upper minus lower end
    width_se: float
    bias: float  # mean of estimate minus target
    bias_se: float


def coverage(
    methods: Sequence[str],
    p: npt.ArrayLike,
    trials: int,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    target: float | None = None,
) -> dict[str, Coverage]:
    """Coverage, width and bias of intervals on simulated outcomes 0 and 1.

    Every replicate draws the number of correct trials of each question from Binomial(N, p_a); the
    same seed gives the same counts, whichever methods are asked for. The standard error of a
    coverage of exactly 0 or 1 comes out as 0.

    ``methods`` are names out of ``METHODS``; ``p`` are success probabilities in [0, 1], shape (M,),
    or (replicates, M) for questions that differ from replicate to replicate; ``trials`` is N, at
    least 1, and ``confidence`` the nominal coverage, in (0, 1). ``target`` is the true value;
    ``None`` is the mean of p, in each replicate its own.

    Thirty easy questions, eighty trials: the prior of Bayes@N is in the way.

    >>> easy = coverage(["bayes", "avg"], [0.97] * 30, trials=80)
    >>> round(easy["bayes"].coverage, 2), round(easy["avg"].coverage, 2)
    (0.12, 0.98)
    """
    trials = checks.check_whole(trials, "trials", 1)
    replicates = checks.check_whole(replicates, "replicates", 1)
    confidence = checks.check_confidence(confidence)
    if len(set(methods)) != len(methods) or not METHODS.keys() >= set(methods):
        known = ", ".join(METHODS)
        raise ValueError(f"methods is {list(methods)}: pass names out of {known}, each once")
    rate = check_probabilities(p, "p")
    if rate.ndim not in (1, 2) or (rate.ndim == 2 and len(rate) != replicates):
        raise ValueError(
            f"p has shape {rate.shape}: pass (questions,), or ({replicates}, questions) for "
            f"{replicates} replicates with questions of their own"
        )
    rate = np.broadcast_to(rate, (replicates, rate.shape[-1]))
    truth = rate.mean(axis=-1)
    if target is not None:
        truth = np.full(replicates, checks.check_finite(target, "target"))
    rng = np.random.default_rng(checks.check_whole(seed, "seed", 0))
    parts: dict[str, list[Floats]] = {name: [] for name in methods}
    for start in range(0, replicates, CHUNK):
        chunk = slice(start, start + CHUNK)
        correct = rng.binomial(trials, rate[chunk])
        for name in methods:
            parts[name].append(_judged(name, correct, trials, confidence, truth[chunk]))
    return {name: _summary(np.concatenate(each, axis=-1)) for name, each in parts.items()}


def rates(
    truth: Truth, questions: int, replicates: int | None = None, seed: int = 0
) -> npt.NDArray[np.float64]:
    """True success probabilities of questions: all the same, or drawn from a Beta distribution.

    ``truth`` is one probability, or (a, b) of a Beta distribution, both above 0: (1, 1) is uniform,
    (0.3, 0.3) has mostly very easy and very hard questions, (8, 2) mostly easy ones. The shape is
    (questions,), or (replicates, questions).

    >>> rates(0.9, 3).tolist(), rates((8, 2), 30, replicates=1000).shape
    ([0.9, 0.9, 0.9], (1000, 30))
    """
    pool_mean(truth)
    lead = () if replicates is None else (checks.check_whole(replicates, "replicates", 1),)
    shape = (*lead, checks.check_whole(questions, "questions", 1))
    if isinstance(truth, tuple):
        return np.random.default_rng(seed).beta(*truth, size=shape)
    return np.full(shape, float(truth))


def pool_mean(truth: Truth) -> float:
    """Mean of the pool that :func:`rates` draws from: the probability itself, or a / (a + b).

    >>> pool_mean(0.97), pool_mean((8, 2))
    (0.97, 0.8)
    """
    if isinstance(truth, tuple):
        if len(truth) != 2:
            raise ValueError(f"truth is {truth!r}: pass (a, b), both above 0, of a Beta")
        a, b = (
            checks.check_positive(truth[0], "a of truth"),
            checks.check_positive(truth[1], "b of truth"),
        )
        return a / (a + b)
    return checks.check_share(truth, "truth")


def _judged(name: str, correct: Ints, trials: int, confidence: float, truth: Floats) -> Floats:
    """Whether the target is held, width and error of each replicate, shape (3, B)."""
    method, options = METHODS[name]
    counts = Counts(np.stack([trials - correct, correct], axis=-1))
    estimate, *_, lo, hi = method(counts, confidence=confidence, **options)
    return np.stack([(lo <= truth) & (truth <= hi), hi - lo, estimate - truth])


def _summary(each: Floats) -> Coverage:
    errors = each.std(axis=-1) / np.sqrt(each.shape[-1])
    return Coverage(*np.stack([each.mean(axis=-1), errors], axis=-1).ravel().tolist())
