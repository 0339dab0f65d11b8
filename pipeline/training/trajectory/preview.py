"""What a trajectory would evaluate: in one line, as the table of --dry-run, run by run."""

import shlex
from collections import Counter
from collections.abc import Sequence

from bayes_at_n.pipeline.base.console import results, warn
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.training.tables import Row, names
from bayes_at_n.pipeline.training.trajectory import windows
from bayes_at_n.pipeline.training.trajectory.evaluate import Work
from bayes_at_n.pipeline.training.trajectory.plan import Evaluation, TrajectoryPlan

_MOST = 20  # lines on a terminal; a file gets all


def line(plan: TrajectoryPlan, lacking: Work) -> str:
    """The plan in one line."""
    finished = sum(run.finished for run in lacking.values())
    sizes = Counter(window.size for window in {e.window for e in plan.evaluations})
    models = [
        f"{count} checkpoints" if size == 1 else f"{count} windows of {size}"
        for size, count in sorted(sizes.items())
    ]
    how = "sampled and greedy" if any(e.greedy for e in plan.evaluations) else "sampled"
    return (
        f"trajectory of {plan.label}: {' and '.join(models)}, {how}: {len(lacking)} runs in"
        f" {_places(plan)}, {finished} finished, {len(lacking) - finished} owed"
    )


def warn_unknown(lacking: Work) -> None:
    """Warn of finished runs of merged weights of which nothing says what they were made of."""
    if unknown := [path for path, run in lacking.items() if run.unknown]:
        warn(
            f"{len(unknown)} finished runs of merged weights taken as they are: nothing is left"
            f" that says which checkpoints these were made of; first {unknown[0]}"
        )


def table(plan: TrajectoryPlan, lacking: Work) -> Table:
    """One row for each kind of run."""
    kinds: dict[tuple[str, str, int, bool], list[Evaluation]] = {}
    for e in plan.evaluations:
        kinds.setdefault((e.window.training, e.dataset, e.window.size, e.greedy), []).append(e)
    rows: list[Row] = []
    for (training, dataset, size, greedy), evaluations in kinds.items():
        lacks = [lacking[e.run.path] for e in evaluations]
        first, last = evaluations[0], evaluations[-1]
        rows.append(
            {
                "training": training,
                "dataset": dataset,
                "models": f"Merge@{size}",
                "decoding": "greedy" if greedy else f"{first.run.cfg.sampling.trials} trials",
                "runs": len(evaluations),
                "finished": sum(run.finished for run in lacks),
                "unprepared": sum(run.prompts for run in lacks),
                "owed": sum(run.owed for run in lacks),
                "ungraded": sum(run.ungraded for run in lacks),
                "steps": f"{first.window.step} to {last.window.step}",
            }
        )
    unprepared = any(row["unprepared"] for row in rows)
    heads = [
        *names(rows, training="training"),
        *columns(align="left", dataset="data set", models="models", steps="steps"),
        *columns(align="left", decoding="decoding"),
        *columns(runs="runs", finished="finished"),
        *columns(wide=not unprepared, unprepared="unprepared"),
        *columns(group="attempts", owed="owed", ungraded="ungraded"),
    ]
    note = "unprepared: questions whose prompts, or the log-probs of these, are owed"
    merged = dict.fromkeys(e.window.path.parent for e in plan.evaluations if e.window.size > 1)
    notes = [
        *[note] * unprepared,
        f"runs: {_places(plan)}",
        *(f"merged weights: {place}" for place in merged),
        f"results: {plan.out}",
    ]
    return Table(f"trajectory of {plan.label}", heads, rows, notes)


def _places(plan: TrajectoryPlan) -> str:
    """The folders that runs are in."""
    return ", ".join(dict.fromkeys(str(e.run.path.parent) for e in plan.evaluations))


def show_owed(plan: TrajectoryPlan, lacking: Work) -> None:
    """Print the settings of what is owed, for those who evaluate elsewhere, such as a cluster."""
    owed = [e for e in plan.evaluations if not lacking[e.run.path].finished]
    merges = [w for w in dict.fromkeys(e.window for e in owed) if not windows.present(w)]
    _show(
        f"weights to be merged first, settings of `{PROGRAM} merge`:",
        [[f"checkpoints={','.join(map(str, w.sources))}", f"out={w.path}"] for w in merges],
    )
    _show(
        f"runs owed, settings of `{PROGRAM} run` or `submit`:",
        [evaluation.settings for evaluation in owed],
    )


def _show(title: str, commands: Sequence[Sequence[str]]) -> None:
    shown = commands[:_MOST] if results.is_terminal else commands
    if shown:
        results.print(title)
    for settings in shown:
        results.print(f"  {shlex.join(settings)}")
    if len(shown) < len(commands):
        results.print(f"  and {len(commands) - len(shown)} more (all with --dry-run > FILE)")
    if shown:
        results.print()
