"""How steadily scores follow training: Kendall's tau of checkpoints, and its bootstrap.

A trajectory is the scores of n checkpoints in the order of training. All of it is about order
only. Scores that are equal but for rounding are a tie, as for :func:`scoring.ranks`, so that the
average, Bayes@N and Pass@1 of the same trials, the same number for every question, have exactly
the same tau.

Source: MaP (Wang et al., "A Unified Framework for Reliable Evaluation of Pre-training Dynamics",
2025), section 3.1, for tau; arXiv 2510.04265, section 2.7, for tau_b; the bootstrap is in neither.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import check_confidence, check_models
from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.numerics.resampling import resample as resample
from bayes_at_n.scoring.numerics.resampling import resampled_scores as resampled_scores
from bayes_at_n.scoring.numerics.results import result
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b, ranks


def monotone_tau(scores: npt.ArrayLike) -> Any:
    """Compute Kendall's tau of the order of training and the scores, in MaP's form.

    With P the pairs of which the later checkpoint scores higher::

        tau = 4 P / (n (n - 1)) - 1

    A tie counts as discordant: scores that never change have tau = -1.

    The scores, in the order of training, are finite and of shape (..., n), n at least 2. Raises
    ValueError: others. tau, from -1 to 1, is a float, or an array of shape (...).

    >>> round(monotone_tau([0.1, 0.2, 0.4, 0.3]), 4)
    0.6667
    >>> monotone_tau([[0.1, 0.2, 0.3], [0.2, 0.2, 0.2], [0.1, 0.1, 0.2]]).round(4).tolist()
    [1.0, -1.0, 0.3333]
    """
    levels = _levels(scores)
    n = levels.shape[-1]
    rising = np.zeros(levels.shape[:-1], dtype=np.int64)
    for gap in range(1, n):
        rising += np.count_nonzero(levels[..., gap:] > levels[..., :-gap], axis=-1)
    return result((4 * rising - n * (n - 1)) / (n * (n - 1)))


def progress_tau_b(scores: npt.ArrayLike) -> Any:
    """Compute Kendall's tau_b of the order of training and the scores.

    Ties count neither way, and shorten the scale. Without ties it is :func:`monotone_tau`, whose
    argument and errors it has. The result is that of :func:`scoring.kendall_tau_b`, a masked array
    of shape (...), masked where all scores are tied and tau_b has no value. Raises ValueError: as
    it does.

    >>> progress_tau_b([[0.1, 0.2, 0.3], [0.2, 0.2, 0.2], [0.1, 0.1, 0.2]]).round(4).tolist()
    [1.0, None, 0.8165]
    """
    levels = _levels(scores)
    return kendall_tau_b(levels, np.arange(levels.shape[-1]))


def down_share(scores: npt.ArrayLike) -> Any:
    """Count the share of the n - 1 steps between checkpoints at which the score goes down.

    It is what MaP's Figures 2 and 3 show, as a number; not in the paper. A tie is not down.
    Argument, shapes and errors: :func:`monotone_tau`. Raises ValueError: as it does.

    >>> round(down_share([0.1, 0.3, 0.2, 0.2]), 4)
    0.3333
    """
    levels = _levels(scores)
    return result(np.mean(levels[..., 1:] < levels[..., :-1], axis=-1))


def _levels(scores: npt.ArrayLike) -> Ints:
    """Whole numbers in the order of the scores, equal where those are but for rounding."""
    values = check_models(scores, "scores")
    if values.shape[-1] < 2:
        raise ValueError("scores has 1 checkpoint: a trajectory needs at least 2")
    return -ranks(values)


def conclusive(steps: int, confidence: float) -> bool:
    """Check whether the best order of so many steps is rarer by chance than a confidence allows.

    Of the n! orders one has tau = 1 and one tau = -1.

    >>> [conclusive(steps, 0.95) for steps in (3, 4, 5)]
    [False, False, True]
    """
    return 2 / math.factorial(min(steps, 99)) <= 1 - check_confidence(confidence)


def spread(values: Floats, confidence: float) -> tuple[float | None, float | None, float | None]:
    """Compute mean and ends of the percentile interval of draws (n,); ``None`` for no draws.

    Ends are values that occurred, and the interval holds at least ``confidence`` of them.

    >>> spread(np.array([0.0, 0.0, 1.0, 1.0]), 0.5)
    (0.5, 0.0, 1.0)
    """
    if not values.size:
        return None, None, None
    tail = (1 - check_confidence(confidence)) / 2
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    return float(values.mean()), float(low), float(high)
