"""Fig. 4 and section 3.1: Kendall's tau of each estimator's ranking with the gold ranking."""

from typing import Any

import numpy as np

from pipeline.base.console import Meter
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.plots import convergence as plots
from pipeline.research.studies import Result, merged, paper, shared
from pipeline.research.studies.shared import Bits, Group
from scoring.studies import convergence
from scoring.studies.convergence import Resample, TauCurve

_SHOWN = (1, 2, 4, 8, 10, 20, 40, 80)
SCHEMES: tuple[Resample, ...] = ("columns", "rows")


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Curves of every data set and each of its `shared.groups`, both bootstraps.

    Raises:
        UserError: no data set has two models with two complete trials.
    """
    sound, notes = shared.each_sound(cohorts)
    work = [(c, data, g, s) for c, data in sound for g in shared.groups(c) for s in SCHEMES]
    results = []
    with Meter("tau", len(work)) as meter:
        for cohort, data, group, scheme in work:
            results.append(_one(plan, cohort, data, group, scheme))
            meter.advance(1)
    notes += [
        "Tau: the gold ranking is Bayes@N of the real matrix for every estimator; Pass@k starts at"
        " n = k. Columns resamples trials for all questions together (version 001, and our"
        " default), rows for each question apart (version 000).",
        "Tau: tau_b does not exist where all models tie; such replicates are counted and left out.",
        shared.NAIVE,
    ]
    return merged(*results, Result({}, {}, {}, notes))


def _one(plan: StudyPlan, cohort: Cohort, data: Bits, group: Group, scheme: Resample) -> Result:
    trials = data.shape[-1]
    curves = convergence.tau_curve(
        data[group.models], shared.judged(trials), plan.tau_replicates, scheme, plan.seed
    )
    title = f"{cohort.dataset}, {group.label}, resampled by {scheme}"
    stem = f"fig4_{cohort.dataset}_{len(group.models)}_{scheme}"
    n = np.arange(1, trials + 1)
    figure = plots.tau_curves(n, {c.label: c.tau for c in curves}, title)
    numbers = {}
    task = paper.task_of(cohort.dataset)
    if scheme == "columns" and group.version and task:
        for at in (10, 80):
            tau = shared.at(curves[0].tau, at)
            if tau is not None:
                numbers[f"tau.{group.version}.{task}.n{at}"] = tau
    return Result({stem: _table(title, curves, plan)}, {stem: figure}, numbers, [])


def _table(title: str, curves: list[TauCurve], plan: StudyPlan) -> Table:
    trials = len(curves[0].tau)
    shown = sorted({n for n in _SHOWN if n <= trials} | {trials})
    columns = [shared.text("estimator", "estimator")]
    columns += [shared.fixed(f"n{n}", f"N = {n}", group="mean tau_b") for n in shown]
    columns += [
        shared.fixed("error", "largest s.e.", 4),
        Column("undefined", "undefined"),
    ]
    rows: list[dict[str, Any]] = []
    for curve in curves:
        row: dict[str, Any] = {"estimator": curve.label, "undefined": int(curve.undefined.sum())}
        row |= {f"n{n}": shared.at(curve.tau, n) for n in shown}
        row["error"] = shared.value(curve.stderr.max())
        rows.append(row)
    notes = [
        f"{plan.tau_replicates:,} bootstrap replicates, seed {plan.seed}",
        "undefined: replicates, over all N, where all models tie; they enter no mean",
    ]
    return Table(f"Fig. 4: tau_b with the gold ranking, {title}", columns, rows, notes)
