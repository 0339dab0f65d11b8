"""scoring against the authors' scorio: one model, and a stack of models.

  python -m benchmarks.scoring

one     every function on one (30, 80) matrix, the median over rounds of scorio / ours; a fresh
        matrix in each round, the same for both
stack   every function on a (20, 120, 80) stack in one call, against a loop over the 20 models
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scorio import eval as peer

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from benchmarks import common

K = 8
SPECTRUM = ("threshold_spectrum", "geo_spectrum", "geom")
Call = tuple[str, tuple[Any, ...]]


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_rounds(parser, default=7)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    record = {"one": one(args.rounds, rng), "stack": stack(args.rounds, rng)}
    common.finish(args, record)


def calls() -> list[Call]:
    """Every function of the peer's documented interface, with its arguments after R."""
    weights = np.full(K, 1.0 / K)
    extra: dict[str, tuple[Any, ...]] = {
        "bayes": (),
        "avg": (),
        "g_pass_at_k_tau": (K, 0.6),
        "threshold_spectrum_at_k": (K, weights),
        "geo_spectrum_at_k": (K, 0.3, weights),
    }
    names = [name for name in peer.__all__ if not name.startswith(("tailpass", "unanimous"))]
    return [(name, extra.get(name.removesuffix("_ci"), (K,))) for name in names]


def outcomes(rng: np.random.Generator, *shape: int) -> Any:
    """Outcomes of questions from very hard to very easy, int64 as both sides like it."""
    p = rng.beta(0.7, 0.7, size=(*shape[:-1], 1))
    return (rng.random(shape) < p).astype(np.int64)


def one(rounds: int, rng: np.random.Generator) -> dict[str, Any]:
    """One (30, 80) matrix: scorio / ours for each function, by rounds."""
    found: dict[str, Any] = {}
    rows = []
    for name, extra in calls():
        ours, theirs = getattr(scoring, name), getattr(peer, name)
        times: dict[str, list[float]] = {"ours": [], "scorio": []}
        for i in range(rounds):
            R = outcomes(rng, 30, 80)
            _same(name, ours(R, *extra), theirs(R, *extra))
            sides = {"ours": ours, "scorio": theirs}
            for side in list(sides) if i % 2 == 0 else list(sides)[::-1]:
                times[side].append(_seconds(sides[side], R, extra, 0.02))
        found[name] = common.ratio(times["scorio"], times["ours"])
        micro = [1e6 * statistics.median(times[side]) for side in ("ours", "scorio")]
        rows.append([name, *micro, found[name]["median"]])
    columns = ["one (30, 80) matrix", "ours, us", "scorio, us", "scorio / ours"]
    common.table(f"k = {K}, median of {rounds} rounds", columns, rows)
    slowest = min(found, key=lambda name: found[name]["median"])
    common.out.print(common.against_target(f"slowest, {slowest}", found[slowest], least=1.0))
    intervals = [name for name in found if name.endswith("_ci") and name.startswith(SPECTRUM)]
    slowest = min(intervals, key=lambda name: found[name]["median"])
    target = common.against_target(f"spectra, slowest, {slowest}", found[slowest], least=20.0)
    common.out.print(target)
    return found


def stack(rounds: int, rng: np.random.Generator) -> dict[str, Any]:
    """A (20, 120, 80) stack, all functions: a loop of scorio over models / one call each."""
    times: dict[str, list[float]] = {"ours": [], "scorio": []}
    for i in range(rounds):
        R = outcomes(rng, 20, 120, 80)
        spent = {"ours": 0.0, "scorio": 0.0}
        for name, extra in calls():
            ours, theirs = getattr(scoring, name), getattr(peer, name)

            def loop(R: Any, *extra: Any, theirs: Callable[..., Any] = theirs) -> Any:
                return [theirs(model, *extra) for model in R]

            for side in ("ours", "scorio") if i % 2 == 0 else ("scorio", "ours"):
                spent[side] += _once(ours if side == "ours" else loop, R, extra)
        for side in spent:
            times[side].append(spent[side])
        common.out.print(f"round {i + 1}/{rounds}  ours {spent['ours']:.3f} s, scorio"
                         f" {spent['scorio']:.2f} s")  # fmt: skip
    found = common.ratio(times["scorio"], times["ours"])
    text = f"(20, 120, 80), all {len(calls())} functions, scorio / ours"
    common.out.print(common.against_target(text, found, least=50.0))
    return found


def _once(function: Callable[..., Any], R: Any, extra: tuple[Any, ...]) -> float:
    began = time.perf_counter()
    function(R, *extra)
    return time.perf_counter() - began


def _seconds(function: Callable[..., Any], R: Any, extra: tuple[Any, ...], least: float) -> float:
    """Seconds a call, over as many calls as fill ``least`` seconds."""
    number = max(1, int(least / max(_once(function, R, extra), 1e-6)))
    began = time.perf_counter()
    for _ in range(number):
        function(R, *extra)
    return (time.perf_counter() - began) / number


def _same(name: str, ours: Any, theirs: Any) -> None:
    """Different results are not compared by time.

    Raises:
        UserError: when they differ by more than 1e-10.
    """
    if not np.allclose(ours, theirs, rtol=1e-10, atol=1e-10):
        raise UserError(f"{name}: {ours} and scorio's {theirs} differ; no comparison")


if __name__ == "__main__":
    common.main(main)
