"""What people's labels of a few attempts make of a judge that errs: coverage and width.

    python -m benchmarks.judged                            every row, about two minutes on one core
    python -m benchmarks.judged --rows "10 points" --seed 2

Questions have chances from Beta(2 p, 2 - 2 p), so that their mean is p; the judge errs on a share
of correct and of wrong attempts, the same for all questions or (clustered) Beta(.7 e, .7 - .7 e).
Bias is the judge's score minus the truth, in points. A cell is one of these worlds, for 30
questions with 80 trials, 30 with 4 and 120 with 8; the truth is the mean chance of its questions,
or for the pool p. Worlds in which a bias leads above 100 % or below 0 are left out.

powered: `scoring.prediction_powered`; chosen: half of its labels go where a second verifier, which
sees 70 % of the errors and 5 % of the rest, disagrees; pool: its interval for other questions;
bayes: `scoring.misclassification`; labels: these alone; judge: the interval without labels.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n import scoring
from benchmarks import common

SHAPES = ((30, 80), (30, 4), (120, 8))
MEANS = (0.1, 0.3, 0.5, 0.7, 0.9)
# What it is called: bias, error rate of the kind that the bias leaves, labels.
JUDGES: dict[str, tuple[float, float, int]] = {
    "10 points too high": (0.1, 0.02, 60),
    "10 points too low": (-0.1, 0.02, 60),
    "2 points too high": (0.02, 0.02, 60),
    "never wrong": (0.0, 0.0, 60),
    "says nothing": (0.0, 0.5, 60),
    "10 points too high, 20 labels": (0.1, 0.02, 20),
    "10 points too high, 300 labels": (0.1, 0.02, 300),
}
METHODS = ("powered", "chosen", "pool", "bayes", "lambda=1", "labels", "judge")


def world(rng: Any, shape: Any, p: float, bias: float, e: float, clustered: bool) -> Any:
    """Draw questions, labels of people and words of the judge: chances (M,), y and f (M, N)."""
    chance = rng.beta(2 * p, 2 - 2 * p, shape[0])[:, None]
    up = (bias + e * p) / (1 - p) if bias > 0 else e
    down = (e * (1 - p) - bias) / p if bias < 0 else e
    rates = np.clip([up, down], 0, 1)[:, None, None]
    if clustered:
        rates = rng.beta(0.7 * rates + 1e-9, 0.7 - 0.7 * rates + 1e-9, (2, shape[0], 1))
    y, u = rng.random(shape) < chance, rng.random(shape)
    return chance.ravel(), y.astype(float), np.where(y, u >= rates[1], u < rates[0]).astype(float)


def intervals(rng: Any, y: Any, f: Any, m: int) -> dict[str, Any]:
    """Compute each method's interval from a sample; the chosen ones have one of their own."""
    questions, (y, f) = np.repeat(np.arange(len(y)), y.shape[1]), (y.ravel(), f.ravel())
    m = min(m, y.size // 2)
    at, wrong = rng.permutation(y.size)[:m], y != f
    doubted = rng.random(y.size) < np.where(wrong, 0.7, 0.05)
    chances = scoring.label_chances(np.where(doubted, 0.4, 0.02), m)
    chosen = scoring.drawn_sample(chances, rng)
    own = {"questions": questions}
    powered = scoring.prediction_powered(f, y[at], at, **own)
    by_chance = scoring.prediction_powered(f, y[chosen], chosen, chances=chances[chosen], **own)
    fixed = [scoring.prediction_powered(f, y[at], at, rate=of, **own) for of in (1, 0)]
    bayes = scoring.misclassification(f, y[at], at, **own).score
    alone = scoring.avg_ci(f.reshape(questions[-1] + 1, -1))
    return dict(zip(METHODS, (powered, by_chance, powered.pool, bayes, *fixed, alone), strict=True))


def row(name: str, replicates: int, seed: int) -> list[list[str]]:
    """Simulate a judge in all worlds; return a line for each method."""
    bias, e, m = JUDGES[name]
    held: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    width: dict[str, list[float]] = {method: [] for method in METHODS}
    cells = [c for c in itertools.product(SHAPES, MEANS, (False, True)) if 0 <= c[1] + bias <= 1]
    for number, (shape, p, clustered) in enumerate(cells):
        rng = np.random.default_rng([seed, number, len(name)])
        for method in METHODS:
            held[method].append([])
        for _ in range(replicates):
            chance, y, f = world(rng, shape, p, bias, e, clustered)
            for method, found in intervals(rng, y, f, m).items():
                truth = p if method == "pool" else chance.mean()
                held[method][-1].append(found.low <= truth <= found.high)
                width[method].append(found.high - found.low)
    lines, alone = [], np.mean(width["labels"])
    for method in METHODS:
        shares = 100 * np.array(held[method]).mean(axis=1)
        error = 100 * np.sqrt(0.05 * 0.95 / replicates)
        lines.append([name, method, f"{shares.mean():.1f} ± {error / len(cells) ** 0.5:.1f}"])
        lines[-1] += [f"{shares.min():.1f} ± {error:.1f}", f"{(shares > 99).sum()} of {len(cells)}"]
        lines[-1] += [f"{np.mean(width[method]):.3f}", f"{np.mean(width[method]) / alone:.2f}"]
    return lines


def main() -> None:
    """Simulate, and print the table that docs/verifier.md quotes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="TEXT", help="judges whose names hold TEXT")
    parser.add_argument("--replicates", type=int, default=200, metavar="N", help="of each cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there, too")
    args = parser.parse_args()
    names = [name for name in JUDGES if args.rows in name]
    lines = [line for name in names for line in row(name, args.replicates, args.seed)]
    heads = [
        "judge",
        "interval",
        "holds, %",
        "worst cell",
        "above 99 %",
        "width",
        "to labels alone",
    ]
    common.table(f"95 % intervals, {args.replicates} replicates of each cell", heads, lines)
    common.finish(args, {"rows": [dict(zip(heads, line, strict=True)) for line in lines]})


if __name__ == "__main__":
    common.main(main)
