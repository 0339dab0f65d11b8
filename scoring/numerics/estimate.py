"""The one path of the Pass@k family: from outcomes and a score to an estimate or a posterior.

A score has a name, for messages, and credits A_0..A_k for j of k correct attempts (``credit.py``).
Its posterior is a tuple: a function of module level, and its first arguments, hashable as they are
part of the key of a table; Beta parameters, vectors, follow, and it returns vectors of moments.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bayes_at_n.scoring.numerics.checks import UNIT, Bounds, check_k, check_positive
from bayes_at_n.scoring.numerics.credit import Credit, by_state, credit_moments, subset_scores
from bayes_at_n.scoring.numerics.inputs import Floats, Ints, Outcomes, binary_counts, check_trials
from bayes_at_n.scoring.numerics.results import Summary, mean_and_sigma, normal_summary, result

Posterior: TypeAlias = tuple[Any, ...]
_INTERVAL = {"confidence": 0.95, "bounds": UNIT, "alpha0": 1.0, "beta0": 1.0}


def enough_binary(R: Outcomes, k: int, what: str) -> tuple[Ints, Ints]:
    """Correct and trials (..., M) of questions, each with k trials at least."""
    correct, trials = binary_counts(R, what)
    check_trials(trials, k, what)
    return correct, trials


def subset_mean(R: Outcomes, what: str, credit: Credit) -> Any:
    """Unbiased estimate of a credit over k attempts, averaged over questions."""
    floats = np.asarray(credit, dtype=np.float64)
    correct, trials = enough_binary(R, floats.size - 1, what)
    return result(subset_scores(floats, correct, trials).mean(axis=-1))


def credit_posterior(credit: Credit) -> Posterior:
    """The posterior of a score with these credits."""
    return credit_moments, np.asarray(credit, dtype=np.float64).tobytes()


def beta_moments(
    R: Outcomes, what: str, k: int, posterior: Posterior, prior: tuple[float, float], least: int = 0
) -> tuple[Floats, ...]:
    """Posterior moments of each question, each of shape (..., M).

    ``prior`` is alpha0 and beta0; every question has ``least`` trials or more.
    """
    for count, name in zip(prior, ("alpha0", "beta0"), strict=True):
        check_positive(count, name, 1e-100, 1e100)  # no formula overflows within
    arguments = posterior, float(prior[0]), float(prior[1])
    return by_state(_at_posterior, arguments, *enough_binary(R, least, what), 2 * k + 1)


def _at_posterior(
    posterior: Posterior, alpha0: float, beta0: float, correct: Ints, trials: Ints
) -> tuple[Floats, ...]:
    function, *arguments = posterior
    alpha, beta = alpha0 + correct, beta0 + (trials - correct)
    moments: tuple[Floats, ...] = function(*arguments, alpha, beta)
    return moments


def beta_summary(
    R: Outcomes,
    what: str,
    k: int,
    posterior: Posterior,
    prior: tuple[float, float],
    confidence: float,
    bounds: Bounds,
    least: int = 0,
) -> Summary:
    """Summary of the mean over questions; arguments as for :func:`beta_moments`."""
    moments = beta_moments(R, what, k, posterior, prior, least)
    return normal_summary(*mean_and_sigma(moments), confidence, bounds)


def interval_of(
    score: Callable[..., Any],
    what: str,
    posterior: Callable[..., Posterior] | None = None,
    least: bool = True,
    summary: Callable[..., Summary] | None = None,
) -> Callable[..., Summary]:
    """Make the function like :func:`scoring.pass_at_k_ci` for a score of k attempts.

    ``score`` takes R, k and maybe more, and ``what`` is its name with {k}; ``posterior`` takes k
    and what more the score takes. Questions need k trials each if ``least``. A ``summary`` is made
    by itself of R, the name, prior, confidence and bounds, then k and the rest.
    """
    taken = inspect.signature(score).parameters.values()
    tail = (
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=value)
        for name, value in _INTERVAL.items()
    )
    signature = inspect.Signature([*taken, *tail])

    def interval(*args: Any, **kwargs: Any) -> Summary:
        """Summarise the posterior of a score of k new attempts: mean, sigma, credible interval.

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
        R, k, *more = bound.arguments.values()
        *more, confidence, bounds, alpha0, beta0 = more
        name, prior = what.format(k=k), (alpha0, beta0)
        if summary is not None:
            return summary(R, name, prior, confidence, bounds, check_k(k), *more)
        assert posterior is not None
        of, enough = posterior(check_k(k), *more), k if least else 0
        return beta_summary(R, name, k, of, prior, confidence, bounds, enough)

    interval.__module__ = score.__module__
    interval.__name__ = interval.__qualname__ = f"{score.__name__}_ci"
    interval.__signature__ = signature  # type: ignore[attr-defined]
    return interval
