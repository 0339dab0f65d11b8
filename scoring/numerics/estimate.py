"""The one path of the Pass@k family: from outcomes and a score to an estimate or a posterior.

A score is a name, for messages, and its credits A_0..A_k for j of k correct attempts
(``credit.py``). Where moments of the posterior have a closed form, a function of those takes the
place of the credits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

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
Summary: TypeAlias = tuple[Any, Any, Any, Any]  # mu, sigma, lo, hi


def enough_binary(R: Outcomes, k: int, what: str, short: Short) -> tuple[Ints, Ints, Bools | None]:
    """Correct and trials (..., M) of questions with k trials, and which those are.

    Where a question is dropped its numbers are replaced by 0 of k, so that formulas are defined.
    """
    correct, trials = binary_counts(R, what)
    kept = enough_trials(trials, k, what, short)
    if kept is not None:
        correct, trials = np.where(kept, correct, 0), np.where(kept, trials, k)
    return correct, trials, kept


def subset_mean(R: Outcomes, what: str, credit: Floats, short: Short) -> Any:
    """Unbiased estimate of a credit over k attempts, averaged over questions."""
    correct, trials, kept = enough_binary(R, credit.size - 1, what, short)
    return result(question_mean(subset_scores(credit, correct, trials), kept))


def credit_summary(
    R: Outcomes,
    what: str,
    credit: Floats,
    confidence: float,
    bounds: Bounds,
    prior: tuple[float, float],
    short: Short = "raise",
    least: int = 0,
) -> Summary:
    """Posterior summary of a credit over k new attempts; last arguments: :func:`beta_moments`."""
    k, key = credit.size - 1, (credit.tobytes(),)
    moments, kept = beta_moments(R, what, k, _credit_moments, key, prior, short, least)
    return summary(moments, kept, confidence, bounds)


def beta_moments(
    R: Outcomes,
    what: str,
    k: int,
    moments: Moments,
    arguments: tuple[Any, ...],
    prior: tuple[float, float],
    short: Short = "raise",
    least: int = 0,
) -> tuple[tuple[Floats, ...], Bools | None]:
    """Posterior moments of each question, each of shape (..., M), and which questions are kept.

    ``moments`` is a function, of module level, of ``arguments``, which are hashable, and of Beta
    parameters, vectors; ``prior`` is alpha0 and beta0. ``short`` says what to do about questions
    with fewer than ``least`` trials.
    """
    start = check_prior(*prior)
    correct, trials, kept = enough_binary(R, least, what, short)
    return by_state(_at_posterior, (moments, arguments, *start), correct, trials, 2 * k + 1), kept


def _at_posterior(
    moments: Moments, arguments: Any, alpha0: float, beta0: float, correct: Ints, trials: Ints
) -> tuple[Floats, ...]:
    return moments(*arguments, alpha0 + correct, beta0 + (trials - correct))


def _credit_moments(credit: bytes, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    return credit_moments(np.frombuffer(credit), alpha, beta)


def summary(
    moments: tuple[Floats, ...], kept: Bools | None, confidence: float, bounds: Bounds
) -> Summary:
    """Summary of means and variances of independent questions, both (..., M)."""
    means, variances = moments
    mu, sigma = question_mean(means, kept), question_sigma(variances, kept)
    return result(mu), result(sigma), *normal_interval(mu, sigma, confidence, bounds)
