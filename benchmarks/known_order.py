"""Twenty models whose order is known, imported: which method of ranking finds it, and how soon.

    python -m benchmarks.known_order                    every method, 20 replicates, 5 s a method
    python -m benchmarks.known_order --seconds 300 --replicates 200

20 models x 30 questions x 80 trials: the size of arXiv 2603.10960, whose printed figures stand
beside ours. Outcomes are drawn from known chances, saved as NPZ, imported as run folders, and
studied by `study name=rankings`. `truth` is the order by mean chance, which no study of real
records has; the gold order is Bayes@80. The greedy attempt of the prior is right where the chance
is above a half (agrees), or where noise of one logit makes it so (disagrees).
"""

import argparse
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare import cohort, rankings
from bayes_at_n.pipeline.config import analysis, compose, records
from bayes_at_n.pipeline.paper import methods
from bayes_at_n.pipeline.records.importing import import_records
from benchmarks import common

MODELS, QUESTIONS, TRIALS = 20, 30, 80


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, replicates=20)
    parser.add_argument("--seconds", type=float, default=5, help="a method; default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the outcomes; default %(default)s")
    args = parser.parse_args()
    common.finish(args, measure(args))


def made(seed: int) -> tuple[Any, Any]:
    """Chances (L, M) and outcomes (L, M, N) of close neighbors."""
    rng = np.random.default_rng(seed)
    able, hard = np.linspace(-2.5, 1.5, MODELS)[:, None], rng.normal(0, 2, QUESTIONS)
    logits = able - hard + rng.normal(0, 0.7, (MODELS, QUESTIONS))
    chances = 1 / (1 + np.exp(-logits))
    return chances, (rng.random((MODELS, QUESTIONS, TRIALS)) < chances[..., None]).astype(np.int8)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Agreement with the gold order and with the truth of each method; the greedy prior."""
    chances, outcomes = made(args.seed)
    truth = scoring.ranks(chances.mean(axis=1))
    with common.workdir(args) as folder:
        np.savez(folder / "made.npz", made=outcomes)
        names = ",".join(f"m{i:02}" for i in range(MODELS))
        source = [f"source={folder / 'made.npz'}", f"model={names}", f"runs={folder / 'runs'}"]
        import_records(compose.load_as(records.RecordsConfig, source))
        ranking = [f"ranking.replicates={args.replicates}", f"ranking.seconds={args.seconds}"]
        cfg = analysis.load([f"runs={folder / 'runs'}", "ranking=all", *ranking])
        plan = analysis.study_plan(cfg)
        cohorts = cohort.load(cfg)
        found = methods.agreement(plan, cohorts)
    tensor = np.asarray(cohorts[0].matrix().data).astype(np.uint8)
    np.testing.assert_array_equal(tensor, outcomes)
    rows = []
    for row in found.tables["rankings_made"].rows:
        tau = np.nan
        if row["whole"] is not None:
            fitted = rankings.fits(row["method"], lambda: [tensor], 600)
            own = tensor.mean(axis=(1, 2)) if row["method"] == methods.BAYES else next(fitted)[0]
            tau = float(scoring.kendall_tau_b(scoring.ranks(own), truth))
        keys = ("method", "replicates", "whole", "exact", "n1", "sd1", "n80", "first", "seconds")
        rows.append([*(row[key] for key in keys), tau])
    heads = ["method", "B", "whole", "gold", "N = 1", "spread", "N = 80", "first", "s", "truth"]
    common.table("τ_b with the gold order, and of the whole with the truth", heads, rows)
    for note in found.notes:
        common.out.print(note)
    less = {}
    upto = np.array([1, 2, 4, 8])
    rng = np.random.default_rng(1)
    logits = np.log(chances / (1 - chances))
    for kind, noise in {"agrees": 0.0, "disagrees": 1.0}.items():
        shift = noise * rng.normal(0, 1, (MODELS, 1))
        before = (logits + shift > 0).sum(axis=1)
        columns, tau = methods.greedy_effect(tensor, before, upto, plan)
        heads = [column.title for column in columns]
        values = [list(of) for of in zip(*columns.values(), strict=True)]
        common.table(f"greedy prior that {kind}: τ_b {tau:.3f} with the gold", heads, values)
        less[kind] = float(columns[methods.LESS][0])
    return {"rows": rows, "numbers": found.numbers, "less_spread": less}


if __name__ == "__main__":
    common.main(main)
