"""How often the order of two models reverses between two sets of scores: MaP's PRR.

Before and after are scores of the same L models, as of pre-trained models and of the same models
after fine-tuning. 0 is the same order, and 1/2 is what scores that know nothing of each other
reach on average. Ties, also those but for rounding, are no reversal.

Source: MaP (Wang et al., "A Unified Framework for Reliable Evaluation of Pre-training Dynamics",
2025), section 3.1; the posteriors are those of Hariri et al., arXiv 2510.04265, equation 9 with
C = 1, and section 2.5.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.passk import pass_at_k
from bayes_at_n.scoring.numerics.checks import check_confidence, check_k, check_models, check_whole
from bayes_at_n.scoring.numerics.coins import stream
from bayes_at_n.scoring.numerics.estimate import enough_binary
from bayes_at_n.scoring.numerics.inputs import Counts, Floats, Ints, Outcomes
from bayes_at_n.scoring.numerics.results import result
from bayes_at_n.scoring.ranking.ranks import ranks

# Draws of success rates held at once: 16 MB an array.
MOST_DRAWS = 2**21


class Reversal(NamedTuple):
    """The pairwise reversal rate, of the scores as they are and of what they leave open."""

    rate: float  # of the point scores
    mean: float  # posterior mean, and the ends of the credible interval
    lo: float
    hi: float


def reversal_rate(before: npt.ArrayLike, after: npt.ArrayLike) -> Any:
    """Count the share of pairs of models whose order reverses from before to after.

    Of the L (L - 1) / 2 pairs, those with (R(i) - R(j)) (R'(i) - R'(j)) < 0, where R and R' are
    the ranks before and after. A pair that is tied in either is not reversed.

    Both are finite scores of the same L models, at least 2, shape (..., L), of which higher is
    better; leading axes are broadcast. Raises ValueError: others. The share is a float, or (...).

    >>> round(reversal_rate([0.1, 0.2, 0.3], [0.6, 0.5, 0.7]), 4)
    0.3333
    >>> reversal_rate([[1, 2, 3], [3, 2, 1], [1, 1, 1]], [1, 2, 3]).tolist()
    [0.0, 1.0, 0.0]
    """
    a, b = (
        ranks(check_models(scores, name)) for scores, name in ((before, "before"), (after, "after"))
    )
    models = a.shape[-1]
    if models != b.shape[-1] or models < 2:
        raise ValueError(f"before has {models} models, after {b.shape[-1]}: pass the same, >= 2")
    reversed_pairs = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1], np.int64)
    for step in range(1, models):
        product = (a[..., step:] - a[..., :-step]) * (b[..., step:] - b[..., :-step])
        reversed_pairs += np.count_nonzero(product < 0, axis=-1)
    return result(reversed_pairs / (models * (models - 1) / 2))


def reversal_rate_ci(
    before: Outcomes,
    after: Outcomes,
    k: int = 1,
    draws: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Reversal:
    """Compute the reversal rate of Pass@k with its posterior: what trials leave open of both.

    Every success rate is drawn from its posterior p ~ Beta(1 + c, 1 + N - c), a model's score is
    the mean over questions of 1 - (1 - p)^k, and the rate of a draw is :func:`reversal_rate` of
    these scores.

    The posterior mean is no better guess of the rate: a pair that the trials cannot tell apart
    counts about 1/2, be it reversed, in order or tied, and the interval need not hold the rate.
    With different N among the models of a side, the prior pulls those with fewer trials further to
    the middle (as in :func:`scoring.compare`): run the missing trials first.

    ``before`` and ``after`` are outcomes 0 and 1 of the same L models in the same order, shape (L,
    M, N), possibly masked, or :class:`scoring.Counts` of shape (L, M, 2), with at least k trials of
    each question; questions and trials may differ. k, 1 for the average, and ``draws`` are at least
    1, the seed at least 0, and ``confidence``, of the interval, lies in (0, 1).

    Returns a :class:`Reversal`: the rate of the unbiased :func:`scoring.pass_at_k`, the posterior
    mean, and quantiles of the posterior with equal tails. Ends are rates that occurred, and the
    interval holds at least ``confidence``, as rates are steps. Raises ValueError: an argument not
    as above, different L, L below 2.

    >>> from bayes_at_n.scoring import Counts
    >>> before = Counts([[[12, 8]], [[9, 11]], [[8, 12]]])
    >>> after = Counts([[[8, 12]], [[4, 16]], [[5, 15]]])
    >>> reversal = reversal_rate_ci(before, after)
    >>> round(reversal.rate, 4), round(reversal.mean, 2), reversal.lo, reversal.hi
    (0.3333, 0.33, 0.0, 1.0)
    """
    k, tail = check_k(k), (1 - check_confidence(confidence)) / 2
    check_whole(draws, "draws", least=1)
    counts = [_model_counts(R, k, name) for R, name in ((before, "before"), (after, "after"))]
    # A stream a side: a draw is the same however many are held at once.
    rngs = [stream(seed, side) for side in range(2)]
    step = max(1, MOST_DRAWS // max(side[..., 0].size for side in counts))
    rates = np.concatenate(
        [
            # The share that k attempts miss has the reverse order on both sides.
            reversal_rate(*(_misses(rng, c, k, size) for rng, c in zip(rngs, counts, strict=True)))
            for size in (min(step, draws - start) for start in range(0, draws, step))
        ]
    )
    lo, hi = np.quantile(rates, [tail, 1 - tail], method="inverted_cdf")
    point = reversal_rate(*(pass_at_k(Counts(c), k) for c in counts))
    return Reversal(point, float(rates.mean()), float(lo), float(hi))


def _model_counts(R: Outcomes, k: int, name: str) -> Ints:
    """Counts of wrong and right (L, M, 2), with k trials of every question."""
    correct, trials = enough_binary(R, k, f"{name}: Pass@{k}")
    if correct.ndim != 2:
        raise ValueError(
            f"{name} has questions of shape {correct.shape}: pass (models, questions, trials)"
        )
    return np.stack([trials - correct, correct], axis=-1)


def _misses(rng: np.random.Generator, counts: Ints, k: int, size: int) -> Floats:
    """Draw the chance that k attempts are all wrong, mean over questions: (size, L)."""
    wrong, right = counts[..., 0], counts[..., 1]
    q = rng.beta(1 + wrong, 1 + right, (size, *wrong.shape))
    return np.asarray((q**k).mean(axis=-1))
