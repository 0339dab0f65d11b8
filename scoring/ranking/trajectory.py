"""How steadily scores follow training: Kendall's tau of checkpoints, its bootstrap, and reversals.

A trajectory is the scores of n checkpoints in the order of training. All of it is about order
only. Scores that are equal but for rounding are a tie, as for :func:`scoring.ranks`, so that the
average, Bayes@N and Pass@1 of the same trials, the same number for every question, have exactly
the same tau. Reversals (MaP's PRR) are of the order of L models before and after, as of pre-trained
models and of the same after fine-tuning.

Source: MaP (Wang et al., "A Unified Framework for Reliable Evaluation of Pre-training Dynamics",
2025), section 3.1, for tau and PRR; arXiv 2510.04265, section 2.7, for tau_b, equation 9 with C = 1
and section 2.5 for the posteriors of PRR; the bootstrap is in neither.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.passk import pass_at_k
from bayes_at_n.scoring.numerics.credit import enough_binary
from bayes_at_n.scoring.numerics.inputs import (
    Counts,
    Floats,
    Ints,
    Outcomes,
    check_confidence,
    check_k,
    check_models,
    check_trials,
    check_whole,
    outcome_counts,
    stream,
    with_masks,
)
from bayes_at_n.scoring.numerics.results import result
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b, ranks

Score = Callable[[Outcomes], Any]
"""Reduces outcomes or counts (..., M, 2) to scores (...), as ``lambda R: pass_at_k(R, 16)``."""

# Counts that are held at once; a score needs a few arrays of that size.
MOST_DRAWS = 2**18


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


def resample(
    R: Outcomes, trials: int | None = None, replicates: int = 2000, seed: int = 0
) -> Iterator[Ints]:
    """Draw the trials again with replacement, a part of the replicates at a time.

    Of outcomes (..., M, N) without a missing one, whole columns are drawn: a replicate is n =
    ``trials`` or N columns, the same for every question and on all leading axes. For the field's
    protocol gives trial i of every question, by every checkpoint, the same seed, and outcomes of
    one trial index then go together (``docs/checkpoints.md``). The columns depend on the seed, N, n
    and the replicate's place alone, so that two stacks with the same of these are drawn jointly.
    Of :class:`scoring.Counts`, or where a trial is missing, every question is drawn by itself:
    of question a with c_a of N_a correct, Binomial(n or N_a, c_a / N_a).

    R is what :func:`scoring.pass_at_k` takes, with a trial of each question, and ``trials`` those
    of every question in a replicate, ``None`` for as many as it has. Raises ValueError: at once,
    outcomes or numbers that cannot be. Counts are int64, shape (part, ..., M, 2); the parts add up
    to ``replicates``. Source: Efron, "Bootstrap methods: another look at the jackknife", Ann.
    Statist. 7 (1979).

    >>> for part in resample([[0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], replicates=2):
    ...     part.tolist()
    [[[1, 3], [3, 1], [0, 4]], [[2, 2], [2, 2], [0, 4]]]
    """
    observed: Ints = outcome_counts(R, 2, remedy="the bootstrap takes 1 (correct) and 0 (not)")
    check_trials(observed.sum(axis=-1), 1, "the bootstrap")
    if trials is not None:
        check_whole(trials, "trials", least=1)
    check_whole(replicates, "replicates", least=1)
    rng = np.random.default_rng(check_whole(seed, "seed", least=0))
    step = max(1, MOST_DRAWS // observed[..., 0].size)
    sizes = (min(step, replicates - start) for start in range(0, replicates, step))
    had = observed.sum(axis=-1)
    n, p = had if trials is None else np.full_like(had, trials), observed[..., 1] / had
    data = None if isinstance(R, Counts) else with_masks(R)
    if data is not None and not np.any(data.mask):
        most = int(n.flat[0])
        # 4 bytes hold whole numbers up to 2^24.
        kind = np.float32 if most <= 2**24 else np.float64
        solved = np.asarray(data.data, dtype=kind).reshape(*had.shape, -1)
        return (_drawn_columns(rng, most, solved, size) for size in sizes)
    right = (rng.binomial(n, p, (size, *p.shape)) for size in sizes)
    return (np.stack([n - of, of], axis=-1) for of in right)


def resampled_scores(
    R: Outcomes,
    scores: Mapping[str, Score],
    trials: int | None = None,
    replicates: int = 2000,
    seed: int = 0,
) -> dict[str, Floats]:
    """Score the checkpoints in every replicate of :func:`resample`, the same for all scores.

    Replicates are paired: ``monotone_tau(drawn["a"]) - monotone_tau(drawn["b"])`` are draws of
    the difference of two scores' taus. They hold the noise of the trials twice, once from the
    trials at hand, so that their mean tau is mostly below tau itself; with ``trials`` below N it is
    about what tau fewer trials would have shown. Beware of Pass@k with k near N: ties are
    discordant, so that its tau is far below that of the true scores; replicates tie less.

    R, as for :func:`scoring.pass_at_k`, is of the n checkpoints of one training in their order, n
    at least 2: shape (n, M, N), or counts, with at least one trial of each question. ``scores``, by
    label, reduce counts (..., M, 2) to scores (...), as ``lambda R: pass_at_k(R, 16)``. All else,
    and what raises a ValueError, is as in :func:`resample`. Shapes: (replicates, n).

    >>> from bayes_at_n.scoring import pass_at_k
    >>> drawn = resampled_scores([[[0, 1]], [[1, 1]]], {"Pass@2": lambda R: pass_at_k(R, 2)})
    >>> drawn["Pass@2"].shape, drawn["Pass@2"].mean(axis=0).round(2).tolist()
    ((2000, 2), [0.74, 1.0])
    """
    drawn: dict[str, list[Floats]] = {label: [] for label in scores}
    for part in resample(R, trials, replicates, seed):
        for label, score in scores.items():
            drawn[label].append(np.asarray(score(Counts(part)), dtype=np.float64))
    return {label: np.concatenate(parts) for label, parts in drawn.items()}


def _drawn_columns(rng: np.random.Generator, n: int, solved: Any, size: int) -> Ints:
    """Counts (size, ..., M, 2) of n columns each, from whether a trial was correct (..., M, N)."""
    columns = solved.shape[-1]
    weights = rng.multinomial(n, np.full(columns, 1 / columns), size).astype(solved.dtype)
    counts: Ints = np.empty((size, *solved.shape[:-1], 2), dtype=np.int64)
    counts[..., 1] = (weights @ solved.reshape(-1, columns).T).reshape(counts.shape[:-1])
    counts[..., 0] = n - counts[..., 1]
    return counts


# Draws of success rates held at once: 16 MB an array.
MOST_RATES = 2**21


class Reversal(NamedTuple):
    """The pairwise reversal rate, of the scores as they are and of what they leave open."""

    rate: float  # of the point scores
    mean: float  # posterior mean, and the ends of the credible interval
    lo: float
    hi: float


def reversal_rate(before: npt.ArrayLike, after: npt.ArrayLike) -> Any:
    """Count the share of pairs of models whose order reverses from before to after.

    Of the L (L - 1) / 2 pairs, those with (R(i) - R(j)) (R'(i) - R'(j)) < 0, where R and R' are
    the ranks before and after. A pair that is tied in either is not reversed. Scores that know
    nothing of each other reach 1/2 on average.

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
    step = max(1, MOST_RATES // max(side[..., 0].size for side in counts))
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
