"""All studies of the paper on outcomes of its size: 20 models x 4 datasets x 30 questions x 80.

    python -m benchmarks.reproduce                         the paper's replicate counts
    python -m benchmarks.reproduce --preset quick          a quick look

Outcomes are synthetic, with the names of the paper's models and neighbors that are close, so that
its eleven models, its 90 subsets and all of its tables are made. Seconds are wall time of each
study with its figures drawn, on as many cores as --cores says; files is what it took to write all
tables, figures and the page. Peak memory is of the whole process. Studies that need attempts
(rubrics, cost) find none and are left out.

The peer is the loop that a user of scorio and scipy writes for Fig. 4: for every replicate, n and
model one call of bayes, and one of kendalltau. It is timed on whole replicates and scaled up to the
replicates of one dataset and one estimator.
"""

import argparse
import os
import resource
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.paper import reproduce, studies
from bayes_at_n.pipeline.paper.reproduce import Study
from bayes_at_n.pipeline.paper.studies import Result
from benchmarks import common

MOST_SECONDS, MOST_MIB = 600.0, 2048.0
QUESTIONS, TRIALS = 30, 80


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, cores=2)
    parser.add_argument("--preset", default="paper", help="of configs/study (default %(default)s)")
    parser.add_argument("--peer", type=int, default=2, metavar="B", help="replicates with scorio")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    common.finish(args, measure(args))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of every study, the peak of this process in MiB, and the peer."""
    plan = analysis.study_plan(analysis.load([f"preset={args.preset}"]))
    cohorts = made()
    seconds: dict[str, float] = {}

    def timed(name: str, study: Study) -> Study:
        def make(plan: analysis.StudyPlan, cohorts: list[Cohort]) -> Result:
            began = time.perf_counter()
            try:
                return study.make(plan, cohorts)
            finally:
                seconds[name] = time.perf_counter() - began

        return study._replace(make=make)

    reproduce.STUDIES |= {name: timed(name, study) for name, study in reproduce.STUDIES.items()}
    with common.workdir(args) as folder:
        began = time.perf_counter()
        reproduce.reproduced(cohorts, plan, list(analysis.STUDIES), folder, [])
        total = time.perf_counter() - began
    seconds["files"] = total - sum(seconds.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [[name, took] for name, took in {**seconds, "all": total}.items()]
    common.table(f"reproduce, preset {args.preset}, {args.cores} cores", ["study", "seconds"], rows)
    if args.preset == "paper":
        common.out.print(
            f"target {MOST_SECONDS:g} s: {'met' if total < MOST_SECONDS else 'MISSED'}"
        )
    common.out.print(
        f"peak {peak:.0f} MiB: {'met' if peak < MOST_MIB else 'MISSED'} ({MOST_MIB:g})"
    )
    peer = _peer(np.asarray(cohorts[0].matrix().data), args.peer) * plan.tau_replicates
    common.out.print(
        f"a loop over scorio and scipy for one curve of Fig. 4: {peer / 3600:.1f} hours, scaled"
        f" from {args.peer} replicates; {peer / total:,.0f} times all of this"
    )
    return {"seconds": seconds, "total_s": total, "peak_mib": peak, "peer_s": peer}


def made() -> list[Cohort]:
    """The four tasks, with close neighbors among the models."""
    cohorts = []
    for seed, task in enumerate(studies.TASKS):
        rng = np.random.default_rng(seed)
        ability, difficulty = np.linspace(1.5, -2.5, 20)[:, None], rng.normal(0, 2, QUESTIONS)
        p = 1 / (1 + np.exp(difficulty - ability - rng.normal(0, 0.7, (20, QUESTIONS))))
        outcomes = (rng.random((20, QUESTIONS, TRIALS)) < p[..., None]).astype(np.int8)
        ids = [f"{task}-{i}" for i in range(QUESTIONS)]
        cohorts.append(
            cohort.from_arrays(task, list(studies.short_names().values()), ids, outcomes)
        )
    return cohorts


def _peer(stack: npt.NDArray[np.int8], replicates: int) -> float:
    """Seconds of one bootstrap replicate of one curve."""
    from scipy.stats import kendalltau
    from scorio import eval as scorio

    gold = stack.sum(axis=(1, 2))
    rng = np.random.default_rng(0)
    began = time.perf_counter()
    for _ in range(replicates):
        drawn = stack[..., rng.integers(TRIALS, size=TRIALS)].astype(np.int64)
        for n in range(1, TRIALS + 1):
            kendalltau([scorio.bayes(model[:, :n])[0] for model in drawn], gold)
    return (time.perf_counter() - began) / replicates


if __name__ == "__main__":
    common.main(main)
