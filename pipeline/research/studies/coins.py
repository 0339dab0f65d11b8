"""Table 1 and Fig. 2 of version 000 (Fig. 1 of 001): biased coins in place of models.

A reconstruction: only the coins' means are printed, see :mod:`scoring.studies.simulation`.
Table 1 is shown over many sets of coins; the curves are of the first set.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import scoring
from pipeline.base.console import Meter
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.plots import convergence as plots
from pipeline.research.studies import Result, paper, shared
from scoring.ranking.ranks import ranks, ranks_with_uncertainty
from scoring.studies import convergence, simulation
from scoring.studies.convergence import TauCurve

TRIALS = 80
_SHOWN = (1, 8, 20, 80)
_TITLES = {
    "gold": "gold standard",
    "plain": f"Bayes@{TRIALS} without interval",
    "ci": f"Bayes@{TRIALS} with interval",
}
_RECONSTRUCTION = (
    "Reconstruction: the paper prints the means of the coins, not their probabilities. Ours are"
    " drawn from Beta(i, 18 - i) given the printed means; what is said of ranks is over sets."
)


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Simulate; `cohorts` are not looked at."""
    table, numbers = _table_1(plan)
    panels = _panels(plan)
    n = np.arange(1, TRIALS + 1)
    figures = {}
    for letter, title, curves in panels:
        taus = {curve.label: curve.tau for curve in curves}
        figures[f"fig2{letter}"] = plots.tau_curves(
            n, taus, f"({letter}) {title}", "the true ranking"
        )
    return Result(
        {"table1": table, "fig2": _curves_table(panels)},
        figures,
        numbers,
        [
            _RECONSTRUCTION,
            *(f"Table 1: {line}." for line in table.notes[-2:]),
            "Fig. 2: all three panels are held against the true ranking, as the caption says; the"
            " bootstraps are of the first matrix of panel a.",
            shared.NAIVE,
        ],
    )


def _table_1(plan: StudyPlan) -> tuple[Table, dict[str, float]]:
    """The commonest row of ranks over sets, from one matrix of 80 trials a set."""
    coins = simulation.coin_models(plan.seed, plan.coin_sets)
    mean = coins[0].mean(axis=-1)
    mu, sigma = scoring.bayes(simulation.toss(coins, TRIALS, plan.seed))
    rankings = {
        "gold": ranks(np.round(mean, 4), method="dense")[None],
        "plain": ranks(mu),
        "ci": ranks_with_uncertainty(mu, sigma),
    }
    names = [f"LLM{i}" for i in range(1, mu.shape[1] + 1)]
    numbers = {f"coins.mean.{name}": float(one) for name, one in zip(names, mean, strict=True)}
    rows: list[dict[str, Any]] = []
    notes = [
        f"the commonest whole row over {plan.coin_sets} reconstructed sets, one matrix each",
        "with interval: consecutive z, dense, z = 1.645 (one-sided 95 %); gold: dense",
    ]
    for kind, title in _TITLES.items():
        ids = [f"coins.{kind}.{name}" for name in names]
        distinct, times = np.unique(rankings[kind], axis=0, return_counts=True)
        commonest = distinct[times.argmax()]
        rows.append({"ranking": title, **dict(zip(names, commonest.tolist(), strict=True))})
        numbers |= zip(ids, commonest.tolist(), strict=True)
        if kind == "gold":
            continue
        same = (rankings[kind] == commonest).mean(axis=0)
        shares = {name: f"{share:.2f}" for name, share in zip(names, same, strict=True)}
        rows.append({"ranking": "share of sets with that rank", **shares})
        alike = float((rankings[kind] == paper.values(ids)).all(axis=1).mean())
        ends = np.quantile(rankings[kind], [0.025, 0.975], axis=0, method="nearest")
        for key, low, high in zip(ids, *ends, strict=True):
            numbers |= {f"{key}.other": alike, f"{key}.low": low, f"{key}.high": high}
        notes.append(
            f"{title}: the commonest row comes out in {times.max() / times.sum():.1%} of sets, the"
            f" printed row in {alike:.1%}"
        )
    columns = [shared.text("ranking", "ranking"), *(Column(name, name) for name in names[::-1])]
    return Table("Table 1: ranks of the biased coins", columns, rows, notes), numbers


def _panels(plan: StudyPlan) -> list[tuple[str, str, list[TauCurve]]]:
    """Letter, title and curves of Kendall's tau against the true ranking in three ways."""
    coins = simulation.coin_models(plan.seed, 1)[0]
    truth, judged = np.round(coins.mean(axis=-1), 4), shared.judged(TRIALS)
    first = simulation.toss(coins, TRIALS, plan.seed)
    ways = {
        f"{plan.matrices:,} independent matrices": simulation.tosses(
            coins, TRIALS, plan.matrices, plan.seed
        ),
        "column-wise bootstrap": _resampled(first, plan, rows=False),
        "row-wise bootstrap": _resampled(first, plan, rows=True),
    }
    panels = []
    with Meter("coins", plan.matrices + 2 * plan.tau_replicates) as meter:

        def counted(stacks: Iterable[Any]) -> Iterator[Any]:
            for stack in stacks:
                meter.advance(1)
                yield stack

        for letter, (title, stacks) in zip("abc", ways.items(), strict=True):
            curves = convergence.tau_curve_independent(counted(stacks), truth, judged)
            panels.append((letter, title, curves))
    return panels


def _resampled(matrix: Any, plan: StudyPlan, rows: bool) -> Iterator[Any]:
    """Bootstrap replicates of one stack (models, questions, trials)."""
    rng = np.random.default_rng([plan.seed, int(rows)])
    questions, trials = matrix.shape[1:]
    for _ in range(plan.tau_replicates):
        if rows:
            index = rng.integers(trials, size=(1, questions, trials))
            yield np.take_along_axis(matrix, index, axis=-1)
        else:
            yield matrix[..., rng.integers(trials, size=trials)]


def _curves_table(panels: list[tuple[str, str, list[TauCurve]]]) -> Table:
    columns = [shared.text("estimator", "estimator")]
    rows: list[dict[str, Any]] = [{"estimator": c.label} for c in panels[0][2]]
    for letter, title, found in panels:
        group = f"({letter}) {title}"
        columns += [shared.fixed(f"{letter}{n}", f"N = {n}", group=group) for n in _SHOWN]
        columns.append(Column(f"{letter}_undefined", "undefined", group=group))
        for row, curve in zip(rows, found, strict=True):
            row |= {f"{letter}{n}": shared.at(curve.tau, n) for n in _SHOWN}
            row[f"{letter}_undefined"] = int(curve.undefined.sum())
    notes = [
        "mean Kendall's tau_b with the true ranking",
        "undefined: replicates, over all N, where all models tie; they enter no mean",
    ]
    return Table("Fig. 2: convergence to the true ranking of the coins", columns, rows, notes)
