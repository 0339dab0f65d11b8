"""Do verifier and grader agree, and by how much more than chance?

They agree on an attempt where the grader's "correct" meets the verifier's A (correct), or its "not
correct" a B (incorrect) or a C (invalid). An attempt on which the grader has no view, such as a
timeout, is better left out than counted as not correct.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.verifiers.judge.labels import LABELS, Bools, Ints


class Agreement(NamedTuple):
    """The grader's outcome against the verifier's label."""

    table: Ints  # attempts, (2, 3): rows correct and not correct by the grader, columns A, B, C
    observed: float  # share on which they agree
    expected: float  # share on which judges with these habits would agree by chance
    kappa: float | None  # Cohen's: 1 is full agreement; None where both know one word only


def agreement(correct: Bools, labels: Ints) -> Agreement:
    """Count grader against verifier, and compute Cohen's kappa of "correct" against "not".

    `correct`, shape (n,), n > 0, says whether the grader finds the attempt correct, and `labels`,
    likewise, the verifier's label, 0, 1, 2 for A, B, C. With the observed and expected share on
    which they agree, kappa = (observed - expected) / (1 - expected). Source: Cohen 1960, "A
    coefficient of agreement for nominal scales".

    >>> correct = np.array([True, True, True, False, False])
    >>> both = agreement(correct, np.array([0, 0, 1, 1, 2]))
    >>> both.table.tolist(), round(both.observed, 3), round(both.kappa, 3)
    ([[2, 1, 0], [0, 1, 1]], 0.8, 0.615)
    """
    cells = np.bincount(np.where(correct, 0, len(LABELS)) + labels, minlength=2 * len(LABELS))
    table = cells.reshape(2, len(LABELS)).astype(np.int64)
    counts = np.column_stack([table[:, 0], table[:, 1:].sum(axis=1)])
    p = counts / counts.sum()
    observed, expected = float(np.trace(p)), float(p.sum(axis=1) @ p.sum(axis=0))
    # Counts decide, not rounded shares: is every case in one and the same cell of the diagonal?
    constant = (np.diag(counts) == counts.sum()).any()
    kappa = None if constant else (observed - expected) / (1 - expected)
    return Agreement(table, observed, expected, kappa)


class Alpha(NamedTuple):
    """Agreement of several judges or votes beyond chance."""

    alpha: float  # 1: all agree; 0: as by chance; NaN: all votes are the same
    low: float  # ends of its interval over questions; NaN where it is not known
    high: float
    units: int  # attempts with two votes at least
    votes: int  # on these


def krippendorff(
    units: Sequence[Sequence[Any]],
    scale: str = "nominal",
    clusters: Sequence[Any] | None = None,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Alpha:
    """Compute Krippendorff's alpha of votes on attempts, with an interval.

    With d(x, y) = 1 for different votes (scale="nominal") or (x - y)^2 (scale="interval", for
    numbers), n_u votes on unit u, units with one vote left out, and n votes on the others::

        observed = 1/n sum_u sum_{i != j in u} d(v_i, v_j) / (n_u - 1)
        expected = sum_{i != j} d(v_i, v_j) / (n (n - 1))     over all pairs of votes
        alpha    = 1 - observed / expected

    Attempts at one question are alike, so the interval is a percentile bootstrap over clusters.

    Args:
        units: votes on each attempt, of any number of judges.
        scale: of the votes.
        clusters: the question of each unit; None: units are independent.
        confidence: of the interval, in (0, 1).
        draws: bootstrap replicates.
        seed: of these.

    Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability".

    >>> found = krippendorff([["a", "a"], ["a", "b"], ["b", "b"], ["b", "b", "b"]])
    >>> round(found.alpha, 4), found.units, found.votes
    (0.5556, 4, 9)
    >>> round(krippendorff([[1, 2], [3, 3], [7, 6]], "interval").alpha, 4)
    0.939
    """
    kept = [i for i, votes in enumerate(units) if len(votes) > 1]
    if not kept:
        return Alpha(np.nan, np.nan, np.nan, 0, 0)
    values = sorted({vote for i in kept for vote in units[i]}, key=lambda v: (str(type(v)), v))
    place = {value: k for k, value in enumerate(values)}
    counts = np.array(
        [np.bincount([place[v] for v in units[i]], minlength=len(values)) for i in kept]
    )
    if scale == "interval":
        numbers = np.array(values, np.float64)
        apart = (numbers[:, None] - numbers) ** 2
    else:
        apart = 1.0 - np.eye(len(values))
    size = counts.sum(axis=1)
    within = ((counts @ apart) * counts).sum(axis=1) / (size - 1)
    labels = [kept.index(i) if clusters is None else clusters[i] for i in kept]
    of = np.unique(np.array([str(label) for label in labels]), return_inverse=True)[1]
    groups = int(of.max()) + 1
    sums = np.zeros((groups, len(values) + 1))
    np.add.at(sums, of, np.column_stack([counts, within]))

    def alpha(total: Any) -> Any:
        votes, disagreement = total[..., :-1], total[..., -1]
        n = votes.sum(axis=-1)
        expected = ((votes @ apart) * votes).sum(axis=-1) / (n - 1)
        return 1 - np.divide(
            disagreement, expected, out=np.full(n.shape, np.nan), where=expected > 0
        )

    whole = float(alpha(sums.sum(axis=0)))
    drawn = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), draws)
    several = alpha(drawn @ sums)
    tail = (1 - confidence) / 2
    known = groups > 1 and np.isfinite(several).any()
    low, high = np.nanquantile(several, [tail, 1 - tail]) if known else (np.nan, np.nan)
    return Alpha(whole, float(low), float(high), len(kept), int(size.sum()))
