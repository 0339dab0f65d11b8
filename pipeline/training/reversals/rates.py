"""The reversal rate of each protocol: greedy, avg@N, Bayes@N and the metrics named."""

import functools
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.config.trajectory import ReversalConfig
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.protocols import AVG, BAYES, GREEDY, PASS
from bayes_at_n.scoring.metrics.table import Summary
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.scoring.ranking.ranks import ranks
from bayes_at_n.scoring.ranking.reversal import Reversal, reversal_rate, reversal_rate_ci

CHANCE = 0.5  # two orders that know nothing of each other


class Reversals(NamedTuple):
    """One protocol's scores of L models before and after, and how often they reverse."""

    metric: str  # its name
    label: str
    trials: float  # of a question that one model's evaluation before takes, a mean where ragged
    before: Summary  # arrays (L,)
    after: Summary
    posterior: Reversal | None = None  # of the rate; None but for avg, Bayes and Pass@k

    @property
    def rate(self) -> float:
        return float(reversal_rate(self.before.value, self.after.value))

    @property
    def ranks(self) -> tuple[Ints, Ints]:
        """Competition ranks before and after, 1 the best; ties share one."""
        return ranks(self.before.value), ranks(self.after.value)


class PairCounts(NamedTuple):
    """How many of the pairs of models are what."""

    pairs: int
    reversed: int
    tied: int  # before, after or both
    settled: int | None  # the order is sure on both sides; None where there is no sigma
    settled_reversed: list[tuple[int, int]]  # those that reverse, by position


def reversals(
    before: Any, after: Any, cfg: ReversalConfig, greedy: tuple[Any, Any] | None = None
) -> list[Reversals]:
    """All protocols that the trials allow, greedy first.

    `before` and `after` are outcomes of the same L models, 1 correct and 0 not, masked where owed,
    of shape (L, M, N), and `greedy` those of greedy decoding, where it was run. With equal trials
    everywhere labels say how many, avg@16; else avg@N. Metrics that need more than the fewest
    trials are left out.

    Source: MaP (Wang et al., 2025), section 3.1; posteriors of arXiv 2510.04265.
    """
    had = [np.ma.count(side, axis=2) for side in (before, after)]
    fewest, most = min(int(n.min()) for n in had), max(int(n.max()) for n in had)
    size, trials = (fewest, float(most)) if fewest == most else ("N", float(had[0].mean()))

    @functools.cache
    def posterior(k: int) -> Reversal:
        return reversal_rate_ci(before, after, k, cfg.draws, cfg.seed, cfg.confidence)

    rates: list[Reversals] = []
    enough = [metric for metric in protocols.metrics(cfg.metrics) if metric.k <= fewest]
    for metric in [*[GREEDY] * (greedy is not None), *enough]:
        sides = greedy if greedy and metric is GREEDY else (before, after)
        first, second = (metric.summary(side, cfg.confidence) for side in sides)
        average = metric.name in (AVG, BAYES)  # whose posterior is that of Pass@1
        takes = trials if average else metric.k
        has_posterior = average or metric.name.startswith(PASS)
        drawn = posterior(1 if average else metric.k) if has_posterior else None
        rates.append(Reversals(metric.name, metric.title(size), takes, first, second, drawn))
    return rates


def pair_counts(protocol: Reversals, confidence: float) -> PairCounts:
    """Pairs that reverse, that are tied, and whose order is settled on both sides.

    Settled: the interval of the difference of the two scores, at this confidence, leaves out 0. It
    takes trials as independent.
    """
    upper = np.triu_indices(len(protocol.before.value), 1)
    before, after = (np.sign(places[upper[1]] - places[upper[0]]) for places in protocol.ranks)
    counts = len(before), int((before * after < 0).sum()), int((before * after == 0).sum())
    if protocol.before.sigma is None:
        return PairCounts(*counts, None, [])
    first, second = (
        _settled(side, confidence)[upper] for side in (protocol.before, protocol.after)
    )
    turned = np.flatnonzero(first * second < 0)
    places = [(int(upper[0][i]), int(upper[1][i])) for i in turned]
    return PairCounts(*counts, int((first * second != 0).sum()), places)


def _settled(scores: Summary, confidence: float) -> Ints:
    """1 where the row's model is surely ahead of the column's, -1 where behind: (L, L)."""
    value, sigma = scores.value, scores.sigma
    compared = scoring.compare_scores(value[:, None], sigma[:, None], value, sigma, confidence)
    return np.asarray((compared.lo > 0).astype(np.int64) - (compared.hi < 0))
