"""What a trajectory would evaluate: in one line, as the table of --dry-run, run by run."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.base.console import results, warn
from pipeline.base.errors import UserError
from pipeline.display.table import Column, Table
from pipeline.research.trajectory import evaluate, merged
from pipeline.research.trajectory.evaluate import Standings
from pipeline.research.trajectory.plan import Evaluation, Plan, Weights

_MOST = 20  # lines on a terminal; a file gets all
_NOTE = "unprepared: questions whose prompts, or the log-probs of these, are owed"


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


def line(made: Plan, standings: Standings) -> str:
    """The plan in one line."""
    runs = [standings[evaluate.key(one)] for one in made.evaluations]
    finished = sum(one.finished for one in runs)
    sizes = dict.fromkeys(one.weights.window for one in made.evaluations)
    models = {
        size: len({one.weights.name for one in made.evaluations if one.weights.window == size})
        for size in sizes
    }
    parts = [
        f"{count} checkpoints" if size == 1 else f"{count} windows of {size}"
        for size, count in models.items()
    ]
    how = "sampled and greedy" if any(one.greedy for one in made.evaluations) else "sampled"
    return (
        f"trajectory of {made.label}: {' and '.join(parts)}, {how}: {len(runs)} runs in"
        f" {', '.join(_places(made))}, {finished} finished, {len(runs) - finished} owed"
    )


def warn_unknown(made: Plan, standings: Standings) -> None:
    """Warn of finished runs of merged weights of which nothing says what they were made of."""
    unknown = [one for one in made.evaluations if standings[evaluate.key(one)].unknown]
    if unknown:
        warn(
            f"{len(unknown)} finished runs of merged weights taken as they are: nothing is left"
            f" that says which checkpoints these were made of; first {unknown[0].run.path}"
        )


def table(made: Plan, standings: Standings) -> Table:
    """One row for each kind of run."""
    groups: dict[tuple[Any, ...], list[Evaluation]] = {}
    for one in made.evaluations:
        key = (one.weights.training, one.dataset, one.weights.window, one.greedy)
        groups.setdefault(key, []).append(one)
    rows = []
    for (training, dataset, window, greedy), of in groups.items():
        stands = [standings[evaluate.key(one)] for one in of]
        rows.append(
            {
                "training": training,
                "dataset": dataset,
                "models": f"Merge@{window}",
                "decoding": "greedy" if greedy else f"{of[0].run.cfg.sampling.trials} trials",
                "runs": len(of),
                "finished": sum(one.finished for one in stands),
                "unprepared": sum(one.prompts for one in stands),
                "owed": sum(one.owed for one in stands),
                "ungraded": sum(one.ungraded for one in stands),
                "steps": f"{of[0].weights.step} to {of[-1].weights.step}",
            }
        )
    several = len({row["training"] for row in rows}) > 1
    columns = [
        Column("training", "training", align="left", wide=not several),
        Column("dataset", "data set", align="left"),
        Column("models", "models", align="left"),
        Column("steps", "steps", align="left"),
        Column("decoding", "decoding", align="left"),
        Column("runs", "runs"),
        Column("finished", "finished"),
        Column("unprepared", "unprepared", wide=not any(row["unprepared"] for row in rows)),
        Column("owed", "owed", group="attempts"),
        Column("ungraded", "ungraded", group="attempts"),
    ]
    windows = [one.weights.path for one in made.evaluations if one.weights.window > 1]
    notes = [_NOTE] if any(row["unprepared"] for row in rows) else []
    notes += [f"runs: {', '.join(_places(made))}"]
    notes += [f"merged weights: {place}" for place in dict.fromkeys(one.parent for one in windows)]
    notes.append(f"results: {made.out}")
    return Table(f"trajectory of {made.label}", columns, rows, notes)


def _places(made: Plan) -> list[str]:
    """The folders that runs are in."""
    return list(dict.fromkeys(str(one.run.path.parent) for one in made.evaluations))


def show_owed(made: Plan, standings: Standings) -> None:
    """Print the settings of what is owed, for those who evaluate elsewhere, such as a cluster."""
    owed = [one for one in made.evaluations if not standings[evaluate.key(one)].finished]
    models = dict.fromkeys(one.weights for one in owed)
    _show(
        "weights to be merged first, settings of `python -m pipeline merge`:",
        [one for one in models if not merged.present(one)],
        merge_line,
    )
    _show("runs owed, settings of `python -m pipeline run` or `submit`:", owed, run_line)


def _show(title: str, things: list[Any], told: Callable[[Any], str]) -> None:
    if not things:
        return
    shown = things[:_MOST] if results.is_terminal else things
    results.print(title)
    for one in shown:
        results.print(f"  {told(one)}")
    if len(shown) < len(things):
        results.print(f"  and {len(things) - len(shown)} more (all with --dry-run > FILE)")
    results.print()


def run_line(one: Evaluation) -> str:
    """The settings that make exactly one run, quoted for a shell."""
    return shlex.join(one.settings)


def merge_line(weights: Weights) -> str:
    """The settings that make the weights of a window, quoted for a shell."""
    sources = ",".join(map(str, weights.sources))
    return shlex.join([f"checkpoints={sources}", f"out={weights.path}"])
