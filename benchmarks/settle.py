"""Sampling until something is settled: errors, power, tokens and estimates, by simulation.

    python -m benchmarks.settle                    all parts, 10^4 runs: half an hour on one core
    python -m benchmarks.settle --runs 500         the same tables within two minutes
    python -m benchmarks.settle equal pairs        these parts only

    equal    models that are equally good, looked at after every round: how often they err
    pairs    two models 8 and 4 points apart, thirty questions
    habit    what many do: the posterior probability looked at after every round
    bias     estimates after stopping
    luck     equal models whose attempts of a trial share luck: told apart, and called settled
    methods  other ways to find the best, on the same attempts at equal error; see stopping.py

Questions are alike (all chances of a model are equal), mixed (spread as Beta(1, 1) would) or as in
contests, where most are nearly always or nearly never solved: the mean of p (1 - p) is .24, .17 and
.09 to .13. The accuracies of the twenty models are a RECONSTRUCTION: the paper prints their order,
not their accuracies.
"""

from __future__ import annotations

import functools
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from bayes_at_n import scoring
from bayes_at_n.pipeline.adaptive.race import Outcomes, basis
from bayes_at_n.scoring.sequential import Simulated, Target, simulate
from bayes_at_n.scoring.sequential.batch import Batch
from bayes_at_n.scoring.sequential.race import _run
from benchmarks import common, stopping

QUESTIONS, TRIALS, SEED = 30, 80, 20261122
# Standard deviations, in logits, of what all models share of a question and what each has alone.
SPREADS = {"alike": (0.0, 0.0), "mixed": (1.2, 0.8), "contest": (3.0, 1.5)}
ACCURACIES = (
    *(0.82, 0.76, 0.75, 0.72, 0.71, 0.70, 0.64, 0.62, 0.60, 0.57),
    *(0.56, 0.54, 0.52, 0.45, 0.42, 0.41, 0.39, 0.24, 0.21, 0.17),
)
BEST, TOP, ORDER = Target("best"), Target("top", k=3), Target("order")
ABOVE = Target("above", baseline=0)


def truth(accuracies: Any, spread: str, seed: int, questions: int = QUESTIONS) -> Any:
    """Chances (K, M) with exactly these means."""
    rng = np.random.default_rng([SEED, seed])
    shared, alone = SPREADS[spread]
    logits = rng.normal(0, 1, questions) * shared
    rows = []
    for accuracy in accuracies:
        row = logits + rng.normal(0, 1, questions) * alone
        shift = brentq(lambda c, row=row, goal=accuracy: expit(row + c).mean() - goal, -40, 40)
        rows.append(expit(row + shift))
    return np.array(rows)


def simulated(task: tuple[Any, Target, dict[str, Any]]) -> Simulated:
    """One cell, in a process of its own."""
    p, target, options = task
    return simulate(p, target, **options)


def equal(each: Any, runs: int) -> dict[str, Any]:
    """How often anything is claimed of models that are equally good."""
    cells = []
    for target in (BEST, TOP, ORDER, ABOVE):
        for models in (2, 5, 20):
            if target.kind == "top" and models == 2:
                continue
            spreads = ("contest",) if models == 20 else ("alike", "contest")
            cells += [(target, models, spread) for spread in spreads]
    tasks = []
    for i, (target, models, spread) in enumerate(cells):
        # Twenty models are dear to simulate.
        options = {"runs": runs // 5 if models == 20 else runs, "seed": SEED + i}
        tasks.append((truth((0.6,) * models, spread, models), target, options))
    rows = []
    for (target, models, spread), found in zip(cells, each(simulated, tasks), strict=True):
        name = f"{target.kind}{':3' if target.kind == 'top' else ''} of {models}"
        rows.append([name, spread, 100 * found.wrong, _met(found.wrong <= 0.05)])
    common.table(
        f"Equal models, {TRIALS} rounds, a look after each: wrong claims, % (target at most"
        " 5; a fifth of the runs for twenty models)",
        ["target", "questions", "wrong %", ""],
        rows,
    )
    return {"equal": rows}


def pairs(each: Any, runs: int) -> dict[str, Any]:
    """Two models at two gaps, and the fewest rounds that any such test could need."""
    cells = [(spread, gap) for spread in SPREADS for gap in (0.08, 0.04)]
    sets = range(5)
    tasks = [
        (truth((0.6, 0.6 - gap), s, n), BEST, {"runs": runs // 5, "seed": SEED})
        for s, gap in cells
        for n in sets
    ]
    found = list(each(simulated, tasks))
    rows = []
    for i, (spread, gap) in enumerate(cells):
        part = found[5 * i : 5 * i + 5]
        right, rounds = (float(np.mean([getattr(f, n) for f in part])) for n in ("right", "rounds"))
        least, spent = (0.99, 17.0) if gap == 0.08 else (0.85, float(TRIALS))
        p = np.array([task[0] for task in tasks[5 * i : 5 * i + 5]])
        noise = (p * (1 - p)).sum(axis=(1, 2)).mean()
        limit = 2 * np.log(40) * noise / (QUESTIONS * gap) ** 2
        wrong = 100 * float(np.mean([f.wrong for f in part]))
        cells_ = [spread, noise / 60, gap, 100 * right, wrong, rounds, limit]
        rows.append([*map(_short, cells_), _met(right >= least and rounds <= spent)])
    common.table(
        "Two models, 30 questions; targets: gap .08 right in 99 % within 17 rounds on average, gap"
        " .04 in 85 % by round 80; 'limit' is log(40) over the"
        " information of one round: who knows all chances needs no fewer, without an end at 80",
        ["questions", "p(1-p)", "gap", "right %", "wrong %", "rounds", "limit", ""],
        rows,
    )
    return {"pairs": rows}


def habit(each: Any, runs: int) -> dict[str, Any]:
    """Two equal models, and P(A > B) >= .95 or <= .05 by the posterior of Bayes@N."""
    rng, rows = np.random.default_rng(SEED), []
    for spread in SPREADS:
        p = truth((0.6, 0.6), spread, 1)
        solved, ever = np.zeros((runs, *p.shape)), np.zeros(runs, bool)
        for n in range(1, TRIALS + 1):
            solved += rng.random(solved.shape) < p
            mean = (solved + 1) / (n + 2)
            sigma = np.sqrt((mean * (1 - mean) / (n + 3)).sum(axis=(1, 2)))
            now = np.abs(mean[:, 0].sum(-1) - mean[:, 1].sum(-1)) >= ndtri(0.95) * sigma
            ever |= now
        rows.append([spread, *map(_short, (100 * ever.mean(), 100 * now.mean()))])
    common.table(
        "Two equal models, posterior probability >= .95 for one of them: %",
        ["questions", f"at any of {TRIALS} looks", "at the last one only"],
        rows,
    )
    return {"habit": rows}


def bias(each: Any, runs: int) -> dict[str, Any]:
    """Errors of estimates of the better model's mean, in points."""
    p, rows = truth((0.6, 0.52), "contest", 1), []
    cost = np.ones(p.shape)
    every = range(1, TRIALS + 1)
    for name, target in (("80 rounds", ORDER), ("stopped when settled", BEST)):
        # An error of next to nothing never stops.
        error = 1e-300 if target.kind == "order" else 0.05
        errors = []
        for start in range(0, max(runs // 5, 100), 100):
            batch = Batch((100, *p.shape), target, error, 0.01)
            rng = np.random.default_rng([SEED, start])
            _run(batch, p, rng, every, cost)
            pooled = batch.successes.sum(axis=-1) / batch.attempts.sum(axis=-1)
            errors.append(np.stack([batch.mean, pooled])[..., 0] - p[0].mean())
        found = 100 * np.concatenate(errors, axis=-1)
        rows.append(
            [
                name,
                *map(_short, found.mean(axis=-1)),
                _short(found[0].std() / found.shape[1] ** 0.5),
            ]
        )
    common.table(
        "Mean error of the better model's estimate, in points",
        ["", "average of round means", "pooled trials", "standard error"],
        rows,
    )
    return {"bias": rows}


def methods(each: Any, runs: int) -> dict[str, Any]:
    """Other ways to find the best of twenty, on the same attempts, at equal error."""
    made: dict[str, Any] = {}
    for spread in ("contest", "mixed"):
        ahead, tied = (
            stopping.attempts(*_world(accuracies, spread, max(runs // 50, 20)))
            for accuracies in (ACCURACIES, (0.82, 0.82, *ACCURACIES[2:]))
        )
        made[spread] = stopping.compare(ahead, tied)
        _tell_methods(f"Best of twenty, {spread}, {len(ahead.truth)} runs", made[spread])
    return {"methods": made}


def _world(accuracies: Any, spread: str, runs: int) -> tuple[Any, Any]:
    """Outcomes (5 R, K, M, N) of five sets of questions, and true means (5 R, K)."""
    rng = np.random.default_rng(SEED)
    p = np.repeat([truth(accuracies, spread, n) for n in range(5)], runs, axis=0)
    return rng.random((*p.shape, TRIALS)) < p[..., None], p.mean(axis=-1)


def _tell_methods(title: str, rows: Any) -> None:
    names = ["", "attempts %", "wrong %", "undecided %", "wrong % of a tie", "at equal error %"]
    cells = [[row[0], *(_short(c) for c in row[1:])] for row in rows]
    common.table(f"{title}: attempts in % of all", names[: len(rows[0])], cells)


def luck(each: Any, runs: int) -> dict[str, Any]:
    """Two equal models whose attempts of a trial share luck: told apart, and called settled."""
    rows = []
    for spread in ("mixed", "contest"):
        p = truth((0.6, 0.6), spread, 1)
        for shared in (0.0, 0.03, 0.08, 0.22):  # of the variance of what decides an attempt
            tasks = [(p, shared, seed) for seed in range(max(runs // 500, 1))]
            found = np.mean(list(each(unlucky, tasks)), axis=0)
            rows.append([spread, _short(found[0]), *map(_short, 100 * found[1:])])
    common.table(
        f"Two equal models, {TRIALS} looks at most, trials that share luck: told apart, %",
        ["questions", "inflation", "independent=attempts", "called settled", "=trials"],
        rows,
    )
    return {"luck": rows}


def unlucky(task: tuple[Any, float, int], runs: int = 500) -> Any:
    """Mean inflation, and shares told apart by both kinds of bets."""
    p, shared, seed = task
    rng = np.random.default_rng([SEED, seed])
    own, both = (rng.normal(size=(runs, 2, m, TRIALS)) for m in (QUESTIONS, 1))
    noise = shared**0.5 * both + (1 - shared) ** 0.5 * own
    codes = (noise < ndtri(p)[:, :, None]).astype(np.int8)
    told = []
    for by_trial in (False, True):
        batch = Batch((runs, *p.shape), BEST, 0.05, 0.01, by_trial=by_trial)
        for n in range(TRIALS):
            live = np.repeat(batch.open[..., None], QUESTIONS, axis=2).astype(np.int64)
            batch.add(codes[..., n] * live.astype(float), live)
        told.append((batch.best >= 0, batch.rounds[:, 0]))
    (apart, spent), (by_round, _) = told
    sound = []
    for i in np.flatnonzero(apart):
        known = Outcomes(["a", "b"], codes[i, ..., : spent[i]], spent[[i, i]], "independent", [])
        sound.append(basis(known, spent[[i, i]], None).dependent is None)
    value = scoring.inflation(codes[:100]).value.mean()
    return [value, apart.mean(), np.sum(sound) / runs, by_round.mean()]


def _met(yes: bool) -> str:
    return "met" if yes else "NOT met"


def _short(cell: Any) -> Any:
    return cell if isinstance(cell, str) else f"{cell:.2f}"


PARTS = {
    **{"equal": equal, "pairs": pairs, "habit": habit},
    **{"bias": bias, "luck": luck, "methods": methods},
}


def main() -> None:
    """Simulate and report."""
    parser = common.parser(__doc__, runs=10_000, processes=1)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}: {', '.join(PARTS)}")
    began, record = time.perf_counter(), {}
    with ProcessPoolExecutor(args.processes) as pool:
        for name in args.parts or PARTS:
            record |= PARTS[name](functools.partial(pool.map), args.runs)
    seconds = time.perf_counter() - began
    common.out.print(f"{args.runs} runs; {seconds:.0f} s")
    common.finish(args, {**record, "runs": args.runs, "seconds": seconds})


if __name__ == "__main__":
    common.main(main)
