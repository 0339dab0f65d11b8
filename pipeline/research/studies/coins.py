"""Table 1 and Fig. 2 of version 000 (Fig. 1 of 001): biased coins in place of models.

A reconstruction: only the coins' means are printed, see :mod:`scoring.studies.simulation`.
Table 1 is shown over many sets of coins; the curves are of the first set.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import scoring
from pipeline.base.console import Meter
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import Plan
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


def study(plan: Plan, cohorts: list[Cohort]) -> Result:
    """Simulate; `cohorts` are not looked at."""
    table, numbers = _table_1(plan)
    panels = _panels(plan)
    figures = {f"fig2{letter}": _figure(letter, title, found) for letter, title, found in panels}
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


def _table_1(plan: Plan) -> tuple[Table, dict[str, float]]:
    """The commonest row of ranks over sets, from one matrix of 80 trials a set."""
    coins = simulation.coin_models(plan.seed, plan.coin_sets)
    mean = coins[0].mean(axis=-1)
    mu, sigma = scoring.bayes(simulation.toss(coins, TRIALS, plan.seed))
    found = {
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
        of_kind = found[kind]
        distinct, times = np.unique(of_kind, axis=0, return_counts=True)
        commonest = distinct[times.argmax()]
        row = {name: int(rank) for name, rank in zip(names, commonest, strict=True)}
        rows.append({"ranking": title, **row})
        start = f"coins.{kind}"
        numbers |= {f"{start}.{name}": rank for name, rank in row.items()}
        if kind == "gold":
            continue
        same = (of_kind == commonest).mean(axis=0)
        shares = {name: f"{share:.2f}" for name, share in zip(names, same, strict=True)}
        rows.append({"ranking": "share of sets with that rank", **shares})
        printed = paper.values([f"{start}.{name}" for name in names])
        alike = float((of_kind == printed).all(axis=1).mean())
        ends = np.quantile(of_kind, [0.025, 0.975], axis=0, method="nearest")
        for i, name in enumerate(names):
            numbers[f"{start}.{name}.other"] = alike
            numbers |= {f"{start}.{name}.low": ends[0, i], f"{start}.{name}.high": ends[1, i]}
        notes.append(
            f"{title}: the commonest row comes out in {times.max() / times.sum():.1%} of sets, the"
            f" printed row in {alike:.1%}"
        )
    columns = [shared.text("ranking", "ranking"), *(Column(name, name) for name in names[::-1])]
    return Table("Table 1: ranks of the biased coins", columns, rows, notes), numbers


def _panels(plan: Plan) -> list[tuple[str, str, list[TauCurve]]]:
    """Kendall's tau against the true ranking in three ways."""
    coins = simulation.coin_models(plan.seed, 1)[0]
    truth, judged = np.round(coins.mean(axis=-1), 4), shared.judged(TRIALS)
    steps = plan.matrices + 2 * plan.tau_replicates
    with Meter("coins", steps) as meter:

        def counted(stacks: Iterator[Any]) -> Iterator[Any]:
            for stack in stacks:
                meter.advance(1)
                yield stack

        def curves(stacks: Iterator[Any]) -> list[TauCurve]:
            return convergence.tau_curve_independent(counted(stacks), truth, judged)

        first = simulation.toss(coins, TRIALS, plan.seed)
        return [
            (
                "a",
                f"{plan.matrices:,} independent matrices",
                curves(simulation.tosses(coins, TRIALS, plan.matrices, plan.seed)),
            ),
            ("b", "column-wise bootstrap", curves(_resampled(first, plan, rows=False))),
            ("c", "row-wise bootstrap", curves(_resampled(first, plan, rows=True))),
        ]


def _resampled(matrix: Any, plan: Plan, rows: bool) -> Iterator[Any]:
    """Bootstrap replicates of one stack (models, questions, trials)."""
    rng = np.random.default_rng([plan.seed, int(rows)])
    questions, trials = matrix.shape[1:]
    for _ in range(plan.tau_replicates):
        if rows:
            index = rng.integers(trials, size=(1, questions, trials))
            yield np.take_along_axis(matrix, index, axis=-1)
        else:
            yield matrix[..., rng.integers(trials, size=trials)]


def _figure(letter: str, title: str, found: list[TauCurve]) -> Any:
    n = np.arange(1, TRIALS + 1)
    curves = {c.label: c.tau for c in found}
    return plots.tau_curves(n, curves, f"({letter}) {title}", "the true ranking")


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
