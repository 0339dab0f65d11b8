"""Table 7, Fig. 8 and appendix F.3: GPU-hours and tokens by model and data set."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from pipeline.base.console import Meter
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import Plan
from pipeline.display.table import Column, Table
from pipeline.plots import tokens as plots
from pipeline.research.studies import Result, paper, shared
from pipeline.store import shards, workers
from pipeline.store.columns import ATTEMPTS
from pipeline.store.runfolder import Run


class Cost(NamedTuple):
    """What one run took; None where nothing tells."""

    attempts: int
    prompt: int
    completion: int
    gpu_hours: float | None


def study(plan: Plan, cohorts: list[Cohort]) -> Result:
    """Sums by data set and by model.

    Raises:
        UserError: no run has attempts (outcomes that came as a matrix have none).
    """
    found: dict[tuple[str, str], Cost] = {}
    members = [(cohort, member) for cohort in cohorts for member in cohort.members]
    with Meter("cost", len(members)) as meter:
        for cohort, member in members:
            cost = _cost(member.run)
            if cost.attempts:
                found[member.name, cohort.dataset] = cost
            meter.advance(1)
    if not found:
        raise UserError(
            "no run holds attempts, which know their tokens; generate them, or import records"
        )
    notes = [
        "Cost: GPU-hours are wall time of generating processes, loading included, times their GPUs."
        " The paper's are at a batch size of 1: hours are not comparable with them, tokens are."
    ]
    without = [f"{m} on {d}" for (m, d), cost in found.items() if cost.gpu_hours is None]
    if len(without) == len(found):
        notes.append("Fig. 8: no run has a record of its time; only tokens are drawn.")
    elif without:
        notes.append(
            f"Cost: {len(without)} runs have no record of their time (imported?), such as"
            f" {without[0]}; a sum that one of them is part of is not given."
        )
    return Result(
        {"table7": _by_dataset(found), "fig8": _by_model(found)},
        {"fig8": _figure(found)},
        _numbers(cohorts, found),
        notes,
    )


def _cost(run: Run) -> Cost:
    attempts = prompt = completion = 0
    columns = ["trial", "prompt_tokens", "completion_tokens"]
    for batch in shards.batches(run.attempts, ATTEMPTS, columns, shards.Damage()):
        scored = batch["trial"].to_numpy() < run.cfg.sampling.trials
        attempts += int(scored.sum())
        prompt += _sum(batch["prompt_tokens"], scored)
        completion += _sum(batch["completion_tokens"], scored)
    seconds = workers.totals(run).gpu_s
    return Cost(attempts, prompt, completion, None if seconds is None else seconds / 3600)


def _sum(column: Any, scored: Any) -> int:
    return int(column.fill_null(0).to_numpy()[scored].sum())


def _total(costs: list[Cost]) -> dict[str, Any]:
    hours = [cost.gpu_hours for cost in costs if cost.gpu_hours is not None]
    prompt, completion = sum(c.prompt for c in costs), sum(c.completion for c in costs)
    attempts = sum(c.attempts for c in costs)
    return {
        "attempts": attempts,
        "hours": sum(hours) if len(hours) == len(costs) else None,
        "completion": completion / 1e6,
        "prompt": prompt / 1e6,
        "each": (prompt + completion) / attempts,
        "seconds": 3600 * sum(hours) / attempts if len(hours) == len(costs) else None,
    }


_COLUMNS = (
    Column("attempts", "attempts", format="{:,}"),
    shared.fixed("hours", "GPU-hours", 4),
    shared.fixed("completion", "completion tokens (M)", 4),
    shared.fixed("prompt", "prompt tokens (M)", 4),
    shared.fixed("each", "tokens per attempt", 1),
    shared.fixed("seconds", "GPU-seconds per attempt", 2),
)


def _by_dataset(found: dict[tuple[str, str], Cost]) -> Table:
    datasets = list(dict.fromkeys(dataset for _, dataset in found))
    rows = [
        {"dataset": name, **_total([cost for (_, d), cost in found.items() if d == name])}
        for name in datasets
    ]
    rows.append({"dataset": "total", **_total(list(found.values()))})
    columns = [shared.text("dataset", "task"), *_COLUMNS]
    return Table("Table 7: cost by task", columns, rows, ["M: millions"])


def _by_model(found: dict[tuple[str, str], Cost]) -> Table:
    models = list(dict.fromkeys(model for model, _ in found))
    rows = [
        {"model": name, **_total([cost for (m, _), cost in found.items() if m == name])}
        for name in models
    ]
    columns = [shared.text("model", "model"), *_COLUMNS]
    return Table("Fig. 8: cost by model", columns, rows, ["M: millions"])


def _figure(found: dict[tuple[str, str], Cost]) -> Figure:
    models = list(dict.fromkeys(model for model, _ in found))
    datasets = list(dict.fromkeys(dataset for _, dataset in found))
    hours = np.full((len(models), len(datasets)), np.nan)
    tokens = hours.copy()
    for (model, dataset), cost in found.items():
        cell = models.index(model), datasets.index(dataset)
        tokens[cell] = cost.completion
        hours[cell] = np.nan if cost.gpu_hours is None else cost.gpu_hours
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


def _numbers(cohorts: list[Cohort], found: dict[tuple[str, str], Cost]) -> dict[str, float]:
    """The numbers of appendix F.3; only those of all twenty models on all four tasks."""
    runs: dict[tuple[str, int], Cost] = {}
    for cohort in cohorts:
        task = paper.task_of(cohort.dataset)
        for number, name in zip(shared.paper_numbers(cohort), cohort.names, strict=True):
            if task and number and (name, cohort.dataset) in found:
                runs[task, number] = found[name, cohort.dataset]
    if len(runs) < len(paper.TASKS) * len(paper.TWENTY):
        return {}
    total = _total(list(runs.values()))
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
    for task in paper.TASKS:
        of_task = _total([cost for (t, _), cost in runs.items() if t == task])
        numbers |= {f"cost.hours.{task}": of_task["hours"]}
        numbers |= {f"cost.completion.{task}": of_task["completion"]}
    for number, short in paper.short_names().items():
        of_model = _total([cost for (_, n), cost in runs.items() if n == number])
        numbers[f"cost.model_hours.{short}"] = of_model["hours"]
    return {key: float(value) for key, value in numbers.items() if value is not None}
