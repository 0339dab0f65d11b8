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
interval needs two trials) or has no pool.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

from benchmarks import common
from scoring.studies.coverage import METHODS, Coverage, Truth, coverage, pool_mean, rates

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
# Their target is the mean of the pool.
POOL = ("clustered", "bootstrap_questions")
# One of these costs as much as hundreds of the others.
SLOW = ("bootstrap", "bootstrap_questions")
LEAST = 0.9


def main() -> None:
    """Simulate and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--replicates", type=int, default=1000, metavar="B", help="default %(default)s"
    )
    parser.add_argument(
        "--slow", type=int, default=200, metavar="B", help="for bootstraps, default %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="B = 200 and 40, M = 30 only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there, too")
    args = parser.parse_args()
    if args.quick:
        args.replicates, args.slow = 200, 40
    began = time.perf_counter()
    rows = []
    for questions in (30,) if args.quick else QUESTIONS:
        cells = list(itertools.product(TRIALS, [*TRUTHS, *ODD]))
        made = [_cell(questions, trials, truth, args) for trials, truth in cells]
        _print(questions, made)
        rows += made
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
