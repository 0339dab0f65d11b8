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

difference: two models that are equal on these questions, whose judges err by the bias up and down,
each with its own labels, as `compare` compares them: where the interval misses 0 a difference is
claimed falsely; unequal: the second is better by 20 points; of pool: two that are equal on the
pool, half of whose questions are as hard for one as for the other.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.scoring.numerics.results import normal_quantile
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
PAIRS = ("difference", "unequal", "of pool", "without labels")
GAP = 0.2


def world(
    rng: Any, shape: Any, p: float, bias: float, e: float, clustered: bool, own: Any = None
) -> Any:
    """Draw questions, labels of people and words of the judge: chances (M,), y and f (M, N)."""
    chance = rng.beta(2 * p, 2 - 2 * p, shape[0])[:, None] if own is None else own[:, None]
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
    sample = scoring.labeled(f, y[at], at, questions=questions)
    powered = scoring.prediction_powered(sample)
    weighed = scoring.labeled(f, y[chosen], chosen, None, chances[chosen], questions)
    by_chance = scoring.prediction_powered(weighed)
    fixed = [scoring.prediction_powered(sample, rate=of) for of in (1, 0)]
    bayes = scoring.misclassification(sample).score
    alone = scoring.avg_ci(f.reshape(questions[-1] + 1, -1))
    return dict(zip(METHODS, (powered, by_chance, powered.pool, bayes, *fixed, alone), strict=True))


def differences(rng: Any, first: Any, m: int, cell: Any, judge: Any) -> dict[str, Any]:
    """Compare a model with others whose judge errs the other way: intervals and true differences.

    `first`: what `world` drew of it.
    """
    (shape, p, clustered), (bias, e) = cell, judge
    fresh = rng.beta(2 * p, 2 - 2 * p, shape[0])
    others = {
        "difference": (p, rng.permutation(first[0])),
        "of pool": (p, np.where(rng.random(shape[0]) < 0.5, first[0], fresh)),
        "unequal": (p + GAP, rng.beta(2 * p + 2 * GAP, 2 - 2 * p - 2 * GAP, shape[0]))
        if p + GAP < 1
        else (p, fresh),
    }
    questions, found = np.repeat(np.arange(shape[0]), shape[1]), {}

    def corrected(y: Any, f: Any) -> Any:
        at = rng.permutation(y.size)[: min(m, y.size // 2)]
        sample = scoring.labeled(f.ravel(), y.ravel()[at], at, questions=questions)
        found = scoring.prediction_powered(sample)
        return found, np.bincount(questions, sample.parts(found.rate, found.value))

    one, own_parts = corrected(*first[1:])
    for name, (mean, own) in others.items():
        chance, y, f = world(rng, shape, mean, -bias, e, clustered, own)
        two, parts = corrected(y, f)
        both = [(of.value, of.normal_sigma(normal_quantile(0.95))) for of in (one, two)]
        truth = first[0].mean() - chance.mean()
        of = scoring.compare_scores(*both[0], *both[1])
        if name == "of pool":
            gaps, truth = (own_parts - parts) * shape[0], 0.0
            of = scoring.paired_gaps(gaps, of.sigma)
        found[name] = (of.lo, of.hi, truth)
        if name == "difference":
            plain = scoring.compare(first[2].astype(int), f.astype(int))
            found["without labels"] = (plain.lo, plain.hi, 0.0)
    return found


def row(name: str, replicates: int, seed: int) -> list[list[str]]:
    """Simulate a judge in all worlds; return a line for each method."""
    bias, e, m = JUDGES[name]
    held = collections.defaultdict[str, list[list[float]]](list)
    width = collections.defaultdict[str, list[float]](list)
    cells = [c for c in itertools.product(SHAPES, MEANS, (False, True)) if 0 <= c[1] + bias <= 1]
    for number, (shape, p, clustered) in enumerate(cells):
        rng = np.random.default_rng([seed, number, len(name)])
        two = 0 <= p - bias <= 1
        for method in (*METHODS, *PAIRS * two):
            held[method].append([])
        for _ in range(replicates):
            first = chance, y, f = world(rng, shape, p, bias, e, clustered)
            ends = {
                method: (found.low, found.high, p if method == "pool" else chance.mean())
                for method, found in intervals(rng, y, f, m).items()
            }
            if two:
                ends |= differences(rng, first, m, cells[number], (bias, e))
            for method, (low, high, truth) in ends.items():
                held[method][-1].append(low <= truth <= high)
                width[method].append(high - low)
    lines, alone = [], np.mean(width["labels"])
    for method, of in held.items():
        shares = 100 * np.array(of).mean(axis=1)
        error = 100 * np.sqrt(0.05 * 0.95 / replicates)
        lines.append([name, method, f"{shares.mean():.1f} ± {error / len(of) ** 0.5:.1f}"])
        lines[-1] += [f"{shares.min():.1f} ± {error:.1f}", f"{(shares > 99).sum()} of {len(of)}"]
        lines[-1] += [f"{np.mean(width[method]):.3f}", f"{np.mean(width[method]) / alone:.2f}"]
    return lines


def main() -> None:
    """Simulate, and print the table that docs/verifier.md quotes."""
    parser = common.parser(__doc__, seed=1)
    parser.add_argument("--rows", default="", metavar="TEXT", help="judges whose names hold TEXT")
    parser.add_argument("--replicates", type=int, default=200, metavar="N", help="of each cell")
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
