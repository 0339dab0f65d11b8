"""What the program prints, as claims that simulation can check in `benchmarks.simulated_worlds`.

A claim takes runs of a world and returns, for each run, whether it was right (or wrong); a chance,
probabilities and what came true. Functions are those that the verbs call.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from bayes_at_n import scoring
from bayes_at_n.scoring.intervals.assumptions import INFLATION_LEVEL
from bayes_at_n.scoring.numerics.inputs import Bools, Floats
from bayes_at_n.scoring.sequential import Target, wealth
from bayes_at_n.scoring.sequential.batch import Batch
from bayes_at_n.scoring.sequential.race import _summary
from benchmarks.coverage import wald_ci
from benchmarks.simulated_worlds import LUCK, Cell, World, draw, inflation

M, N = (5, 10, 30, 120), (1, 2, 4, 8, 16, 80)
GROUPS = ((1, "equal"), *itertools.product((2, 5, 20), ("equal", "tied", "spread")))
RUNS = {1: 120, 2: 80, 5: 30, 20: 10}  # of a cell, by models
AGAIN, WORST = 10, 3
TIE, MARGIN = 0.05, 0.03
BOUNDS = {"interval": 0.92, "wrong": 0.05}  # at least, at most; others have none


class Claim(NamedTuple):
    """Something that is printed, and how often it was right (or wrong) in runs of a world."""

    name: str
    kind: str  # interval, wrong, power, or seen
    of: Callable[[World], Any] | None  # values (B,), 0 to 1, or these and widths; NaN: no claim
    models: tuple[int, ...] = (1,)
    least: int = 1  # trials
    luck: bool = False  # holds where trials share luck, too
    pool: bool = False  # is of other questions


class Chance(NamedTuple):
    """A printed probability: what it is, and whether it came true."""

    name: str
    of: Callable[[World], tuple[Floats, Floats]]  # probabilities, and 0 to 1
    models: tuple[int, ...]
    pool: bool = False
    runs: float = 1.0


class Rate(NamedTuple):
    """A mean over runs with its Monte-Carlo error."""

    value: float
    error: float
    width: float = np.nan


def covers(low: Any, high: Any, truth: Floats) -> tuple[Floats, Floats]:
    """Return how many of a run's intervals hold the truth, and their width: (B,) of (B, ...)."""
    held = (np.asarray(low) <= truth + 1e-12) & (truth - 1e-12 <= np.asarray(high))
    axes = tuple(range(1, held.ndim))
    return held.mean(axis=axes), np.asarray(np.subtract(high, low)).mean(axis=axes)


def score(name: str) -> Callable[[World], Any]:
    """Check the interval of a score of these questions."""
    return lambda w: covers(*getattr(scoring, name)(w.counts)[2:], w.truth)


def wald(w: World) -> Any:
    """Check Wald's interval of these questions."""
    return covers(*wald_ci(w.counts, 0.95)[2:], w.truth)


def unwarned(w: World) -> Floats:
    """Check that the interval holds the score, or a line says that trials share luck."""
    held, _ = covers(*scoring.score_ci(w.counts)[2:], w.truth)
    return np.maximum(held, scoring.inflation(w.outcomes).p[:, 0] < INFLATION_LEVEL)


def pass_at(k: int) -> Callable[[World], Any]:
    """Check the interval of Pass@k that tables of metrics show."""
    from bayes_at_n.scoring.metrics.table import parse

    def of(w: World) -> Any:
        found = parse(f"pass@{k}").summary(w.outcomes.astype(int))
        return covers(found.low, found.high, (1 - (1 - w.chance) ** k).mean(axis=-1))

    return of


def inflated(w: World) -> Any:
    """Check the interval of the inflation of a score."""
    found = scoring.inflation(w.outcomes)
    held, _ = covers(found.low, found.high, inflation(w.chance, w.r))
    return held


def difference(of: str, pool: bool = False) -> Callable[[World], Any]:
    """Check the interval of the difference of two models."""

    def held(w: World) -> Any:
        c, truth = _pair(w, of), w.pool if pool else w.truth
        return covers(c.lo, c.hi, truth[:, 0] - truth[:, 1])

    return held


def _pair(w: World, of: str) -> Any:
    return _compared(w.counts.values, of)


def _compared(counts: Any, of: str) -> Any:
    return getattr(scoring, of)(*(scoring.Counts(counts[:, i]) for i in (0, 1)))


class Raced(NamedTuple):
    """What was false in the looks of a race so far, one after every trial: (B,) each."""

    claimed: Floats  # some claim
    tied: Bools  # some claim that two are less than `TIE` apart
    own: Bools  # the interval of the first model's mean
    apart: Bools  # some interval of a difference


def raced(w: World, target: Target, by_trial: bool) -> dict[int, Raced]:
    """Race the models over all trials of a world; by N of the grid, up to those of ``w``."""
    whole, key = w.whole or w, (target, by_trial)
    assert whole.memory is not None
    if key not in whole.memory:
        shape, truth = whole.outcomes.shape[:-1], whole.truth
        batch = Batch(shape, target, 0.05, TIE, by_trial=by_trial)
        gap = np.where(np.eye(shape[1]), np.inf, truth[:, :, None] - truth[:, None])
        one, price, all_pairs = np.ones(shape, int), np.ones(shape[-1]), batch.needed.differences
        own, apart = np.zeros((2, shape[0]), bool)
        found = whole.memory[key] = {}
        for t in range(1, whole.trials + 1):
            batch.add(whole.outcomes[..., t - 1].astype(int), one)
            if target.kind == "order":
                slopes, need = (batch.weights, batch.own_slopes), float(np.log(2 / 0.05))
                own |= wealth.reached(batch.up, *slopes, truth, need)[:, 0]
                own |= wealth.reached(batch.down, *slopes, -truth, need)[:, 0]
                pairs = batch.pairs, batch.weights, batch.slopes, gap, float(np.log(all_pairs))
                apart |= wealth.reached(*pairs).any(axis=(1, 2))
            if t in N:
                claimed = _summary(batch, whole.chance, price, TIE)[2]
                tied = (batch.tied & (np.abs(gap) >= TIE) & np.isfinite(gap)).any(axis=(1, 2))
                found[t] = Raced(claimed, tied, own.copy(), apart.copy())
    return {t: seen for t, seen in whole.memory[key].items() if t <= w.trials}


def race(target: Target, by_trial: bool = False, sound: bool = False) -> Callable[[World], Any]:
    """Check whether a race has claimed anything false so far.

    ``by_trial`` is `settle independent=trials`; ``sound`` counts what is called settled, not ahead.
    """

    def of(w: World) -> Floats:
        looks = raced(w, target, by_trial)
        false = np.array([seen.claimed for seen in looks.values()])
        for look, run in np.argwhere(false) if sound else ():
            codes = w.outcomes[run, ..., : [*looks][look]].astype(np.int8)
            false[look, run] = not scoring.shared_luck(codes).sure
        return np.asarray(false.max(axis=0))

    return of


def sequence(of: str, by_trial: bool = False) -> Callable[[World], Any]:
    """Check intervals of a race in all looks so far."""
    return lambda w: 1.0 - getattr([*raced(w, Target("order"), by_trial).values()][-1], of)


def sure(of: str, pool: bool = False) -> Callable[[World], Floats]:
    """Find who has P ≥ 0.95 of being better and is not; of equal ones the mean of both sides."""

    def wrong(w: World) -> Floats:
        P, truth = np.asarray(_pair(w, of).probability), w.pool if pool else w.truth
        gap = truth[:, 0] - truth[:, 1]
        first, second = (P >= 0.95) & (gap < 1e-12), (P <= 0.05) & (gap > -1e-12)
        return (first + 1.0 * second) / np.where(np.abs(gap) < 1e-12, 2, 1)

    return wrong


def equivalent(w: World) -> Floats:
    """Find models that are a margin apart and called equivalent, or equal and called different."""
    found = scoring.equivalence(w.outcomes[:, 0], w.outcomes[:, 1], margin=MARGIN)
    gap, said = np.abs(w.truth[:, 0] - w.truth[:, 1]), np.asarray(found.conclusion)
    same, other = (said == "equivalent") & (gap >= MARGIN), (said == "different") & (gap < 1e-12)
    return 1.0 * (same | other)


def planned(seen: bool) -> Callable[[World], Floats]:
    """Check whether new runs of as many trials as are named tell the right model apart.

    ``seen``: trials are those that a pilot names; else those named for the true chances.
    """

    def told(w: World) -> Floats:
        true = np.rint(1e9 * np.stack([1 - w.chance, w.chance], axis=-1))
        plan, sign = np.asarray(_plan(w.counts.values if seen else true).trials), _sign(w)
        known = (plan < 10**6) & (sign != 0)
        trials = np.where(known, plan, 1).astype(int)[:, None, None]
        right = np.random.default_rng(w.trials).binomial(trials, w.chance)
        c = _compared(np.stack([trials - right, right], axis=-1), "compare")
        return np.where(known, (c.difference * sign > 0) & (c.z >= 1.645), np.nan)

    return told


def plan_range(w: World) -> Floats:
    """Check whether the range of trials to settle holds what the true chances need."""
    plan = _plan(w.counts.values)
    needed = _plan(np.rint(1e9 * np.stack([1 - w.chance, w.chance], axis=-1))).trials
    held = (np.asarray(plan.fewest) <= needed) & (needed <= plan.most)
    return np.where(_sign(w) == 0, np.nan, held)


def _plan(counts: Any) -> Any:
    return _compared(counts, "trials_to_separate")


def _sign(w: World) -> Floats:
    return np.sign(w.truth[:, 0] - w.truth[:, 1]) * (w.cell.spread == "spread")


def better(of: str, pool: bool = False) -> Callable[[World], tuple[Floats, Floats]]:
    """Return P of the model ahead, and whether it is better: of equal ones in half of the runs."""

    def found(w: World) -> tuple[Floats, Floats]:
        P, truth = np.asarray(_pair(w, of).probability), w.pool if pool else w.truth
        gap = (truth[:, 0] - truth[:, 1]) * np.where(P >= 0.5, 1, -1)
        return np.maximum(P, 1 - P), np.where(np.abs(gap) < 1e-12, 0.5, gap > 0)

    return found


def together(of: str) -> Callable[[World], Floats]:
    """Check whether what is said of all models at once is false; nothing breaks a tie."""

    def wrong(w: World) -> Floats:
        value, sigma = scoring.avg(w.counts)
        gap = w.truth[:, :, None] - w.truth[:, None]  # of row above column
        same, models = np.abs(gap) < 1e-12, w.cell.models
        first = ~((gap < 0) & ~same).any(axis=2)
        if of == "ranks":
            low, high = scoring.rank_ranges(value, sigma)
            above, below = ((-gap > 0) & ~same).sum(axis=2), ((gap > 0) & ~same).sum(axis=2)
            return 1.0 * ((low > 1 + above) | (high < models - below)).any(axis=1)
        if of == "best":
            stay = scoring.best_candidates(value, sigma)
            alone = (first.sum(axis=1) > 1) & (stay.sum(axis=1) == 1)
            return 1.0 * (alone | ~(first & stay).any(axis=1))
        i, j = np.triu_indices(models, 1)
        z, q = scoring.pairwise_z(value, sigma)[:, i, j], np.ones((len(gap), i.size))
        for run, p in enumerate(2 * ndtr(-np.abs(z))):
            q[run] = scoring.q_values(p)
        false = (q <= 0.05) & (same[:, i, j] | (np.sign(z) != np.sign(gap[:, i, j])))
        return np.asarray(false.sum(axis=1) / np.maximum((q <= 0.05).sum(axis=1), 1))

    return wrong


def best(w: World) -> tuple[Floats, Floats]:
    """Return P(best) of every model; of tied ones each is the best with an equal chance."""
    value, sigma = scoring.avg(w.counts)
    P = np.array([scoring.probability_best(*each) for each in zip(value, sigma, strict=True)])
    first = w.truth > w.truth.max(axis=1, keepdims=True) - 1e-12
    return P, first / first.sum(axis=1, keepdims=True)


CLAIMS = (
    Claim("score: the interval of the headline", "interval", score("score_ci")),
    Claim("avg with the paper's interval", "interval", score("avg_ci")),
    Claim("uniform prior, the paper's Bayes@N: not claimed", "seen", score("bayes_ci")),
    Claim("Wald: not claimed", "seen", wald, least=2),
    Claim("Wilson: not claimed", "seen", score("wilson_ci")),
    Claim("pass@2", "interval", pass_at(2), least=2),
    Claim("pass@8", "interval", pass_at(8), least=8),
    Claim("score where trials share luck, from 80 trials on: holds, or is warned of", "interval",
          unwarned, least=80, luck=True),
    Claim("score where trials share luck, fewer trials: not claimed", "seen", unwarned, luck=True),
    Claim("inflation of a score", "interval", inflated, least=2, luck=True),
    Claim("settle until=width, all looks together", "interval", sequence("own")),
    Claim("settle until=width independent=trials", "interval", sequence("own", by_trial=True),
          luck=True),
    Claim("score on other questions", "interval", lambda w: covers(
        *scoring.pool_ci(w.counts)[2:], w.pool), pool=True),
    Claim("difference of two, these questions", "interval", difference("compare"), (2,)),
    Claim("difference of two, other questions", "interval",
          difference("paired_questions", True), (2,), pool=True),
    Claim("P(better) ≥ 0.95, these questions: of one that is not", "wrong", sure("compare"), (2,)),
    Claim("P(better) ≥ 0.95, other questions: of one that is not", "wrong",
          sure("paired_questions", True), (2,), pool=True),
    Claim("equivalent, different: neither is", "wrong", equivalent, (2,), least=2, luck=True),
    Claim("trials to settle, named for the true difference: new runs tell apart", "power",
          planned(seen=False), (2,)),
    Claim("trials to settle, named by a run: new runs tell apart, not claimed", "seen",
          planned(seen=True), (2,)),
    Claim("trials to settle: the range", "interval", plan_range, (2,)),
    Claim("ranks from, to, of all models at once", "wrong", together("ranks"), (2, 5, 20)),
    Claim("cannot be told apart from the best: it is not there, or alone though tied", "wrong",
          together("best"), (2, 5, 20)),
    Claim("pairs of q ≤ 0.05: share that is false", "wrong", together("pairs"), (5, 20)),
    Claim("gate, differences in `settle`: all looks and pairs together", "interval",
          sequence("apart"), (2, 5)),
    Claim("settled, order (`compare`, `settle`): a false claim, all looks together", "wrong",
          race(Target("order")), (2, 5, 20)),
    Claim("settled, best: a false name", "wrong", race(Target("best")), (5, 20)),
    Claim("settled, top:3", "wrong", race(Target("top", k=3)), (5,)),
    Claim("settled, above", "wrong", race(Target("above", baseline=0)), (5,)),
    Claim("settled, tied: at most 5 points apart, all looks together", "wrong",
          lambda w: 1.0 - sequence("tied")(w), (2, 5)),
    Claim("settled, order, where trials share luck: and not called ahead", "wrong",
          race(Target("order"), sound=True), (2, 5), luck=True),
    Claim("settled, order, independent=trials", "wrong",
          race(Target("order"), by_trial=True), (2, 5), luck=True),
)  # fmt: skip
CHANCES = (
    Chance("P(better), these questions", better("compare"), (2,)),
    Chance("P(better), other questions", better("paired_questions", True), (2,), pool=True),
    Chance("P(best), pooled", best, (2, 5, 20), runs=0.5),
)


class Found(NamedTuple):
    """All that was simulated."""

    rates: dict[tuple[str, Any, int], Rate]  # of claims, cells and N, first pass; N = 0: a name
    again: dict[tuple[str, Any, int], Rate]  # worst cells, fresh
    chances: dict[tuple[str, str], list[Any]]  # by name and spread: probabilities, came true


def cells(questions: Sequence[str], sizes: Sequence[int], groups: Sequence[Any]) -> list[Cell]:
    """Make the grid but for N; two models tied at the top are two equal ones."""
    grid = itertools.product(questions, sizes, LUCK, groups)
    return [
        Cell(kind, size, luck, *group, pool)
        for (kind, size, luck, group), pool in itertools.product(grid, (False, True))
        if group != (2, "tied")
        and not (pool and (luck > 1 or group[0] == 20))
        and not (kind == "one open" and (pool or luck > 1))
    ]


def simulate(
    seed: int, grid: Iterable[Cell], claims: Sequence[Claim], chances: Sequence[Chance],
    trials: Sequence[int] = N, share: float = 1.0,
) -> Found:  # fmt: skip
    """Run all cells of the grid, then the worst of each claim again."""
    found = Found({}, {}, {})
    for number, cell in enumerate(grid):
        mine = [c for c in claims if _concerns(c, cell)]
        odds = [c for c in chances if _concerns(c, cell)]
        if not mine and not odds:
            continue
        rng = np.random.default_rng([seed, 0, number])
        runs = share * RUNS[cell.models] / (1 if cell.luck == 1 else 2)
        world = draw(cell, max(4, int(runs)), max(trials), rng)
        for n in trials:
            part = world.first(n)
            for claim in mine:
                if n >= claim.least:
                    found.rates[claim.name, cell, n] = rate(claim, part)
            for chance in odds:
                pairs = [np.ravel(x) for x in chance.of(_thinned(part, chance.runs))]
                found.chances.setdefault((chance.name, cell.spread), []).append(pairs)
    for claim in claims:
        for cell, n in worst(claim, found.rates) if claim.kind in BOUNDS else ():
            rng = np.random.default_rng([seed, 1, zlib.crc32(claim.name.encode()), n])
            world = draw(cell, max(4, int(share * AGAIN * RUNS[cell.models])), n, rng)
            found.again[claim.name, cell, n] = rate(claim, world)
    return found


def _concerns(of: Any, cell: Cell) -> bool:
    wanted = cell.luck == 1 or getattr(of, "luck", False)
    return cell.models in of.models and cell.pool == of.pool and wanted


def rate(claim: Claim, world: World) -> Rate:
    """Return the mean of a claim over runs of a world."""
    assert claim.of is not None
    values = claim.of(world)
    return summary(*(values if isinstance(values, tuple) else (values, np.array([np.nan]))))


def summary(values: Floats, widths: Floats) -> Rate:
    """Average over runs that made a claim; the error is as if one more run went each way."""
    made = values[~np.isnan(values)]
    if not made.size:
        return Rate(np.nan, np.nan)
    error = np.append(made, [0, 1]).std() / np.sqrt(made.size)
    return Rate(float(made.mean()), float(error), float(widths.mean()))


def _thinned(world: World, share: float) -> World:
    if share == 1:
        return world
    few = slice(0, max(4, int(share * len(world.outcomes))))
    parts = (world.chance[few], world.pool[few], world.outcomes[few], world.r)
    return World(world.cell, *parts, memory={})


def worst(claim: Claim, rates: dict[Any, Rate]) -> list[tuple[Cell, int]]:
    """Find cells and N at which a claim did worst."""
    sign = 1 if claim.kind == "interval" else -1
    own = [(sign * r.value, key[1:]) for key, r in rates.items() if key[0] == claim.name]
    return [key for value, key in sorted(own) if not np.isnan(value)][:WORST]
