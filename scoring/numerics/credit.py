"""Scores of k attempts that depend only on how many of the k are correct.

Such a score is a vector of credits A_0..A_k: what k attempts earn when j of them are correct.
Pass@k is (0, 1, 1, ..., 1), Pass^k is (0, ..., 0, 1), and so on. Two expectations are taken here:

- over k-subsets of the N observed trials, c of them correct (hypergeometric): the unbiased
  estimators;
- over k new attempts, each correct with probability p, where p ~ Beta(alpha, beta) is the
  posterior (Beta-binomial): the estimators with a credible interval.

Probabilities are products of ratios of neighbors, in logarithms, anchored at the largest and
normalized: nothing overflows or cancels at N = 10^4 and k = 10^3. Every distinct state (c, N) is
computed once, whatever the shape of the stack. ``alpha`` and ``beta`` are vectors (states,).

Moments of p^k and (1 - p)^k have a closed form, E p^k = prod_{i<k} (alpha + i) / (T + i) with
T = alpha + beta. Variances and covariances are a product of factors times one minus a product of
factors, so that two nearly equal numbers are never subtracted.

The posterior of a score is a tuple: a function of module level, and its first arguments, hashable
as they are part of the key of a table; Beta parameters follow, and it returns vectors of moments.
"""

import inspect
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from bayes_at_n.scoring.numerics.inputs import (
    UNIT,
    Floats,
    Ints,
    Outcomes,
    binary_counts,
    check_finite,
    check_k,
    check_positive,
    check_trials,
)
from bayes_at_n.scoring.numerics.results import Summary, mean_and_sigma, normal_summary, result

Credit: TypeAlias = Sequence[Fraction | float] | Floats

# Bounds the memory of one block of factors or probabilities, 8 bytes each.
BLOCK = 2_000_000

# Sums of up to so many logarithms lose no digit that counts.
SHORT = 64

# Tables of up to so many floats while they are made are made whole, and kept.
SMALL_TABLE = 50_000

# Below this, E g^2 - (E g)^2 has lost too many digits and is computed around the mean.
SMALL_VARIANCE = 1e-4


def at_least(j: int, k: int) -> Floats:
    """Make the credits of "at least j of k attempts are correct", shape (k + 1,)."""
    return (np.arange(int(k) + 1) >= j).astype(np.float64)


def subset_scores(credit: Floats, correct: Ints, trials: Ints) -> Floats:
    """Average a credit (k + 1,) over all k-subsets of each question's trials, k at least."""
    return by_state(_mean_credit, (credit.tobytes(),), correct, trials, credit.size)[0]


def _mean_credit(credit: bytes, correct: Ints, trials: Ints) -> tuple[Floats]:
    values = np.frombuffer(credit)
    mean = hypergeometric(trials, correct, values.size - 1) @ values
    return (np.clip(mean, values.min(), values.max()),)  # rounding may lead just outside


def credit_moments(credit: bytes, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    """Compute mean and variance of g(p) = sum_j A_j C(k, j) p^j (1 - p)^(k - j) for p ~ Beta."""
    values = np.frombuffer(credit)
    if (values == values[0]).all():
        return np.full(alpha.shape, values[0]), np.zeros(alpha.shape)
    k = values.size - 1
    means = beta_binomial(k, alpha, beta) @ values
    pmf = beta_binomial(2 * k, alpha, beta)
    variances = pmf @ _square(k, values[None, :])[0] - means**2
    small = variances < SMALL_VARIANCE
    if small.any():
        centred = _square(k, values - means[small, None])
        variances[small] = np.maximum((pmf[small] * centred).sum(axis=-1), 0.0)
    return means, variances


def hypergeometric(trials: Ints, correct: Ints, k: int) -> Floats:
    """Compute P(j of k drawn are correct), j = 0..k, for each state; shape (states, k + 1)."""
    j = np.arange(k)
    above = (correct[:, None] - j) * (k - j)
    below = (j + 1) * ((trials - correct - k)[:, None] + j + 1)
    return _pmf(above, below)


def beta_binomial(k: int, alpha: Floats, beta: Floats) -> Floats:
    """Compute P(j of k new attempts are correct), j = 0..k, of each state; (states, k + 1)."""
    j = np.arange(k)
    above = (alpha[:, None] + j) * (k - j)
    below = (j + 1) * (beta[:, None] + k - 1 - j)
    return _pmf(above, below)


def binomial(k: int, rate: Floats) -> Floats:
    """Compute P(j of k attempts are correct), j = 0..k, at each rate; (states, k + 1)."""
    j = np.arange(k)
    return _pmf(rate[:, None] * (k - j), (1 - rate[:, None]) * (j + 1))


def _pmf(above: Any, below: Any) -> Floats:
    """Normalize the distribution with P(j + 1) / P(j) = above_j / below_j.

    Ratios of which one side is not positive lie outside the support.
    """
    outside = (above <= 0) | (below <= 0)
    ratios = above / np.where(below, below, 1)
    ratios[outside] = 1.0
    steps = np.log(ratios)
    logs = np.zeros((steps.shape[0], steps.shape[1] + 1))
    np.cumsum(steps, axis=-1, out=logs[:, 1:])
    if steps.shape[1] <= SHORT:
        logs -= logs.max(axis=-1, keepdims=True)
    else:
        # Summed again from the largest probability, where an error would count most.
        up = np.arange(steps.shape[1]) >= logs.argmax(axis=-1)[:, None]
        logs[:] = 0.0
        logs[:, 1:] += np.cumsum(np.where(up, steps, 0.0), axis=-1)
        logs[:, :-1] -= np.cumsum(np.where(up, 0.0, steps)[:, ::-1], axis=-1)[:, ::-1]
    pmf = np.exp(logs)
    # Outside the support above or below is not positive: the upper end, and the lower end.
    pmf[:, 1:][above <= 0] = 0.0
    pmf[:, :-1][below <= 0] = 0.0
    pmf /= pmf.sum(axis=-1, keepdims=True)
    return pmf


def _square(k: int, credits: Floats) -> Floats:
    """Credits of g^2 as a score of 2k attempts; shape (states, 2k + 1).

    With t of 2k attempts correct, the first k hold j of them with hypergeometric probability:
    h_t = sum_j P(j | t) A_j A_(t - j).
    """
    squared = np.empty((credits.shape[0], 2 * k + 1))
    width = max(1, BLOCK // ((k + 1) * credits.shape[0]))
    for start in range(0, 2 * k + 1, width):
        t = np.arange(start, min(start + width, 2 * k + 1))
        chances = hypergeometric(np.full(t.shape, 2 * k), t, k)
        other = t[:, None] - np.arange(k + 1)
        products = credits[:, None, :] * credits[:, other.clip(0, k)]
        squared[:, t] = (chances * products).sum(axis=-1)
    return squared


def by_state(
    function: Callable[..., tuple[Floats, ...]],
    arguments: tuple[Any, ...],
    correct: Ints,
    trials: Ints,
    width: int,
) -> tuple[Floats, ...]:
    """Apply a function to (correct, trials), of any one shape, once for each distinct pair.

    With the same number of trials everywhere the values for 0..N correct are a table, which is kept
    for the next call; function, of module level, and arguments are its key. The function takes
    ``arguments`` and two vectors, and returns vectors of their length. ``width`` is how many floats
    it needs for a pair, and bounds the memory.
    """
    most = int(trials.flat[0])
    if (most + 1) * width <= SMALL_TABLE and (trials == most).all():
        return tuple(column[correct] for column in _table(function, arguments, most))
    c, n, inverse = correct.ravel(), trials.ravel(), np.arange(correct.size)
    if n.max() < 2**26:  # two such numbers make one key; others are not looked up but computed
        keys, inverse = np.unique((n << 26) + c, return_inverse=True)
        n, c = keys >> 26, keys & (2**26 - 1)
    step = max(1, BLOCK // width)
    steps = [slice(i, i + step) for i in range(0, c.size, step)]
    blocks = zip(*(function(*arguments, c[block], n[block]) for block in steps), strict=True)
    return tuple(np.concatenate(column)[inverse].reshape(correct.shape) for column in blocks)


@lru_cache(maxsize=256)
def _table(
    function: Callable[..., tuple[Floats, ...]], arguments: tuple[Any, ...], trials: int
) -> tuple[Floats, ...]:
    return function(*arguments, np.arange(trials + 1), np.full(trials + 1, trials))


def log_power(alpha: Floats, beta: Floats, k: int) -> Floats:
    """Compute log E p^k = sum_{i<k} log(1 - beta / (alpha + beta + i))."""
    return _sum_log1p(lambda i, a, b: -b / (a + b + i), alpha, beta, k)


def power_moments(alpha: Floats, beta: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Compute E p^k, 1 - E p^k and Var p^k.

    E p^2k / (E p^k)^2 = prod_{i<k} (1 + k beta / ((T + k + i)(alpha + i))).
    """
    log_mean = log_power(alpha, beta, k)
    log_ratio = _sum_log1p(lambda i, a, b: k * b / ((a + b + k + i) * (a + i)), alpha, beta, k)
    # E p^2k - (E p^k)^2, arranged so that the exponents stay at or below 0.
    variance = np.exp(2 * log_mean + log_ratio) * -np.expm1(-log_ratio)
    return np.exp(log_mean), -np.expm1(log_mean), variance


def opposite_moments(k: int, alpha: Floats, beta: Floats) -> tuple[Floats, ...]:
    """Compute means, variances and covariance of Pass@k and Pass^k, 1 - q^k and p^k.

    Cov(1 - q^k, p^k) = E p^k E q^k (1 - prod_{i<k} (T + i) / (T + k + i)).
    """
    _, any_, any_variance = power_moments(beta, alpha, k)
    all_, _, all_variance = power_moments(alpha, beta, k)
    both = np.exp(log_power(alpha, beta, k) + log_power(beta, alpha, k))
    shared = _sum_log1p(lambda i, a, b: -k / (a + b + k + i), alpha, beta, k)
    return any_, all_, any_variance, all_variance, both * -np.expm1(shared)


def spectrum_moments(credit: bytes, alpha: Floats, beta: Floats) -> tuple[Floats, ...]:
    """Compute means, variances and covariance of Pass@k and of the score with these credits."""
    values = np.frombuffer(credit)
    k = values.size - 1
    none, any_, any_variance = power_moments(beta, alpha, k)
    mean, variance = credit_moments(credit, alpha, beta)
    # E q^k S(p) is E q^k times the mean of S under Beta(alpha, beta + k).
    covariance = none * (mean - beta_binomial(k, alpha, beta + k) @ values)
    return any_, mean, any_variance, variance, covariance


def _sum_log1p(factor, alpha: Floats, beta: Floats, k: int) -> Floats:  # type: ignore[no-untyped-def]
    """Sum of log(1 + factor(i)) over i < k, in blocks of i so that memory stays bounded."""
    total = np.zeros(alpha.shape)
    step = max(1, BLOCK // max(1, alpha.size))
    a, b = alpha[..., None], beta[..., None]
    for start in range(0, k, step):
        i = np.arange(start, min(start + step, k))
        total += np.log1p(factor(i, a, b)).sum(axis=-1)
    return total


Posterior: TypeAlias = tuple[Any, ...]
_INTERVAL = {"confidence": 0.95, "bounds": UNIT, "alpha0": 1.0, "beta0": 1.0}


def enough_binary(R: Outcomes, k: int, what: str) -> tuple[Ints, Ints]:
    """Count correct and trials (..., M) of questions, each with k trials at least.

    Raises ValueError: fewer; other outcomes.
    """
    correct, trials = binary_counts(R, what)
    check_trials(trials, k, what)
    return correct, trials


def subset_mean(R: Outcomes, what: str, credit: Credit) -> Any:
    """Estimate a credit over k attempts without bias, averaged over questions."""
    floats = np.asarray(credit, dtype=np.float64)
    correct, trials = enough_binary(R, floats.size - 1, what)
    return result(subset_scores(floats, correct, trials).mean(axis=-1))


def credit_posterior(credit: Credit) -> Posterior:
    """Return the posterior of a score with these credits."""
    return credit_moments, np.asarray(credit, dtype=np.float64).tobytes()


def _at_posterior(
    posterior: Posterior, alpha0: float, beta0: float, correct: Ints, trials: Ints
) -> tuple[Floats, ...]:
    function, *arguments = posterior
    alpha, beta = alpha0 + correct, beta0 + (trials - correct)
    moments: tuple[Floats, ...] = function(*arguments, alpha, beta)
    return moments


def blend(x: Any, y: Any, a: float, b: float) -> Floats:
    """Blend scores from 0 up to x^a y^b; arrays of one shape.

    A score that is 0 allows a negative power only where the other score makes the blend 0. Raises
    ValueError: other zeros, powers that overflow.

    >>> blend(np.array([0.25, 0.0]), np.array([1.0, 0.0]), 0.5, 0.5).tolist()
    [0.5, 0.0]
    """
    a, b = check_powers(a, b)
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a >= 0 and b >= 0:
        return np.asarray(x**a * y**b)
    zero = ((x == 0) & (a > 0)) | ((y == 0) & (b > 0))
    with np.errstate(all="ignore"):
        blended = np.where(zero, 0.0, x**a * y**b)
    if not np.isfinite(blended).all():
        raise ValueError(
            f"a score is 0 and its power negative, or the powers overflow (pass_power = {a}, "
            f"unanimous_power = {b}): pass powers of 0 or more, or nearer to 0"
        )
    return blended


def check_powers(a: float, b: float) -> tuple[float, float]:
    """Return the exponents of a blend as finite floats, not both 0."""
    a, b = check_finite(a, "pass_power"), check_finite(b, "unanimous_power")
    if a == 0 and b == 0:
        raise ValueError("pass_power and unanimous_power are both 0: at least one must not be")
    return a, b


def blend_variance(
    x: Floats, y: Floats, vx: Floats, vy: Floats, cov: Floats, a: float, b: float
) -> Floats:
    """Compute the variance of x^a y^b to first order; 0 where the blend is 0."""
    mean = blend(x, y, a, b)
    dx = a * mean / np.where(x > 0, x, 1.0)
    dy = b * mean / np.where(y > 0, y, 1.0)
    # A slope may be as large as a score is small; times the spread it is below the blend's own.
    with np.errstate(all="ignore"):
        parts = (dx * np.sqrt(vx)) ** 2 + (dy * np.sqrt(vy)) ** 2 + 2 * (dx * cov * dy)
    if not np.isfinite(parts).all():
        raise ValueError(f"powers {a} and {b} overflow: pass powers nearer to 0")
    return np.asarray(np.maximum(parts, 0.0))


def blend_sigma(x: Floats, y: Floats, spread: Sequence[Floats], a: float, b: float) -> Floats:
    """Compute sigma of a blend of two means over questions, of (co)variances (..., M)."""
    vx, vy, cov = (part.sum(axis=-1) / part.shape[-1] ** 2 for part in spread)
    return np.sqrt(blend_variance(x, y, vx, vy, cov, a, b))


def interval_of(
    score: Callable[..., Any],
    what: str,
    posterior: Callable[..., Posterior],
    powers: Callable[..., tuple[float, float]] | None = None,
    least: bool = True,
) -> Callable[..., Summary]:
    """Make the function like :func:`scoring.pass_at_k_ci` for a score of k attempts.

    ``score`` takes R, k and maybe more, and ``what`` is its name with {k}; ``posterior`` takes k
    and what more the score takes. One of two scores' moments is a blend with the ``powers``, made
    of what more the score takes. Questions need k trials each if ``least``.
    """
    taken = inspect.signature(score).parameters.values()
    tail = (
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value)
        for name, value in _INTERVAL.items()
    )
    signature = inspect.Signature([*taken, *tail])

    def interval(*args: Any, **kwargs: Any) -> Summary:
        """Summarize the posterior of a score of k new attempts: mean, sigma, credible interval.

        The success rate p_a of question a has the posterior
        Beta(alpha0 + c_a, beta0 + N_a - c_a), and g(p) is the score of k attempts that are each
        correct with probability p; of Pass@k g(p) = 1 - (1 - p)^k, of Pass^k p^k::

            mu      = 1/M   sum_a E g(p_a)
            sigma^2 = 1/M^2 sum_a Var g(p_a)

        For Pass@1 and the default prior these are those of Bayes@N. Blends of two scores (Geom@k,
        GeoSpectrum@k) are carried to first order (delta method): of each question, or with
        averages first, as the score has it; with a negative power one may be above 1, so pass
        ``bounds=None``.

        Args are those of the score, then ``confidence`` 0.95, the posterior probability of the
        interval, in (0, 1); ``bounds`` (0, 1), (lowest, highest) that its ends are moved into, or
        None; ``alpha0`` and ``beta0`` 1, above 0, prior counts of correct and wrong answers.
        Geom@k, GeoSpectrum@k and the spectra take any number of trials, also none, and any k.

        Returns a named tuple of mu (``value``), sigma, and mu -/+ z sigma (``low``, ``high``), each
        a float, or a float64 array (...) of a stack. Raises ValueError: as the score; a confidence,
        bounds or prior that cannot be. Source: moments of the Beta posterior, arXiv 2510.04265,
        equation 9 with C = 1.
        """
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        R, k, *more, confidence, bounds, alpha0, beta0 = bound.arguments.values()
        for count, name in ((alpha0, "alpha0"), (beta0, "beta0")):
            check_positive(count, name, 1e-100, 1e100)  # no formula overflows within
        arguments = posterior(check_k(k), *more), float(alpha0), float(beta0)
        counted = enough_binary(R, k if least else 0, what.format(k=k))
        moments = by_state(_at_posterior, arguments, *counted, 2 * k + 1)
        if len(moments) == 2 or powers is None:
            return normal_summary(*mean_and_sigma(moments), confidence, bounds)
        x, y = (means.mean(axis=-1) for means in moments[:2])
        sigma = blend_sigma(x, y, moments[2:], *powers(*more))
        return normal_summary(blend(x, y, *powers(*more)), sigma, confidence, bounds)

    interval.__module__ = score.__module__
    interval.__name__ = interval.__qualname__ = f"{score.__name__}_ci"
    interval.__signature__ = signature  # type: ignore[attr-defined]
    return interval
