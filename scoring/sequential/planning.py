"""What to expect of a race before it is run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import (
    check_confidence,
    check_positive,
    check_probabilities,
    check_whole,
    number_array,
)
from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.sequential import decisions
from bayes_at_n.scoring.sequential.batch import Batch
from bayes_at_n.scoring.sequential.decisions import Target
from bayes_at_n.scoring.sequential.race import Independent, check_independent

CHUNK = 100  # runs side by side: what fits into a processor's cache


class Simulated(NamedTuple):
    """What :func:`simulate` finds; averages over runs."""

    settled: float  # share of runs that were settled within the trials
    right: float  # of all runs, those whose decision is settled and true
    wrong: float  # of all runs, those with any final claim that is false
    best: Floats  # share of runs that name each model the best (K,)
    placed: Floats  # share of runs that place each model in the best k, of `best` and `top` (K,)
    open: Floats  # share of runs that end with each model open (K,)
    better: Floats  # share of runs that claim row to be better than column (K, K)
    tied: Floats  # share of runs that claim the two to be tied (K, K)
    rounds: Floats  # of each model (K,)
    attempts: Floats  # of each model (K,)
    cost: Floats  # of each model, in units of `cost` (K,); attempts without
    mean: Floats  # of the estimates (K,): averages of round means
    longest: Ints  # rounds of the last model in each run (runs,)
    total: Floats  # of each run, in units of `cost` (runs,)


_COLUMNS = Simulated._fields[:-2]


def simulate(
    p: npt.ArrayLike,
    target: Target,
    *,
    trials: int = 80,
    runs: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
    tie: float = 0.01,
    looks: Sequence[int] | None = None,
    independent: Independent = "attempts",
    cost: npt.ArrayLike | None = None,
    budget: float = np.inf,
    done: Callable[[int], None] | None = None,
) -> Simulated:
    """Race models with known chances p (K, M) of solving each question, many times.

    Of p (runs, K, M) each run has its own. Up to ``trials`` attempts at each question; models
    leave after the rounds of ``looks`` (default: every one). ``cost`` (M,) or (K, M) is that of one
    attempt; a run ends before a look that would make it cost more than ``budget``. ``done`` is told
    when so many more runs are done. Run r of a seed is the same whatever the number of runs. Raises
    ValueError: chances or numbers that cannot be.

    >>> found = simulate([[0.9] * 8, [0.2] * 8], Target("best"), runs=50, seed=1)
    >>> found.settled, found.right, found.best.tolist(), bool(found.rounds.max() < 10)
    (1.0, 1.0, [1.0, 0.0], True)
    """
    chance = check_probabilities(p, "p")
    each = (check_whole(runs, "runs", 1), *chance.shape[-2:])
    if len(each) < 3 or chance.shape not in (each, each[1:]) or each[1] < 2:
        raise ValueError(f"p has shape {chance.shape}: pass (models, questions), of two or more")
    decisions.check_target(target, each[1])
    error = 1 - check_confidence(confidence)
    check_positive(tie, "tie", most=1.0)
    check_whole(trials, "trials", 1)
    price = np.broadcast_to(number_array(1.0 if cost is None else cost, "cost"), each[1:])
    by_trial = check_independent(independent)
    at = range(1, trials) if looks is None else looks
    stops = [*(look for look in at if look < trials), trials]
    parts = []
    for start in range(0, runs, CHUNK):
        batch = Batch((CHUNK, *each[1:]), target, error, tie, by_trial)
        rng = np.random.default_rng([seed, start])
        own = np.broadcast_to(chance, each)[(start + np.arange(CHUNK)) % runs]
        _run(batch, own, rng, stops, price, budget)
        parts.append(_summary(batch, own, price, tie))
        if done:
            done(min(CHUNK, runs - start))
    columns = zip(*parts, strict=True)
    joined = {n: np.concatenate(column)[:runs] for n, column in zip(_COLUMNS, columns, strict=True)}
    means = {name: column.mean(axis=0) for name, column in joined.items()}
    for name in ("settled", "right", "wrong"):
        means[name] = float(means[name])
    longest = joined["rounds"].max(axis=-1).astype(np.int64)
    return Simulated(**means, longest=longest, total=joined["cost"].sum(axis=-1))


def _run(
    batch: Batch,
    chance: Floats,
    rng: np.random.Generator,
    stops: Sequence[int],
    price: Floats,
    budget: float = np.inf,
) -> None:
    """Sample until all runs are settled, or have nothing left until another look."""
    shape = batch.attempts.shape
    spent, going = 0, np.ones(shape[0], bool)
    for stop in stops:
        length, each = stop - spent, batch.open.astype(np.int64)
        coming = batch.attempts + length * each[..., None]
        going &= (coming * price).sum(axis=(-1, -2)) <= budget
        each *= going[:, None]
        if not each.any():
            return
        sampled = np.broadcast_to(each[..., None], shape)
        for _ in range(length):
            drawn = (rng.random(shape) < chance) & (sampled > 0)
            batch.add(drawn.astype(np.float64), sampled)
        spent = stop


def _summary(batch: Batch, chance: Floats, price: Floats, tie: float) -> tuple[Floats, ...]:
    """Columns of :class:`Simulated`, a row for each run."""
    truth = chance.mean(axis=-1)
    gap = truth[:, :, None] - truth[:, None]
    wrong = (batch.tied & (np.abs(gap) >= tie)).any(axis=(-1, -2))
    false = (batch.better & (gap <= 1e-12)).any(axis=(-1, -2))
    if batch.target.kind in ("best", "top"):
        k = batch.target.k if batch.target.kind == "top" else 1
        ordered = np.sort(truth)[:, ::-1, None]
        wrong |= (batch.out & (truth > ordered[:, k] + 1e-12)).any(axis=-1)
        wrong |= (batch.placed & (truth < ordered[:, k - 1] - 1e-12)).any(axis=-1)
        # To name k of models that tie is wrong, too; that some of them left is not.
        false &= batch.placed.sum(axis=-1) == k
    wrong |= false
    best = np.arange(truth.shape[-1]) == batch.best[:, None]
    attempts = batch.attempts.sum(axis=-1)
    spent = (batch.attempts * price).sum(axis=-1)
    right = batch.settled & ~wrong
    claims = (best, batch.placed, batch.open, batch.better, batch.tied)
    columns = (batch.settled, right, wrong, *claims, batch.rounds, attempts, spent, batch.mean)
    return tuple(np.asarray(column, dtype=np.float64) for column in columns)
