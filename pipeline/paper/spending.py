"""Study of GPU-hours and tokens by model and dataset: Table 7, Fig. 8 and appendix F.3."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.paper import studies
from bayes_at_n.pipeline.paper.studies import Result, fixed, text
from bayes_at_n.pipeline.plots import studies as plots
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.outcomes import Usage

Costs = dict[tuple[str, str], Usage]  # by model and dataset


def cost(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Sum the cost by dataset and by model.

    Raises UserError: no run has attempts (outcomes imported as a matrix have none).
    """
    usages: Costs = {}
    members = [(cohort, member) for cohort in cohorts for member in cohort.members]
    with Meter("cost", len(members)) as meter:
        for cohort, member in members:
            usage = outcomes.usage(member.run)
            if usage.attempts:
                usages[member.name, cohort.dataset] = usage
            meter.advance(1)
    if not usages:
        raise UserError(
            "cost: no run has attempts with token counts; generate them, or import records"
        )
    notes = [
        "Cost: GPU-hours are wall time of generating processes, loading included, times their GPUs."
        " The paper's are at a batch size of 1: hours are not comparable with them, tokens are."
    ]
    untimed = [f"{m} on {d}" for (m, d), usage in usages.items() if usage.spent.gpu_s is None]
    if len(untimed) == len(usages):
        notes.append("Fig. 8: no run has a record of its time; only tokens are drawn.")
    elif untimed:
        notes.append(
            f"Cost: {len(untimed)} runs have no record of their time (imported?), such as"
            f" {untimed[0]}; sums that include one of them are not given."
        )
    by_model = {m: _total([u for (n, _), u in usages.items() if n == m]) for m, _ in usages}
    by_task = {d: _total([u for (_, e), u in usages.items() if e == d]) for _, d in usages}
    by_task["total"] = _total([*usages.values()])
    tables = {}
    for stem, title, first, totals in (
        ("table7", "Table 7: cost by task", text("dataset", "task"), by_task),
        ("fig8", "Fig. 8: cost by model", text("model", "model"), by_model),
    ):
        rows = [{first.key: name, **total} for name, total in totals.items()]
        tables[stem] = Table(title, [first, *_COLUMNS], rows, ["M: millions"])
    return Result(tables, {"fig8": _figure(usages)}, _numbers(cohorts, usages), notes)


def _total(usages: Sequence[Usage]) -> dict[str, Any]:
    """Sum the cells of one row; hours are None if a run has no record of its time."""
    attempts = sum(usage.attempts for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    prompt = sum(usage.prompt_tokens for usage in usages)
    seconds = [usage.spent.gpu_s for usage in usages if usage.spent.gpu_s is not None]
    hours = sum(s / 3600 for s in seconds) if len(seconds) == len(usages) else None
    return {
        "attempts": attempts,
        "hours": hours,
        "completion": completion / 1e6,
        "prompt": prompt / 1e6,
        "each": (prompt + completion) / attempts,
        "seconds": None if hours is None else 3600 * hours / attempts,
    }


_COLUMNS = (
    Column("attempts", "attempts", format="{:,}"),
    fixed("hours", "GPU-hours", 4),
    fixed("completion", "completion tokens (M)", 4),
    fixed("prompt", "prompt tokens (M)", 4),
    fixed("each", "tokens per attempt", 1),
    fixed("seconds", "GPU-seconds per attempt", 2),
)


def _figure(usages: Costs) -> Figure:
    models, datasets = (list(dict.fromkeys(names)) for names in zip(*usages, strict=True))
    hours = np.full((len(models), len(datasets)), np.nan)
    tokens = hours.copy()
    for (model, dataset), usage in usages.items():
        cell = models.index(model), datasets.index(dataset)
        tokens[cell] = usage.completion_tokens
        hours[cell] = np.nan if usage.spent.gpu_s is None else usage.spent.gpu_s / 3600
    longest = float(np.nanmax(np.nansum(hours, axis=1)))
    scale, unit = _unit(longest)
    figure = plots.cost(models, datasets, hours * scale, tokens, "Cost by model and dataset")
    left, right = figure.axes[:2]
    if longest:
        left.set_xlabel(f"inference time ({unit})")
    else:  # no times: tokens alone, over the whole width
        right.set_yticks(left.get_yticks(), [tick.get_text() for tick in left.get_yticklabels()])
        right.set_subplotspec(right.get_gridspec()[:])  # type: ignore[index]
        left.remove()
    return figure


def _unit(hours: float) -> tuple[float, str]:
    """Choose a unit for an axis of hours, and the factor to it.

    >>> _unit(48.4), _unit(0.05), _unit(0.002)
    ((1, 'GPU-hours'), (60, 'GPU-minutes'), (3600, 'GPU-seconds'))
    """
    if hours >= 0.1:
        return 1, "GPU-hours"
    return (60, "GPU-minutes") if 60 * hours >= 1 else (3600, "GPU-seconds")


def _numbers(cohorts: list[Cohort], usages: Costs) -> dict[str, float]:
    """Return the numbers of appendix F.3; empty without all twenty models on all four tasks."""
    known = {
        (number, task): usages[name, cohort.dataset]
        for cohort in cohorts
        if (task := studies.task_of(cohort.dataset))
        for number, name in zip(studies.paper_numbers(cohort), cohort.names, strict=True)
        if number and (name, cohort.dataset) in usages
    }
    if len(known) < len(studies.TWENTY) * len(studies.TASKS):
        return {}
    by_task = {task: [u for (_, t), u in known.items() if t == task] for task in studies.TASKS}
    total = _total([usage for usages in by_task.values() for usage in usages])
    tokens = total["prompt"] + total["completion"]
    numbers: dict[str, Any] = {
        "cost.attempts": total["attempts"],
        "cost.tokens": round(1e6 * tokens),
        "cost.prompt": total["prompt"],
        "cost.prompt_share": total["prompt"] / tokens,
        "cost.completion_share": total["completion"] / tokens,
        "cost.tokens_per_attempt": total["each"],
        "cost.completion.total": total["completion"],
        "cost.hours.total": total["hours"],
        "cost.seconds_per_attempt": total["seconds"],
        "cost.days": None if total["hours"] is None else total["hours"] / 24,
    }
    for task, of_task in by_task.items():
        numbers[f"cost.hours.{task}"] = _total(of_task)["hours"]
        numbers[f"cost.completion.{task}"] = _total(of_task)["completion"]
    for number, short in studies.short_names().items():
        of_model = [usage for (n, _), usage in known.items() if n == number]
        numbers[f"cost.model_hours.{short}"] = _total(of_model)["hours"]
    return {key: float(value) for key, value in numbers.items() if value is not None}
