"""The reversal rate of each protocol: greedy, avg@N, Bayes@N and Pass@k."""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.config.prr import ReversalConfig
from scoring.metrics.passk_variance import pass_at_k_sigma
from scoring.ranking.ranks import ranks
from scoring.ranking.reversal import reversal_rate, reversal_rate_ci

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
CHANCE = 0.5  # two orders that know nothing of each other


class Scores(NamedTuple):
    """The scores of L models by one protocol."""

    mu: Floats
    # avg and Bayes: of the posterior; Pass@k: over repetitions of the trials, as of the unbiased
    # estimator, which jumps where k is near N; None: greedy decoding, which has no trials to vary.
    sigma: Floats | None


class Protocol(NamedTuple):
    """One protocol's scores before and after, and how often they reverse."""

    label: str
    k: int | None  # of Pass@k
    trials: float  # of a question that one model's evaluation before takes, a mean where ragged
    before: Scores
    after: Scores
    rate: float
    mean: float | None = None  # of the posterior, as are the next
    low: float | None = None
    high: float | None = None

    @property
    def ranks(self) -> tuple[Ints, Ints]:
        """Competition ranks before and after, 1 the best; ties share one."""
        return ranks(self.before.mu), ranks(self.after.mu)


class PairCounts(NamedTuple):
    """How many of the pairs of models are what."""

    pairs: int
    reversed: int
    tied: int  # before, after or both
    settled: int | None  # the order is sure on both sides; None where there is no sigma
    settled_reversed: list[tuple[int, int]]  # those that reverse, by position


def protocols(
    before: Any, after: Any, cfg: ReversalConfig, greedy: tuple[Any, Any] | None = None
) -> list[Protocol]:
    """All protocols that the trials allow, greedy first.

    Args:
        before: outcomes of L models, 1 correct and 0 not, masked where owed; shape (L, M, N).
            With equal trials everywhere labels say how many, avg@16; else avg@N.
        after: of the same models in the same order.
        cfg: which k, and how the posterior is drawn. A k above the fewest trials is left out.
        greedy: the same of greedy decoding, where it was run.

    Source: MaP (Wang et al., 2025), section 3.1; posteriors of arXiv 2510.04265.
    """
    sides = before, after
    had = [np.ma.count(side, axis=2) for side in sides]
    fewest, most = min(int(n.min()) for n in had), max(int(n.max()) for n in had)
    size, mean = (str(most), float(most)) if fewest == most else ("N", float(had[0].mean()))
    found = []
    if greedy is not None:
        one, other = (Scores(np.asarray(scoring.avg(side)[0]), None) for side in greedy)
        found.append(Protocol("greedy", None, 1, one, other, reversal_rate(one.mu, other.mu)))
    drawn = {
        k: reversal_rate_ci(before, after, k, cfg.draws, cfg.seed, cfg.confidence)
        for k in {1, *cfg.pass_k}
        if k <= fewest
    }

    def add(label: str, k: int | None, trials: float, scores: Any) -> None:
        one, other = (Scores(*scores(side)) for side in sides)
        rate, of = reversal_rate(one.mu, other.mu), drawn[k or 1]
        found.append(Protocol(label, k, trials, one, other, rate, of.mean, of.lo, of.hi))

    # Of avg@N, Bayes@N and Pass@1 the posterior is one.
    add(f"avg@{size}", None, mean, scoring.avg)
    add(f"Bayes@{size}", None, mean, scoring.bayes)
    for k in cfg.pass_k:
        if k <= fewest:
            add(f"Pass@{k}", k, k, functools.partial(_pass_at, k))
    return found


def _pass_at(k: int, side: Any) -> tuple[Floats, Floats]:
    """The unbiased Pass@k, and how much it varies over repetitions of the trials."""
    return scoring.pass_at_k(side, k), pass_at_k_sigma(side, k)


def pair_counts(one: Protocol, confidence: float) -> PairCounts:
    """Pairs that reverse, that are tied, and whose order is settled on both sides.

    Settled: the interval of the difference of the two scores, at this confidence, leaves out 0. It
    takes trials as independent.
    """
    upper = np.triu_indices(len(one.before.mu), 1)
    before, after = (np.sign(places[upper[1]] - places[upper[0]]) for places in one.ranks)
    counts = len(before), int((before * after < 0).sum()), int((before * after == 0).sum())
    if one.before.sigma is None or one.after.sigma is None:
        return PairCounts(*counts, None, [])
    first, second = (
        _settled(side.mu, side.sigma, confidence)[upper] for side in (one.before, one.after)
    )
    turned = np.flatnonzero(first * second < 0)
    places = [(int(upper[0][i]), int(upper[1][i])) for i in turned]
    return PairCounts(*counts, int((first * second != 0).sum()), places)


def _settled(mu: Floats, sigma: Any, confidence: float) -> Ints:
    """1 where the row's model is surely ahead of the column's, -1 where behind: (L, L)."""
    found = scoring.compare_scores(mu[:, None], sigma[:, None], mu, sigma, confidence)
    return np.asarray((found.lo > 0).astype(np.int64) - (found.hi < 0))
