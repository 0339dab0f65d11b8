"""From outcomes to an estimate or a posterior summary: the steps that the Pass@k family shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scoring.numerics.checks import (
    Bounds,
    Short,
    check_prior,
    enough_trials,
    normal_interval,
    question_mean,
    question_sigma,
    result,
)
from scoring.numerics.credit import by_state, credit_moments, subset_scores
from scoring.numerics.inputs import Bools, Floats, Ints, Outcomes, binary_counts

Moments = Callable[..., tuple[Floats, ...]]


def enough_binary(R: Outcomes, k: int, what: str, short: Short) -> tuple[Ints, Ints, Bools | None]:
    """Correct and trials (..., M) of questions with k trials, and which those are.

    Where a question is dropped its numbers are replaced by 0 of k, so that formulas are defined.
    """
    correct, trials = binary_counts(R, what)
    kept = enough_trials(trials, k, what, short)
    if kept is not None:
        correct, trials = np.where(kept, correct, 0), np.where(kept, trials, k)
    return correct, trials, kept


def subset_mean(R: Outcomes, credit: Floats, what: str, short: Short) -> Any:
    """Unbiased estimate of a credit over k attempts, averaged over questions."""
    correct, trials, kept = enough_binary(R, credit.size - 1, what, short)
    return result(question_mean(subset_scores(credit, correct, trials), kept))


def posterior_states(
    R: Outcomes,
    k: int,
    what: str,
    short: Short,
    least: int,
    moments: Moments,
    arguments: tuple[Any, ...],
    prior: tuple[float, float],
) -> tuple[tuple[Floats, ...], Bools | None]:
    """Posterior moments of each question, each of shape (..., M).

    Args:
        R: outcomes 0 and 1.
        k: attempts of the score; bounds the memory.
        what: the estimator's name, for messages.
        short: what to do about questions with fewer than ``least`` trials.
        least: trials that every question needs.
        moments: function of ``arguments`` and of Beta parameters, vectors; of module level.
        arguments: hashable.
        prior: alpha0, beta0.
    """
    start = check_prior(*prior)
    correct, trials, kept = enough_binary(R, least, what, short)
    return by_state(_at_posterior, (moments, arguments, *start), correct, trials, 2 * k + 1), kept


def _at_posterior(
    moments: Moments, arguments: Any, alpha0: float, beta0: float, correct: Ints, trials: Ints
) -> tuple[Floats, ...]:
    return moments(*arguments, alpha0 + correct, beta0 + (trials - correct))


def credit_summary(
    R: Outcomes,
    credit: Floats,
    what: str,
    short: Short,
    confidence: float,
    bounds: Bounds,
    prior: tuple[float, float],
    least: int,
) -> tuple[Any, Any, Any, Any]:
    """mu, sigma, lo and hi of a credit over k new attempts."""
    k, key = credit.size - 1, (credit.tobytes(),)
    found, kept = posterior_states(R, k, what, short, least, _credit_moments, key, prior)
    return summary(found, kept, confidence, bounds)


def _credit_moments(credit: bytes, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    return credit_moments(np.frombuffer(credit), alpha, beta)


def summary(
    moments: tuple[Floats, ...], kept: Bools | None, confidence: float, bounds: Bounds
) -> tuple[Any, Any, Any, Any]:
    """mu, sigma, lo and hi from means and variances of independent questions, both (..., M)."""
    means, variances = moments
    mu, sigma = question_mean(means, kept), question_sigma(variances, kept)
    return result(mu), result(sigma), *normal_interval(mu, sigma, confidence, bounds)
