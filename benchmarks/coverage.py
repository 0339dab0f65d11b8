"""Which intervals hold what they say, over M, N and the true success probabilities.

    python -m benchmarks.coverage                    every method, about two minutes on one core
    python -m benchmarks.coverage --quick            fewer replicates and only M = 30
    python -m benchmarks.coverage --json study.json  every figure with its Monte-Carlo error

Nominal coverage is 95 %. Each cell simulates outcomes with known probabilities: all questions
alike ("all .97"), or questions drawn anew in every replicate from a Beta distribution: U-shaped
(.3, .3), mostly easy (8, 2), uniform (1, 1). The target is the mean probability of these very
questions; "clustered" and "bootstrap questions" aim at the mean of the pool that questions are
drawn from, and are judged by it. Two more truths have one question unlike the others. A cell is
coverage in % and mean width; * marks a coverage below 90 %, and - what cannot be computed (Wald's
interval needs two trials) or has no pool. At the end numbers of trials differ between questions,
at random, or because of how hard they are.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.intervals.uncertainty import wilson_ci
from bayes_at_n.scoring.metrics.bayes import avg_ci, bayes_ci, question_stderr
from bayes_at_n.scoring.metrics.empirical import empirical_bayes_ci, score_ci
from bayes_at_n.scoring.numerics.inputs import Counts, Floats, Ints
from bayes_at_n.scoring.numerics.results import normal_summary
from benchmarks import common

# Replicates that are simulated and scored at once, for memory.
CHUNK = 500

Truth: TypeAlias = float | tuple[float, float]


def bootstrap_ci(R: Counts, confidence: float, questions: bool = False) -> tuple[Any, ...]:
    """Average with the percentile interval of 500 bootstraps, of trials or of questions.

    Source: Efron, "Bootstrap methods", Ann. Statist. 7 (1979).
    """
    rng, share = np.random.default_rng(0), R.values[..., 1] / R.values.sum(axis=-1)
    ends = np.empty((2, len(share)))
    for i, (p, n) in enumerate(zip(share, R.values.sum(axis=-1), strict=True)):
        drawn = p[rng.integers(0, p.size, (500, p.size))]
        averages = (drawn if questions else rng.binomial(n, p, (500, p.size)) / n).mean(axis=1)
        ends[:, i] = np.quantile(averages, [(1 - confidence) / 2, (1 + confidence) / 2])
    return (share.mean(axis=-1), *ends)


def wald_ci(R: Counts, confidence: float) -> Any:
    """Average -/+ z standard errors over trials of these questions (central limit theorem)."""
    trials = R.values.sum(axis=-1)
    share = R.values[..., 1] / trials
    variance = (share * (1 - share) / (trials - 1)).sum(axis=-1)
    return normal_summary(share.mean(axis=-1), np.sqrt(variance) / share.shape[-1], confidence)


def clustered_ci(R: Counts, confidence: float) -> Any:
    """Average -/+ z standard errors over questions, as evaluation harnesses print."""
    return normal_summary(avg_ci(R).value, question_stderr(R), confidence)


# Name: function, and what it is called with besides counts and confidence. The estimate is the
# first of what a function returns, the interval the last two.
METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "bayes": (bayes_ci, {"bounds": (0.0, 1.0)}),
    "empirical_bayes": (empirical_bayes_ci, {}),
    "avg": (avg_ci, {"bounds": (0.0, 1.0)}),
    "score": (score_ci, {}),
    "wald": (wald_ci, {}),
    "wilson": (wilson_ci, {}),
    "bootstrap": (bootstrap_ci, {}),
    "bootstrap_questions": (bootstrap_ci, {"questions": True}),
    "clustered": (clustered_ci, {}),
}

QUESTIONS, TRIALS = (10, 30, 120), (1, 4, 16, 80)
TRUTHS: dict[str, Truth] = {
    "all .5": 0.5,
    "all .9": 0.9,
    "all .97": 0.97,
    "all .995": 0.995,
    "all .03": 0.03,
    "Beta(1, 1)": (1, 1),
    "Beta(.3, .3)": (0.3, 0.3),
    "Beta(8, 2)": (8, 2),
}
# One question unlike all others, which no Beta distribution is: the rest, and the one.
ODD = {"all 1, one .1": (1.0, 0.1), "all .97, one .3": (0.97, 0.3)}
# Trials of an easy question (.95) and of a hard one (.2), half of each: they depend on difficulty.
UNEQUAL = ((2, 80), (4, 16), (8, 16), (8, 6), (8, 2), (80, 70))
# Their target is the mean of the pool.
POOL = ("clustered", "bootstrap_questions")
# One of these costs as much as hundreds of the others.
SLOW = ("bootstrap", "bootstrap_questions")
LEAST = 0.9


class Coverage(NamedTuple):
    """What a method's interval did over replicates; every figure with its Monte-Carlo error."""

    coverage: float  # share of replicates whose interval holds the target
    coverage_se: float
    width: float  # mean of upper minus lower end
    width_se: float
    bias: float  # mean of estimate minus target
    bias_se: float


def coverage(
    methods: Sequence[str],
    p: npt.ArrayLike,
    trials: int | npt.ArrayLike,
    replicates: int = 1000,
    seed: int = 0,
    target: float | None = None,
) -> dict[str, Coverage]:
    """Coverage, width and bias of intervals on simulated outcomes 0 and 1.

    Every replicate draws the number of correct trials of each question from Binomial(N, p_a); the
    same seed gives the same counts, whichever methods are asked for. The standard error of a
    coverage of exactly 0 or 1 comes out as 0.

    ``methods`` are names out of ``METHODS``; ``p`` are success probabilities in [0, 1], shape (M,),
    or (replicates, M) for questions that differ from replicate to replicate; ``trials`` is N, at
    least 1, or (M,), one for each question. ``target`` is the true value; ``None`` is the mean of
    p, in each replicate its own.

    Thirty easy questions, eighty trials: the prior of Bayes@N is in the way.

    >>> easy = coverage(["bayes", "avg"], [0.97] * 30, trials=80)
    >>> round(easy["bayes"].coverage, 2), round(easy["avg"].coverage, 2)
    (0.12, 0.98)
    """
    rate = np.broadcast_to(p, (replicates, np.shape(p)[-1]))
    truth = rate.mean(axis=-1) if target is None else np.full(replicates, target)
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Floats]] = {name: [] for name in methods}
    for start in range(0, replicates, CHUNK):
        chunk = slice(start, start + CHUNK)
        correct = rng.binomial(trials, rate[chunk])
        for name in methods:
            parts[name].append(_judged(name, correct, trials, truth[chunk]))
    return {name: _summary(np.concatenate(each, axis=-1)) for name, each in parts.items()}


def rates(
    truth: Truth, questions: int, replicates: int | None = None, seed: int = 0
) -> npt.NDArray[np.float64]:
    """True success probabilities of questions: all the same, or drawn from a Beta distribution.

    ``truth`` is one probability, or (a, b) of a Beta distribution, both above 0: (1, 1) is uniform,
    (0.3, 0.3) has mostly very easy and very hard questions, (8, 2) mostly easy ones. The shape is
    (questions,), or (replicates, questions).

    >>> rates(0.9, 3).tolist(), rates((8, 2), 30, replicates=1000).shape
    ([0.9, 0.9, 0.9], (1000, 30))
    """
    shape = (questions,) if replicates is None else (replicates, questions)
    if isinstance(truth, tuple):
        return np.random.default_rng(seed).beta(*truth, size=shape)
    return np.full(shape, float(truth))


def pool_mean(truth: Truth) -> float:
    """Mean of the pool that :func:`rates` draws from: the probability itself, or a / (a + b).

    >>> pool_mean(0.97), pool_mean((8, 2))
    (0.97, 0.8)
    """
    return truth[0] / sum(truth) if isinstance(truth, tuple) else truth


def _judged(name: str, correct: Ints, trials: Any, truth: Floats) -> Floats:
    """Whether the target is held, width and error of each replicate, shape (3, B)."""
    method, options = METHODS[name]
    counts = Counts(np.stack([trials - correct, correct], axis=-1))
    estimate, *_, lo, hi = method(counts, confidence=0.95, **options)
    return np.stack([(lo <= truth) & (truth <= hi), hi - lo, estimate - truth])


def _summary(each: Floats) -> Coverage:
    errors = each.std(axis=-1) / np.sqrt(each.shape[-1])
    return Coverage(*np.stack([each.mean(axis=-1), errors], axis=-1).ravel().tolist())


def main() -> None:
    """Simulate and report."""
    parser = common.parser(__doc__, replicates=1000)
    parser.add_argument(
        "--slow", type=int, default=200, metavar="B", help="for bootstraps, default %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="B = 200 and 40, M = 30 only")
    args = parser.parse_args()
    if args.quick:
        args.replicates, args.slow = 200, 40
    began = time.perf_counter()
    rows = []
    for questions in (30,) if args.quick else QUESTIONS:
        cells = list(itertools.product(TRIALS, [*TRUTHS, *ODD]))
        made = [_cell(questions, trials, truth, args) for trials, truth in cells]
        _print(questions, made)
        rows += made + _unequal(questions, args.replicates)
    seconds = time.perf_counter() - began
    common.out.print(f"{args.replicates} replicates, bootstrap {args.slow}; {seconds:.0f} s")
    common.finish(args, {"cells": rows, "seconds": seconds})


def _cell(questions: int, trials: int, truth: str, args: argparse.Namespace) -> dict[str, Any]:
    """All methods for one M, N and truth."""
    found: dict[str, dict[str, float]] = {}
    for name in METHODS:
        if (name == "wald" and trials == 1) or (name in POOL and truth in ODD):
            continue  # one trial has no variance; there is no pool
        replicates = args.slow if name in SLOW else args.replicates
        target = pool_mean(TRUTHS[truth]) if name in POOL else None
        p = _rates(truth, questions, replicates)
        [row] = coverage([name], p, trials, replicates, target=target).values()
        found[name] = row._asdict()
    return {"questions": questions, "trials": trials, "truth": truth, "methods": found}


def _unequal(questions: int, replicates: int) -> list[dict[str, Any]]:
    """The same where numbers of trials differ, of the methods that may know it."""
    easy, rng, cells = np.arange(questions) < questions // 2, np.random.default_rng(2), []
    designs: dict[str, tuple[Any, Any]] = {
        f"easy {a}, hard {b} trials": (np.where(easy, 0.95, 0.2), np.where(easy, a, b))
        for a, b in UNEQUAL
    }
    for most, truth in ((8, "Beta(.3, .3)"), (80, "Beta(8, 2)")):
        p = rates(TRUTHS[truth], questions, replicates, seed=1)
        designs[f"{truth}, 1 to {most} at random"] = p, rng.integers(1, most + 1, questions)
    for design, (p, trials) in designs.items():
        found = coverage(["empirical_bayes", "score", "avg"], p, trials, replicates)
        cell = {name: row._asdict() for name, row in found.items()}
        cells.append({"questions": questions, "truth": design, "methods": cell})
        shown = ", ".join(f"{name} {_shown(of)}" for name, of in cell.items())
        common.out.print(f"M = {questions}, {design}: {shown}", markup=False)
    return cells


def _rates(truth: str, questions: int, replicates: int) -> Any:
    if truth in ODD:
        usual, odd = ODD[truth]
        return [usual] * (questions - 1) + [odd]
    return rates(TRUTHS[truth], questions, replicates, seed=1)


def _print(questions: int, cells: list[dict[str, Any]]) -> None:
    """A Markdown table of one M."""
    names = ["N", "truth", *(name.replace("_", " ") for name in METHODS)]
    lines = [f"M = {questions}", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for cell in cells:
        shown = [_shown(cell["methods"].get(name)) for name in METHODS]
        lines.append(f"| {cell['trials']} | {cell['truth']} | {' | '.join(shown)} |")
    common.out.print("\n".join(lines) + "\n", markup=False)


def _shown(row: dict[str, float] | None) -> str:
    if row is None:
        return "-"
    found = Coverage(**row)
    mark = "*" if found.coverage < LEAST else ""
    return f"{100 * found.coverage:.0f}{mark} {found.width:.3f}"


if __name__ == "__main__":
    common.main(main)
