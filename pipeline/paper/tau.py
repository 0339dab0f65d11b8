"""Fig. 4 and section 3.1: Kendall's tau of each estimator's ranking with the gold ranking."""

import itertools
from typing import Any

from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import Result, shared
from bayes_at_n.pipeline.paper.shared import Bits, Group
from bayes_at_n.pipeline.plots import convergence as plots
from bayes_at_n.scoring.studies import convergence
from bayes_at_n.scoring.studies.convergence import Resample, TauCurve


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Curves of every data set and each of its `shared.groups`, both bootstraps.

    Raises UserError: no data set has two models with two complete trials.
    """
    sound, notes = shared.each_complete(cohorts)
    result = Result(notes=notes)
    ranked = [(group, outcomes) for cohort, outcomes in sound for group in shared.groups(cohort)]
    with Meter("tau", len(ranked) * len(shared.SCHEMES)) as meter:
        for (group, outcomes), scheme in itertools.product(ranked, shared.SCHEMES):
            _add_curves(result, plan, group, outcomes[group.models], scheme)
            meter.advance(1)
    result.notes += [
        "Tau: the gold ranking is Bayes@N of the real matrix for every estimator; Pass@k starts at"
        " n = k. Columns resamples trials for all questions together (version 001, and our"
        " default), rows for each question apart (version 000).",
        "Tau: tau_b does not exist where all models tie; such replicates are counted and left out.",
        shared.NAIVE,
    ]
    return result


def _add_curves(
    result: Result, plan: StudyPlan, group: Group, stack: Bits, scheme: Resample
) -> None:
    trials = stack.shape[-1]
    curves = convergence.tau_curve(
        stack, shared.judged(trials), plan.tau_replicates, scheme, plan.seed
    )
    title = f"{group.title}, resampled by {scheme}"
    stem = f"fig4_{group.stem}_{scheme}"
    taus = {curve.label: curve.tau for curve in curves}
    result.tables[stem] = _table(title, curves, plan)
    result.figures[stem] = plots.tau_curves(range(1, trials + 1), taus, title)
    if scheme == "columns" and group.paper_id:
        for n in (10, 80):
            if n <= trials and (tau := shared.value(curves[0].tau[n - 1])) is not None:
                result.numbers[f"tau.{group.paper_id}.n{n}"] = tau


def _table(title: str, curves: list[TauCurve], plan: StudyPlan) -> Table:
    trials = len(curves[0].tau)
    columns: dict[Column, list[Any]] = {
        shared.text("estimator", "estimator"): [curve.label for curve in curves]
    }
    columns |= shared.tau_columns(curves, shared.shown(trials), "mean tau_b")
    errors = [shared.value(curve.stderr.max()) for curve in curves]
    columns[shared.fixed("error", "largest s.e.", 4)] = errors
    columns[Column("undefined", "undefined")] = [int(curve.undefined.sum()) for curve in curves]
    notes = [f"{plan.tau_replicates:,} bootstrap replicates, seed {plan.seed}", shared.UNDEFINED]
    return of_columns(f"Fig. 4: tau_b with the gold ranking, {title}", columns, notes)
