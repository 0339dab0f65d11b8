"""Table 7, Fig. 8 and appendix F.3: GPU-hours and tokens by model and data set."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pipeline.base.console import Meter
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.plots import tokens as plots
from pipeline.research.studies import Result, paper, shared
from pipeline.store import outcomes
from pipeline.store.outcomes import Usage

Costs = dict[tuple[str, str], Usage]  # by model and data set


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Sums by data set and by model.

    Raises:
        UserError: no run has attempts (outcomes that came as a matrix have none).
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
            "no run holds attempts, which know their tokens; generate them, or import records"
        )
    notes = [
        "Cost: GPU-hours are wall time of generating processes, loading included, times their GPUs."
        " The paper's are at a batch size of 1: hours are not comparable with them, tokens are."
    ]
    without = [f"{m} on {d}" for (m, d), cost in usages.items() if cost.spent.gpu_s is None]
    if len(without) == len(usages):
        notes.append("Fig. 8: no run has a record of its time; only tokens are drawn.")
    elif without:
        notes.append(
            f"Cost: {len(without)} runs have no record of their time (imported?), such as"
            f" {without[0]}; a sum that one of them is part of is not given."
        )
    by_task, by_model = defaultdict[str, list[Usage]](list), defaultdict[str, list[Usage]](list)
    for (model, dataset), usage in usages.items():
        by_model[model].append(usage)
        by_task[dataset].append(usage)
    by_task["total"] = [*usages.values()]
    return Result(
        {
            "table7": _table("Table 7: cost by task", shared.text("dataset", "task"), by_task),
            "fig8": _table("Fig. 8: cost by model", shared.text("model", "model"), by_model),
        },
        {"fig8": _figure(usages)},
        _numbers(cohorts, usages),
        notes,
    )


def _total(costs: Sequence[Usage]) -> dict[str, Any]:
    seconds = [cost.spent.gpu_s for cost in costs if cost.spent.gpu_s is not None]
    hours = sum(s / 3600 for s in seconds) if len(seconds) == len(costs) else None
    prompt, completion = (
        sum(c.prompt_tokens for c in costs),
        sum(c.completion_tokens for c in costs),
    )
    attempts = sum(c.attempts for c in costs)
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
    shared.fixed("hours", "GPU-hours", 4),
    shared.fixed("completion", "completion tokens (M)", 4),
    shared.fixed("prompt", "prompt tokens (M)", 4),
    shared.fixed("each", "tokens per attempt", 1),
    shared.fixed("seconds", "GPU-seconds per attempt", 2),
)


def _table(title: str, column: Column, groups: Mapping[str, Sequence[Usage]]) -> Table:
    rows = [{column.key: name, **_total(costs)} for name, costs in groups.items()]
    return Table(title, [column, *_COLUMNS], rows, ["M: millions"])


def _figure(usages: Costs) -> Figure:
    models = list(dict.fromkeys(model for model, _ in usages))
    datasets = list(dict.fromkeys(dataset for _, dataset in usages))
    hours = np.full((len(models), len(datasets)), np.nan)
    tokens = hours.copy()
    for (model, dataset), cost in usages.items():
        cell = models.index(model), datasets.index(dataset)
        tokens[cell] = cost.completion_tokens
        hours[cell] = np.nan if cost.spent.gpu_s is None else cost.spent.gpu_s / 3600
    longest = float(np.nanmax(np.nansum(hours, axis=1)))
    scale, unit = _unit(longest)
    figure = plots.cost(
        models,
        datasets,
        np.ma.masked_invalid(hours * scale),  # type: ignore[no-untyped-call]
        np.ma.masked_invalid(tokens),  # type: ignore[no-untyped-call]
        "Cost by model and data set",
    )
    left, right = figure.axes[:2]
    if longest:
        left.set_xlabel(f"inference time ({unit})")
    else:  # unknown or nothing: only tokens are to be seen, over the whole width
        right.set_yticks(left.get_yticks(), [tick.get_text() for tick in left.get_yticklabels()])
        right.set_subplotspec(right.get_gridspec()[:])  # type: ignore[index]
        left.remove()
    return figure


def _unit(hours: float) -> tuple[float, str]:
    """What to multiply hours by, and what they then are, so that an axis shows them.

    >>> _unit(48.4), _unit(0.05), _unit(0.002)
    ((1, 'GPU-hours'), (60, 'GPU-minutes'), (3600, 'GPU-seconds'))
    """
    if hours >= 0.1:
        return 1, "GPU-hours"
    return (60, "GPU-minutes") if 60 * hours >= 1 else (3600, "GPU-seconds")


def _numbers(cohorts: list[Cohort], usages: Costs) -> dict[str, float]:
    """The numbers of appendix F.3; only those of all twenty models on all four tasks."""
    by_task: dict[str, list[Usage]] = {task: [] for task in paper.TASKS}
    by_model: dict[int, list[Usage]] = {number: [] for number in paper.TWENTY}
    for cohort in cohorts:
        task = paper.task_of(cohort.dataset)
        for number, name in zip(shared.paper_numbers(cohort), cohort.names, strict=True):
            if task and number and (name, cohort.dataset) in usages:
                by_task[task].append(usages[name, cohort.dataset])
                by_model[number].append(usages[name, cohort.dataset])
    if any(len(costs) < len(paper.TWENTY) for costs in by_task.values()):
        return {}
    total = _total([cost for costs in by_task.values() for cost in costs])
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
    for task, costs in by_task.items():
        numbers[f"cost.hours.{task}"] = _total(costs)["hours"]
        numbers[f"cost.completion.{task}"] = _total(costs)["completion"]
    for number, costs in by_model.items():
        short = paper.short_names()[number]
        numbers[f"cost.model_hours.{short}"] = _total(costs)["hours"]
    return {key: float(value) for key, value in numbers.items() if value is not None}
