"""How often `score forecast=` holds the score at a larger limit of tokens, over simulated lengths.

    python -m benchmarks.forecast                       eleven processes, 120 runs of each, a minute
    python -m benchmarks.forecast --runs 600 --seed 7

A run has 10 to 120 questions, some harder, and 1 to 80 trials of each. Its limit cuts off 3 to 35 %
of the attempts, and the forecast is for 1.5, 2 or 4 times that limit. The truth is the mean of 500
more trials of the same questions at that limit. "None" counts runs of which the forecast says that
there is none; "held" is of the others, and its error is binomial.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.scoring.numerics.inputs import Bools, Floats
from benchmarks import common

SHAPES = (30, 16), (30, 80), (120, 8), (10, 40), (60, 4), (120, 1)  # questions, trials
TRIALS = 500  # that make the truth


def chance(odds: Any) -> Any:
    """Turn logarithms of odds into probabilities."""
    return 1 / (1 + np.exp(-odds))


class Luck(NamedTuple):
    """What a process makes attempts of: difficulties (M, 1), and draws (M, N)."""

    hard: Floats  # standard normal
    normal: Floats
    right: Floats  # uniform, as the next
    other: Floats


Attempts = tuple[Floats, Bools]  # lengths, inf if endless, and whether each is right if it ends


def _usual(luck: Luck, spread: Any, endless: Any = 0.0) -> Attempts:
    """Make hard questions longer, wrong attempts 1.5 times as long, and some attempts endless."""
    right = luck.right < chance(0.5 - 1.5 * luck.hard)
    lengths = 1000 * np.exp(0.5 * luck.hard) * spread * np.where(right, 1, 1.5)
    return np.where(luck.other < endless, np.inf, lengths), right


def _easy(luck: Luck) -> Attempts:
    return 1000 * np.exp(0.3 * luck.hard + 0.5 * luck.normal), luck.right < chance(
        4 - 0.7 * luck.hard
    )


def _longer_is_better(luck: Luck) -> Attempts:
    lengths = 1000 * np.exp(0.3 * luck.hard + 0.6 * luck.normal)
    return lengths, luck.right < chance(1.2 * np.log2(lengths / 1000) - 0.5 * luck.hard)


def _falling(luck: Luck) -> Attempts:
    lengths = 1000 * np.exp(0.4 * luck.hard + 0.6 * luck.normal)
    return lengths, luck.right < chance(1 - 2 * np.log2(lengths / 1500) - 0.5 * luck.hard)


def _one_length(luck: Luck) -> Attempts:
    lengths = 1000 * np.exp(0.7 * luck.hard + 0.05 * luck.normal)
    return lengths, luck.right < chance(0.5 - 0.8 * luck.hard + luck.normal[:, :1])


def _two_modes(luck: Luck) -> Attempts:
    long = luck.other < chance(0.8 * luck.hard - 0.8)
    lengths = np.where(long, 4000, 700) * np.exp(0.2 * luck.hard + 0.35 * luck.normal)
    return lengths, luck.right < np.where(long, 0.45, 0.85) * chance(2 - 0.8 * luck.hard)


PROCESSES: dict[str, Callable[[Luck], Attempts]] = {
    "lognormal": lambda luck: _usual(luck, np.exp(0.5 * luck.normal)),
    "longer is better": _longer_is_better,
    "loops": lambda luck: _usual(luck, np.exp(0.5 * luck.normal), 0.06),
    "loops on hard questions": lambda luck: _usual(
        luck, np.exp(0.5 * luck.normal), 0.25 * chance(1.5 * luck.hard - 0.5)
    ),
    "easy": _easy,
    "questions of one length": _one_length,
    "accuracy falls to the limit": _falling,
    "two modes": _two_modes,
    "exponential": lambda luck: _usual(luck, -np.log(luck.other)),
    "Pareto": lambda luck: _usual(luck, 0.5 * luck.other ** (-1 / 1.5)),
    "uniform": lambda luck: _usual(luck, 2 * luck.other),
}


def one(process: str, seed: int, number: int) -> dict[str, float]:
    """Simulate one run and forecast it: whether there is a forecast, whether it holds, widths."""
    rng = np.random.default_rng([seed, number])
    questions, trials = SHAPES[number % len(SHAPES)]
    shape = questions, trials + TRIALS
    luck = Luck(rng.normal(size=(questions, 1)), rng.normal(size=shape), *rng.random((2, *shape)))
    lengths, right = PROCESSES[process](luck)
    lengths = np.ceil(lengths)
    limit = np.ceil(np.quantile(lengths, rng.uniform(0.65, 0.97), method="lower"))
    limit = min(limit, 20_000)
    longer = limit * rng.choice([1.5, 2, 4])
    truth = (right & (lengths <= longer))[:, trials:].mean()
    now = (right & (lengths <= limit))[:, trials:].mean()
    lengths, right = lengths[:, :trials], right[:, :trials]
    cut = lengths > limit
    found = scoring.forecast((right & ~cut).astype(int), np.minimum(lengths, limit), cut, longer)
    return {
        "none": bool(found.why),
        "held": bool(found.low <= truth <= found.high),
        "gain": truth - now,
        "forecast": found.value - found.least,
        "width": found.high - found.low,
        "possible": found.most - found.least,
    }


def main() -> None:
    """Simulate, and print a row for each process."""
    parser = common.parser(__doc__, seed=0)
    parser.add_argument("--runs", type=int, default=120, help="of a process, default %(default)s")
    args = parser.parse_args()
    columns = ["lengths", "none", "held", "±", "gain", "forecast", "width", "possible"]
    rows, record = [], {}
    for process in PROCESSES:
        found = [one(process, args.seed, number) for number in range(args.runs)]
        record[process] = found
        there = [of for of in found if not of["none"]]
        mean = {key: np.mean([of[key] for of in there]) for key in found[0]}
        error = (mean["held"] * (1 - mean["held"]) / len(there)) ** 0.5
        rest = [f"{mean[key]:.3f}" for key in ("gain", "forecast", "width", "possible")]
        none = f"{len(found) - len(there)} of {len(found)}"
        rows.append([process, none, f"{mean['held']:.1%}", f"{error:.1%}", *rest])
    common.table("forecasts of a larger limit", columns, rows)
    common.finish(args, record)


if __name__ == "__main__":
    main()
