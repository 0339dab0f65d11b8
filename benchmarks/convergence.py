"""The paper's convergence study: 10^5 replicates x 80 trials x 20 models x 4 tasks, 30 questions.

    python -m benchmarks.convergence                      both kinds of tasks, 100,000 replicates
    python -m benchmarks.convergence --replicates 5000    a quick look, scaled up

Bayes@N and Pass@2/4/8, trials resampled column-wise. Outcomes are synthetic, of two kinds:

  realistic  normal abilities against easy and hard questions: neighbors are close, hardly any
             replicate has converged at 80 trials, and the check stops at once
  separated  model i solves its own number of questions, nearly always: nearly all replicates
             converge within a few trials, so that every n down to there is checked in full, which
             is the most work there can be

Seconds are of convergence_at with tables, drawing and threads included, and without compilation.

The peer is the loop that a user of scorio writes: for every replicate, n, model and estimator one
call. It is timed on whole replicates and scaled up by their number.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.table import parse
from bayes_at_n.scoring.studies import bootstrap, convergence
from benchmarks import common

MOST_SECONDS = 60.0  # on two cores
MODELS, QUESTIONS, TRIALS, TASKS, REPLICATES = 20, 30, 80, 4, 100_000
JUDGED = [parse(name) for name in ("bayes", "pass@2", "pass@4", "pass@8")]

Outcomes = npt.NDArray[np.uint8]


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, replicates=REPLICATES, threads=2)
    common.add_rounds(parser, default=1)
    parser.add_argument("--peer", type=int, default=2, metavar="B", help="replicates with scorio")
    args = parser.parse_args()
    convergence.convergence_at(tasks("realistic")[0], JUDGED, 1)  # compiles
    common.finish(args, {kind: _study(args, kind) for kind in ("realistic", "separated")})


def tasks(kind: str) -> list[Outcomes]:
    """Outcomes of four tasks, each (models, questions, trials)."""
    made = []
    for seed in range(TASKS):
        rng = np.random.default_rng(seed)
        if kind == "separated":
            # Models 1..20 solve the first 6..25 questions.
            solved = np.arange(QUESTIONS) < np.arange(6, 6 + MODELS)[:, None]
            p = np.where(solved, 0.95, 0.0)
        else:
            ability, difficulty = rng.normal(0, 1, (MODELS, 1)), rng.normal(0, 2, QUESTIONS)
            p = 1 / (1 + np.exp(difficulty - ability - rng.normal(0, 0.7, (MODELS, QUESTIONS))))
        made.append((rng.random((MODELS, QUESTIONS, TRIALS)) < p[..., None]).view(np.uint8))
    return made


def _study(args: argparse.Namespace, kind: str) -> dict[str, Any]:
    stacks, scale = tasks(kind), REPLICATES / args.replicates
    seconds, found = [], list[Any]()
    for _ in range(args.rounds):
        began = time.perf_counter()
        found = [
            convergence.convergence_at(stack, JUDGED, args.replicates, threads=args.threads)
            for stack in stacks
        ]
        seconds.append((time.perf_counter() - began) * scale)
    best = min(seconds)
    rows = [
        [judged.title(), np.mean([r.share_failed for r in same]), _mean([r.mean for r in same])]
        for judged, same in zip(JUDGED, zip(*found, strict=True), strict=True)
    ]
    common.table(f"{kind}, means over tasks", ["estimator", "not converged", "mean n"], rows)
    scaled = "" if scale == 1 else f", scaled from {args.replicates} replicates"
    spread = {"median": float(np.median(seconds)), "rounds": seconds, "of_minima": best}
    common.out.print(
        "  "
        + common.against_target(
            f"seconds of the study, {args.threads} threads{scaled}", spread, most=MOST_SECONDS
        )
    )
    peer = _peer(stacks[0], args.peer)
    common.out.print(
        f"  a loop over scorio: {peer['replicate_s']:.2f} s a replicate, timed on {args.peer},"
        f" scaled to {peer['study_s'] / 3600:.0f} hours, {peer['study_s'] / best:,.0f} times as"
        f" long; {peer['agree']} of {peer['points']} values of convergence@n agree"
    )
    return {"seconds": seconds, "rows": rows, "peer": peer}


def _mean(values: Sequence[float | None]) -> float | str:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else "none"


def _peer(stack: Outcomes, replicates: int) -> dict[str, Any]:
    """Whole replicates with one call of scorio for each n, model and estimator."""
    from scorio import eval as scorio

    calls: list[Callable[[Any], float]] = [lambda R: scorio.bayes(R)[0]]
    calls += [lambda R, k=k: scorio.pass_at_k(R, k) for k in (2, 4, 8)]
    gold = _ranks([float(model.sum()) for model in stack])
    index = bootstrap.draw(0, 0, replicates, TRIALS, 1)[..., 0]
    points = np.zeros((len(JUDGED), replicates), dtype=np.int64)
    began = time.perf_counter()
    for r in range(replicates):
        drawn = stack[..., index[r]].astype(np.int64)
        for e, (judged, call) in enumerate(zip(JUDGED, calls, strict=True)):
            same = [
                _ranks([call(model[:, :n]) for model in drawn]) == gold
                for n in range(max(1, judged.k), TRIALS + 1)
            ]
            points[e, r] = TRIALS + 1 - [*same[::-1], False].index(False)
    took = (time.perf_counter() - began) / replicates
    agree = 0
    for judged, theirs in zip(JUDGED, points, strict=True):
        [ours] = convergence.convergence_at(stack, [judged], replicates)
        counts = np.bincount(theirs, minlength=TRIALS + 2)[1:]
        agree += int(np.minimum(counts, [*ours.counts, ours.failed]).sum())
    return {
        "replicate_s": took,
        "study_s": took * REPLICATES * TASKS,
        "agree": agree,
        "points": len(JUDGED) * replicates,
    }


def _ranks(scores: list[float]) -> list[int]:
    return [1 + sum(other > score for other in scores) for score in scores]


if __name__ == "__main__":
    common.main(main)
