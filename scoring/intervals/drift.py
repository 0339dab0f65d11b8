"""Has the run that serves as a prior drifted? And what its posterior's interval then holds."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.checks import check_confidence, nonnegative_array
from bayes_at_n.scoring.numerics.inputs import Counts, Outcomes, check_trials, counts_and_prior
from bayes_at_n.scoring.numerics.results import bayes_from_counts, normal_quantile

DRIFT_LEVEL = 0.01
"""The p, over the number of priors, under which a prior run is said to have drifted."""


class Drift(NamedTuple):
    """How far a prior run is from new attempts at the same questions."""

    z: float  # above 0 where the prior run was better; 0 where it has no trials
    p: float  # two-sided, that runs of one model are so far apart
    coverage: float  # estimated, of the interval of Bayes@N with that prior


def prior_drift(
    R: Outcomes, R0: Counts, trials: npt.ArrayLike | None = None, confidence: float = 0.95
) -> Drift:
    """Test whether prior attempts and new ones have the same chances, and what follows if not.

    A prior moves the posterior mean of question a by D_a / T_a of the way to its own share, in the
    terms of :func:`scoring.bayes`. z is the sum of these moves over its standard deviation for
    chances that did not change: both runs are noisy, the prior run with as many ``trials``, (M,)
    and at least D_a, as its counts R0 were made from (None: as R0 has). The coverage is that of
    mu -/+ z' sigma about a truth that mu misses by its distance to the average, of which the moves
    are shrunk by 1 - 1 / z^2 (James and Stein), with the noise of both.

    R has outcomes 0 and 1, (M, N), and a trial of every question; R0 counts (M, 2). Raises
    ValueError: others; a confidence outside (0, 1). Source: Box (1980) for checks of a prior by
    what it predicts.

    >>> old, new = [[1, 1, 1, 0] * 5] * 20, [[1, 0, 0, 0], [1, 1, 1, 0]] * 10
    >>> R0 = Counts(np.array([[1.0, 3.0]] * 20))  # worth four trials of twenty
    >>> [round(x, 3) for x in prior_drift(new, R0, [20] * 20)]
    [4.471, 0.0, 0.196]
    """
    counts, weights, prior = counts_and_prior(R, None, R0)
    tried, worth = counts.sum(axis=-1), np.asarray(prior).sum(axis=-1)
    check_trials(tried, 1, "the drift of a prior")
    total, share = 2 + worth + tried, counts[:, 1] / tried
    quantile = normal_quantile(check_confidence(confidence))
    old = np.maximum(worth if trials is None else nonnegative_array(trials, "trials"), worth)
    old = np.maximum(old, 1e-9)
    before = prior[:, 1] / np.maximum(worth, 1e-9)
    moved = worth / total * (before - share)
    pooled = (counts[:, 1] + before * old + 0.5) / (tried + old + 1)
    spread = ((worth / total) ** 2 * pooled * (1 - pooled) * (1 / tried + 1 / old)).sum()
    z = float(moved.sum() / np.sqrt(spread)) if worth.any() else 0.0
    mu, sigma = bayes_from_counts(counts, weights, prior)
    bias = mu - share.mean() - moved.mean() * min(1.0, 1 / max(z**2, 1e-9))
    rate = (counts[:, 1] + 0.5) / (tried + 1)
    parts = (tried / total) ** 2 + ((2 + worth) / total) ** 2
    noise = np.sqrt((rate * (1 - rate) / tried * parts).sum()) / tried.size
    low, high = ((sign * quantile * sigma - bias) / noise for sign in (-1, 1))
    normal = scipy.special.ndtr
    return Drift(z, float(2 * normal(-abs(z))), float(normal(high) - normal(low)))
