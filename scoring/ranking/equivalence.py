"""Are two ways of sampling one model the same? Decided by trials of the same questions.

The score of a trial is the mean over its M questions, and a trial of A is paired with one of B. The
differences D_t of N pairs are independent draws, whatever goes on within a trial: its questions
share a seed, and both runs may share seeds. So Student's t on the D_t takes seeds that are common
to questions and to runs as they are, and needs no model of questions. These are fixed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.inputs import (
    Floats,
    bounded_array,
    check_positive,
    finite_array,
)
from bayes_at_n.scoring.numerics.results import Summary, result, student_summary
from bayes_at_n.scoring.ranking.compare import fewest_trials

LEVEL = 0.05
"""Of errors in two looks: "different" of two that score the same, "equivalent" of two that do not.
The second look is the one at the number of trials that the first has named; each has half of it."""
POWER = 0.95
"""With which differences are found, and sameness is shown, at that number of trials."""
_TAILS = (LEVEL / 2, LEVEL / 4)  # of one look: beyond one end of the margin; on one side of 0
_UNSEEN = 4  # attempts that count as having come out differently beside those that did


class Equivalence(NamedTuple):
    """The difference A minus B and what is decided of it; arrays of shape (...) for stacks."""

    difference: Any
    sigma: Any  # its standard error
    lo: Any  # ends of the 95% interval: within the margin, equivalent
    hi: Any
    outer_lo: Any  # ends of the 97.5% interval: without 0 in it, different
    outer_hi: Any
    smallest: Any  # difference that so many trials would have shown with 95% power
    trials: Any  # of each at which `smallest` is the margin; inf above 2^52
    conclusion: Any  # "equivalent", "different" or "undecided"


def equivalence(R_a: npt.ArrayLike, R_b: npt.ArrayLike, margin: float = 0.01) -> Equivalence:
    """Decide whether two runs score the same, but for a margin, on these questions.

    With D_t the mean over questions of R_a - R_b in trial t, n = M N and t_q Student's quantiles
    of N - 1 degrees of freedom::

        sigma^2 = s^2(D) / N + 4 / n^2

    - equivalent: difference -/+ t_.975 sigma lies within -/+ margin (two one-sided tests at 2.5%);
    - else different: difference -/+ t_.9875 sigma leaves out 0 (a two-sided test at 2.5%);
    - else undecided.

    Whoever then extends both runs to ``trials`` and looks again has been wrong in at most 5 of 100
    such cases, both looks together; more looks are more errors.

    4 / n^2 stands for four attempts more that come out differently, two each way, as Agresti and
    Coull have them for a proportion: a few trials that agree throughout prove little.

    Of 100 pairs of runs that are ``smallest`` apart 95 are found different. ``trials`` is the N
    from which on it is at most the margin; there 95 of 100 pairs that score the same are found
    equivalent. Both take it that a shift comes attempt by attempt, and not in whole trials.

    R_a and R_b hold 0 and 1, of one shape (..., M, N) with N >= 2, and trial t of both is a pair:
    the same seed where runs share it, else any. The margin is a share in (0, 1). Raises ValueError:
    others. With one trial of many questions pass questions as trials, (..., 1, M): then these are a
    sample, and must not share luck. Sources: Schuirmann (1987) for the two tests; Agresti and Coull
    (1998).

    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.random((3, 30, 80)) < np.reshape([0.5, 0.5, 0.3], (3, 1, 1))
    >>> e = equivalence(a, b)
    >>> round(e.difference, 4), round(e.lo, 4), round(e.hi, 4), e.conclusion
    (0.0162, -0.0145, 0.047, 'undecided')
    >>> round(e.smallest, 4), e.trials, equivalence(a, c).conclusion, equivalence(a, a).conclusion
    (0.0683, 3157.0, 'different', 'equivalent')
    """
    a, b = (bounded_array(R, "R", 0.0, 1.0, "pass outcomes 0 and 1") for R in (R_a, R_b))
    check_positive(margin, "margin", most=1.0)
    D = _differences(a, b)
    questions, trials = a.shape[-2:]
    difference, variance = D.mean(axis=-1), D.var(axis=-1, ddof=1)
    sigma = np.sqrt(variance / trials + _UNSEEN / (questions * trials) ** 2)
    inner, outer = (scipy.special.stdtrit(trials - 1, 1 - level) * sigma for level in _TAILS)

    def smallest(N: Any) -> Floats:
        return _smallest(N, trials, questions, variance)

    equal = (difference - inner > -margin) & (difference + inner < margin)
    differs = np.abs(difference) > outer
    conclusion = np.where(equal, "equivalent", np.where(differs, "different", "undecided"))
    numbers = (
        *(difference, sigma, difference - inner, difference + inner),
        *(difference - outer, difference + outer, smallest(trials)),
        fewest_trials(lambda N: (smallest(N) <= margin) & (N >= 2)),
    )
    scalar = conclusion if conclusion.ndim else str(conclusion)
    return Equivalence._make([*map(result, numbers), scalar])


def _smallest(N: Any, trials: int, questions: int, variance: Floats) -> Floats:
    """The difference that N trials find with 95% power, from a variance of D_t over ``trials``.

    It is the d that solves::

        d = k sqrt((s^2(D) + d / M) / N + 4 / n^2)

    where d / M is what a shift of d adds to the variance of D_t, and k is t_.9875 + z_.95, or
    t_.975 + z_.975 if larger, for an s that is known. It is an estimate here and will be one in the
    run of N trials, so k is the quantile of a noncentral t.
    """
    other = np.maximum(N, 2) - 1
    known = 1 / (1 / (trials - 1) + 1 / other)
    powers = 1 - (1 - POWER) / 2, POWER
    ends = (scipy.special.stdtrit(other, 1 - tail) for tail in _TAILS)
    ks = [scipy.special.nctdtrit(known, t, p) for t, p in zip(ends, powers, strict=True)]
    k2, n = np.maximum(*ks) ** 2, questions * N
    half = k2 / n / 2
    found: Floats = half + np.sqrt(half**2 + k2 * (variance / N + _UNSEEN / n**2))
    return found


def paired_trials(a: npt.ArrayLike, b: npt.ArrayLike, confidence: float = 0.95) -> Summary:
    """Average the difference of any numbers of attempts, A minus B, with trials as pairs.

    Student's t on the D_t as in :func:`equivalence`, without its four attempts. a and b are finite
    and of one shape (..., M, N) with N >= 2. Raises ValueError: others.

    >>> [round(x, 3) for x in paired_trials([[5, 7, 6], [1, 2, 4]], [[4, 7, 4], [1, 0, 3]])]
    [1.0, 0.289, -0.242, 2.242]
    """
    D = _differences(finite_array(a, "a"), finite_array(b, "b"))
    sigma = D.std(axis=-1, ddof=1) / np.sqrt(D.shape[-1])
    return student_summary(D.mean(axis=-1), sigma, D.shape[-1] - 1, confidence)


def per_token(
    totals: npt.ArrayLike, tokens: npt.ArrayLike, clusters: npt.ArrayLike, confidence: float = 0.95
) -> Summary:
    """Average per token over attempts that come in clusters, as those of one question.

    The ratio of sums, with G clusters of totals T_g and tokens n_g, and Student's t of G - 1
    degrees of freedom::

        r = sum_g T_g / sum_g n_g,   sigma^2 = G / (G - 1) sum_g (T_g - r n_g)^2 / (sum_g n_g)^2

    ``totals``, ``tokens`` (at least 0) and ``clusters`` (whole numbers) have one entry an attempt;
    shares of attempts have 1 token each. One cluster tells no spread: sigma is inf. Raises
    ValueError: no token at all. Source: Cochran, "Sampling Techniques" (1977), section 6.

    >>> [round(x, 3) for x in per_token([1.0, 3.0, 4.0], [2, 2, 4], [0, 0, 1])]
    [1.0, 0.0, 1.0, 1.0]
    >>> [round(x, 3) for x in per_token([1.0, 3.0, 2.0], [2, 2, 4], [0, 0, 1])]
    [0.75, 0.25, -2.427, 3.927]
    """
    total, number = finite_array(totals, "totals"), finite_array(tokens, "tokens")
    if number.size == 0 or number.min() < 0 or number.sum() == 0:
        raise ValueError("tokens: there is none")
    names, at = np.unique(np.asarray(clusters), return_inverse=True)
    sums, sizes = (np.bincount(at, weights=part) for part in (total, number))
    ratio = sums.sum() / sizes.sum()
    if names.size == 1:
        return Summary(float(ratio), np.inf, -np.inf, np.inf)
    spread = ((sums - ratio * sizes) ** 2).sum() * names.size / (names.size - 1)
    sigma = np.sqrt(spread) / sizes.sum()
    return student_summary(ratio, sigma, names.size - 1, confidence)


def kl_terms(logprobs_a: npt.ArrayLike, logprobs_b: npt.ArrayLike) -> Floats:
    """Compute (r - 1) - log r, r = p_B / p_A, of each token: never negative, 0 only where r is 1.

    Its mean over tokens that were drawn from p_A has the expectation KL(A||B), as -log r has, with
    less variance. Log-probs are natural and of one shape. Raises ValueError: one that is not
    finite. Source: Schulman, "Approximating KL Divergence" (2020), the estimator k3.

    >>> kl_terms([-1.0, -0.5], [-1.0, -0.6]).round(5).tolist()
    [0.0, 0.00484]
    """
    log_r = finite_array(logprobs_b, "logprobs_b") - finite_array(logprobs_a, "logprobs_a")
    terms: Floats = np.maximum(np.expm1(log_r) - log_r, 0.0)  # rounding may carry it below 0
    return terms


def _differences(a: Floats, b: Floats) -> Floats:
    """The mean over questions of a - b: (..., N)."""
    if a.shape != b.shape or a.ndim < 2 or a.shape[-1] < 2 or a.size == 0:
        raise ValueError(
            f"shapes {a.shape} and {b.shape}: pass the same questions and trials of both, (..., M,"
            " N), with two trials or more"
        )
    D: Floats = (a - b).mean(axis=-2)
    return D
