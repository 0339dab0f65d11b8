"""Intervals from the exact posterior of Bayes@N, without the normal approximation.

Bayes@N: Hariri et al., arXiv 2510.04265, Algorithm 1; its interval (section 2.5) approximates this.
"""

import numpy as np

from bayes_at_n.scoring.numerics.checks import check_confidence
from bayes_at_n.scoring.numerics.fourier import mean_quantiles
from bayes_at_n.scoring.numerics.inputs import Floats, Outcomes, Weights, counts_and_prior
from bayes_at_n.scoring.numerics.moments import bayes_from_counts, merge_equal
from bayes_at_n.scoring.numerics.results import Summary, result

# The smallest tail whose quantile is meant: below it numerical error would be a visible part.
SMALLEST_TAIL = 1e-7


def bayes_exact_ci(
    R: Outcomes, w: Weights = None, R0: Outcomes | None = None, confidence: float = 0.95
) -> Summary:
    """Bayes@N with the equal-tailed credible interval of its exact posterior.

    Its ends are quantiles of the posterior itself, the distribution of the mean of M independent
    w . pi_a with pi_a ~ Dirichlet(nu_a), where :func:`scoring.bayes_ci` takes a normal one::

        E exp(i v metric) = prod_a phi_a(v / M),   phi_a(v) = E exp(i v w . pi_a)

    phi_a is a contour integral, evaluated numerically, and the product gives the Fourier series
    of the distribution. About coverage it promises no more than :func:`scoring.bayes_ci` does.

    The error, as a probability, is below 1e-10 for three or more questions, and for one with
    outcomes 0 and 1 (a Beta distribution). For two questions, or one with more weights, it is below
    1e-7 and mostly below 1e-9; up to 2e-5 if one of the two has 10^6 times the trials of the other,
    or some weights of the one nearly coincide. A confidence above 1 - 2e-7 is a ValueError. All
    else: :func:`scoring.bayes_ci`, whose interval here is 0.4107 to 0.875.

    >>> [round(x, 4) for x in bayes_exact_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])]
    [0.6429, 0.1185, 0.398, 0.8559]
    """
    tail = (1 - check_confidence(confidence)) / 2
    if tail < SMALLEST_TAIL:
        raise ValueError(
            f"confidence is {confidence!r}: quantiles are computed for tails down to "
            f"{SMALLEST_TAIL:g}, so pass at most 1 - {2 * SMALLEST_TAIL:g}"
        )
    counts, weights, prior = counts_and_prior(R, w, R0)
    mu, sigma = bayes_from_counts(counts, weights, prior)
    levels, nu = _levels(counts + prior + 1.0, weights)
    if levels.size == 1:
        return Summary(*map(result, (mu, sigma, mu, mu)))
    low, span = levels[0], levels[-1] - levels[0]
    ends = mean_quantiles(nu, (levels - low) / span, np.array([tail, 1 - tail]))
    lo, hi = (low + span * end.reshape(mu.shape) for end in ends.T)
    return Summary(*map(result, (mu, sigma, lo, hi)))


def _levels(nu: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the distinct weights, rising, and the parameters of each: (matrices, M, levels)."""
    return merge_equal(nu.reshape(-1, *nu.shape[-2:]), weights)
