"""What a trajectory would evaluate: in one line, as the table of --dry-run, run by run."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pipeline.base.console import results, warn
from pipeline.base.errors import UserError
from pipeline.display.table import Column, Table
from pipeline.research.tables import columns, varies
from pipeline.research.trajectory import windows
from pipeline.research.trajectory.evaluate import Work
from pipeline.research.trajectory.plan import Evaluation, TrajectoryPlan, Window

_MOST = 20  # lines on a terminal; a file gets all


def check_out(out: Path) -> None:
    """Refuse a folder that cannot be made, before hours of evaluation.

    Raises:
        UserError: it cannot be made or written.
    """
    there = next(one for one in (out, *out.absolute().parents) if os.path.lexists(one))
    if not there.is_dir():
        raise UserError(f"out={out}: {there} is a file, not a folder; name a folder elsewhere")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"out={out}: {there} cannot be written; change its permissions, or name a folder"
            " elsewhere"
        )


def line(plan: TrajectoryPlan, lacking: Work) -> str:
    """The plan in one line."""
    finished = sum(one.finished for one in lacking.values())
    sizes = Counter(window.size for window in {one.window for one in plan.evaluations})
    parts = [
        f"{count} checkpoints" if size == 1 else f"{count} windows of {size}"
        for size, count in sorted(sizes.items())
    ]
    how = "sampled and greedy" if any(one.greedy for one in plan.evaluations) else "sampled"
    return (
        f"trajectory of {plan.label}: {' and '.join(parts)}, {how}: {len(lacking)} runs in"
        f" {', '.join(_places(plan))}, {finished} finished, {len(lacking) - finished} owed"
    )


def warn_unknown(lacking: Work) -> None:
    """Warn of finished runs of merged weights of which nothing says what they were made of."""
    unknown = [path for path, one in lacking.items() if one.unknown]
    if unknown:
        warn(
            f"{len(unknown)} finished runs of merged weights taken as they are: nothing is left"
            f" that says which checkpoints these were made of; first {unknown[0]}"
        )


def table(plan: TrajectoryPlan, lacking: Work) -> Table:
    """One row for each kind of run."""
    groups: dict[tuple[str, str, int, bool], list[Evaluation]] = {}
    for one in plan.evaluations:
        kind = (one.window.training, one.dataset, one.window.size, one.greedy)
        groups.setdefault(kind, []).append(one)
    rows = []
    for (training, dataset, size, greedy), of in groups.items():
        lacks = [lacking[str(one.run.path)] for one in of]
        rows.append(
            {
                "training": training,
                "dataset": dataset,
                "models": f"Merge@{size}",
                "decoding": "greedy" if greedy else f"{of[0].run.cfg.sampling.trials} trials",
                "runs": len(of),
                "finished": sum(one.finished for one in lacks),
                "unprepared": sum(one.prompts for one in lacks),
                "owed": sum(one.owed for one in lacks),
                "ungraded": sum(one.ungraded for one in lacks),
                "steps": f"{of[0].window.step} to {of[-1].window.step}",
            }
        )
    unprepared = any(row["unprepared"] for row in rows)
    heads = [
        Column("training", "training", align="left", wide=not varies(rows, "training")),
        *columns(align="left", dataset="data set", models="models", steps="steps"),
        *columns(align="left", decoding="decoding"),
        *columns(runs="runs", finished="finished"),
        Column("unprepared", "unprepared", wide=not unprepared),
        *columns(group="attempts", owed="owed", ungraded="ungraded"),
    ]
    note = "unprepared: questions whose prompts, or the log-probs of these, are owed"
    merged = dict.fromkeys(
        one.window.path.parent for one in plan.evaluations if one.window.size > 1
    )
    notes = [
        *[note] * unprepared,
        f"runs: {', '.join(_places(plan))}",
        *(f"merged weights: {place}" for place in dict.fromkeys(merged)),
        f"results: {plan.out}",
    ]
    return Table(f"trajectory of {plan.label}", heads, rows, notes)


def _places(plan: TrajectoryPlan) -> list[str]:
    """The folders that runs are in."""
    return list(dict.fromkeys(str(one.run.path.parent) for one in plan.evaluations))


def show_owed(plan: TrajectoryPlan, lacking: Work) -> None:
    """Print the settings of what is owed, for those who evaluate elsewhere, such as a cluster."""
    owed = [one for one in plan.evaluations if not lacking[str(one.run.path)].finished]
    merges = [one for one in dict.fromkeys(e.window for e in owed) if not windows.present(one)]
    _show(
        "weights to be merged first, settings of `python -m pipeline merge`:",
        [shlex.join(_merge_settings(one)) for one in merges],
    )
    _show(
        "runs owed, settings of `python -m pipeline run` or `submit`:",
        [shlex.join(one.settings) for one in owed],
    )


def _show(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    shown = lines[:_MOST] if results.is_terminal else lines
    results.print(title)
    for text in shown:
        results.print(f"  {text}")
    if len(shown) < len(lines):
        results.print(f"  and {len(lines) - len(shown)} more (all with --dry-run > FILE)")
    results.print()


def _merge_settings(window: Window) -> list[str]:
    return [f"checkpoints={','.join(map(str, window.sources))}", f"out={window.path}"]
