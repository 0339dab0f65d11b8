"""An earlier run as a prior: how much it should count.

Algorithm 1 of the paper takes the outcomes of a prior run, R0, and gives each the weight of a new
trial. A run of an older, quantised or base model is worth less than that: with few prior trials
the ranking converges faster, with many it is held back (section 2.8 of the paper).
"""

from __future__ import annotations

import numpy as np

from scoring.numerics.checks import check_positive, check_whole
from scoring.numerics.inputs import Counts, Floats, Outcomes, outcome_counts


def down_weight(R0: Outcomes, strength: float, categories: int = 2) -> Counts:
    """Prior counts that keep the proportions of a prior run but weigh only ``strength`` trials.

    The counts n_ak of a question with D_a prior trials become n_ak min(1, D / D_a), where D is
    the strength: all of the run is used, so its proportions are known better than from D trials,
    and it weighs no more than D trials. A run is never made to weigh more than it has trials.

    Args:
        R0: outcomes of the prior run, shape (..., M, D_a), or counts, as for
            :func:`scoring.bayes`, but a vector is one question. A question without prior trials
            keeps the uniform prior.
        strength: D, above 0; 1 to 4 trials for a related model, by the paper's study.
        categories: C + 1.

    Returns:
        Counts (..., M, C + 1), to be passed as R0.

    Raises:
        ValueError: outcomes not in 0..C; a strength of 0 or less.

    Source: arXiv 2510.04265, equation 6 and, in the version with twenty models, section 2.8.

    >>> import scoring
    >>> prior = scoring.down_weight([[1, 1, 1, 1, 1, 1, 0, 0], [0] * 8], strength=4)
    >>> prior.values.tolist()
    [[1.0, 3.0], [4.0, 0.0]]
    >>> mu, sigma = scoring.bayes([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], R0=prior)
    >>> round(mu, 6), round(sigma, 6)
    (0.545455, 0.099931)
    """
    strength = check_positive(strength, "strength")
    categories = check_whole(categories, "categories", least=1)
    remedy = f"categories is {categories}, for outcomes 0..{categories - 1}"
    counts = outcome_counts(R0, categories, remedy=remedy, name="R0", prior=True)
    trials: Floats = counts.sum(axis=-1, keepdims=True).astype(np.float64)
    return Counts(counts * (strength / np.maximum(trials, strength)))
