"""Table 1 and Fig. 2 of version 000 (Fig. 1 of 001): biased coins in place of models.

A reconstruction: only the coins' means are printed, see :mod:`scoring.studies.simulation`.
Table 1 is shown over many sets of coins; the curves are of the first set.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import Result, paper, shared
from bayes_at_n.pipeline.plots import convergence as plots
from bayes_at_n.scoring.studies import convergence, simulation
from bayes_at_n.scoring.studies.convergence import TauCurve

TRIALS = 80
_SHOWN = (1, 8, 20, 80)
_RECONSTRUCTION = (
    "Reconstruction: the paper prints the means of the coins, not their probabilities. Ours are"
    " drawn from Beta(i, 18 - i) given the printed means; what is said of ranks is over sets."
)


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Simulate; `cohorts` are not looked at."""
    result = Result(notes=[_RECONSTRUCTION])
    _add_table_1(result, plan)
    panels = _panels(plan)
    result.tables["fig2"] = _curves_table(panels)
    for letter, (title, curves) in zip("abc", panels.items(), strict=True):
        taus = {curve.label: curve.tau for curve in curves}
        result.figures[f"fig2{letter}"] = plots.tau_curves(
            range(1, TRIALS + 1), taus, f"({letter}) {title}", "the true ranking"
        )
    result.notes += [
        "Fig. 2: all three panels are held against the true ranking, as the caption says; the"
        " bootstraps are of the first matrix of panel a.",
        shared.NAIVE,
    ]
    return result


def _add_table_1(result: Result, plan: StudyPlan) -> None:
    """The commonest row of ranks over sets, from one matrix of 80 trials a set."""
    coins = simulation.coin_models(plan.seed, plan.coin_sets)
    truth = coins[0].mean(axis=-1)
    mu, sigma = scoring.bayes(simulation.toss(coins, TRIALS, plan.seed))
    names = [f"LLM{i}" for i in range(1, mu.shape[1] + 1)]
    gold = scoring.ranks(np.round(truth, 4), method="dense").tolist()
    rows: list[dict[str, Any]] = [
        {"ranking": "gold standard", **dict(zip(names, gold, strict=True))}
    ]
    result.numbers |= zip([f"coins.mean.{name}" for name in names], truth.tolist(), strict=True)
    result.numbers |= zip([f"coins.gold.{name}" for name in names], gold, strict=True)
    notes = [
        f"the commonest whole row over {plan.coin_sets} reconstructed sets, one matrix each",
        "with interval: consecutive z, dense, z = 1.645 (one-sided 95 %); gold: dense",
    ]
    for kind, title, ranks in (
        ("plain", f"Bayes@{TRIALS} without interval", scoring.ranks(mu)),
        ("ci", f"Bayes@{TRIALS} with interval", scoring.ranks_with_uncertainty(mu, sigma)),
    ):
        ids = [f"coins.{kind}.{name}" for name in names]
        distinct, times = np.unique(ranks, axis=0, return_counts=True)
        commonest = distinct[times.argmax()]
        rows.append({"ranking": title, **dict(zip(names, commonest.tolist(), strict=True))})
        same = (ranks == commonest).mean(axis=0)
        shares = {name: f"{share:.2f}" for name, share in zip(names, same, strict=True)}
        rows.append({"ranking": "share of sets with that rank", **shares})
        result.numbers |= zip(ids, commonest.tolist(), strict=True)
        printed = float((ranks == paper.values(ids)).all(axis=1).mean())
        ends = np.quantile(ranks, [0.025, 0.975], axis=0, method="nearest")
        for key, low, high in zip(ids, *ends, strict=True):
            result.numbers |= {f"{key}.other": printed, f"{key}.low": low, f"{key}.high": high}
        notes.append(
            f"{title}: the commonest row comes out in {times.max() / times.sum():.1%} of sets, the"
            f" printed row in {printed:.1%}"
        )
    result.notes += [f"Table 1: {line}." for line in notes[-2:]]
    columns = [shared.text("ranking", "ranking"), *(Column(name, name) for name in names[::-1])]
    result.tables["table1"] = Table("Table 1: ranks of the biased coins", columns, rows, notes)


def _panels(plan: StudyPlan) -> dict[str, list[TauCurve]]:
    """Curves of Kendall's tau against the true ranking in three ways, by title."""
    coins = simulation.coin_models(plan.seed, 1)[0]
    truth, judged = np.round(coins.mean(axis=-1), 4), shared.judged(TRIALS)
    first = simulation.toss(coins, TRIALS, plan.seed)
    matrices = simulation.tosses(coins, TRIALS, plan.matrices, plan.seed)
    panels = {
        f"{plan.matrices:,} independent matrices": matrices,
        "column-wise bootstrap": _resampled(first, plan, rows=False),
        "row-wise bootstrap": _resampled(first, plan, rows=True),
    }
    with Meter("coins", plan.matrices + 2 * plan.tau_replicates) as meter:

        def counted(stacks: Iterable[Any]) -> Iterator[Any]:
            for stack in stacks:
                meter.advance(1)
                yield stack

        return {
            title: convergence.tau_curve_independent(counted(stacks), truth, judged)
            for title, stacks in panels.items()
        }


def _resampled(matrix: Any, plan: StudyPlan, rows: bool) -> Iterator[Any]:
    """Bootstrap replicates of one stack (models, questions, trials)."""
    rng = np.random.default_rng([plan.seed, int(rows)])
    _, questions, trials = matrix.shape
    for _ in range(plan.tau_replicates):
        index = rng.integers(trials, size=(1, questions if rows else 1, trials))
        yield np.take_along_axis(matrix, index, axis=-1)


def _curves_table(panels: dict[str, list[TauCurve]]) -> Table:
    columns: dict[Column, list[Any]] = {
        shared.text("estimator", "estimator"): [m.title() for m in shared.judged(TRIALS)]
    }
    for letter, (title, curves) in zip("abc", panels.items(), strict=True):
        group = f"({letter}) {title}"
        columns |= shared.tau_columns(curves, _SHOWN, group, letter)
        undefined = Column(f"{letter}_undefined", "undefined", group=group)
        columns[undefined] = [int(curve.undefined.sum()) for curve in curves]
    notes = ["mean Kendall's tau_b with the true ranking", shared.UNDEFINED]
    return of_columns("Fig. 2: convergence to the true ranking of the coins", columns, notes)
