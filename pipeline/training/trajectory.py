"""trajectory: measure how steadily scores follow training, by protocol (MaP, Wang et al. 2025).

Plan the runs, evaluate what is pending, analyze, save.
"""

import shlex
from collections.abc import Sequence

from bayes_at_n.pipeline.base.console import note, plural, results, warnings_once
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.multirun import load_trajectory
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.training import evaluate, stability, tracks, windows
from bayes_at_n.pipeline.training.cells import Row, names
from bayes_at_n.pipeline.training.evaluate import Work
from bayes_at_n.pipeline.training.windows import Evaluation, Series


def run(settings: Sequence[str], dry_run: bool = False) -> None:
    """Evaluate checkpoints and merged windows, and show how steadily scores follow training.

    With `dry_run` only show what would be evaluated. Raises UserError: invalid settings,
    checkpoints or run folders; unfinished runs, with the exit status of the last. OSError: the
    folder of the results cannot be created or written.
    """
    request = load_trajectory(settings)
    if request.cfg.watch.folder and not dry_run:
        from bayes_at_n.pipeline.training import watch

        return watch.watch(request)
    with warnings_once() as warnings:
        planned = windows.plan(request)
        work = evaluate.work(planned)
        if dry_run:
            table = work_table(planned, work)
            tabular.show(table)
            tabular.print_json({"runs": table.rows, "notes": table.notes})
            _show_pending(planned, work)
            note("nothing was written or evaluated")
            return
        done = sum(run.finished for run in work.values())
        note(
            f"trajectory of {planned.label}: {len(work)} runs in {_folders(planned)}, {done}"
            f" finished, {len(work) - done} pending"
        )
        evaluate.evaluate(planned, work, request.cfg.merge.keep)
        curves = stability.read(planned, request)
        trials = max((curve.trials for curve in curves if not curve.fixed), default=0)
        short = [m.title() for m in tracks.metrics(request.cfg.metrics) if m.k > trials > 0]
        if short:
            note(f"{', '.join(short)} left out, as there are only {plural(trials, 'trial')}")
        stability.show(stability.save(curves, request, planned, warnings), request.cfg)


def _folders(planned: Series) -> str:
    """Return the folders of the runs, as text."""
    return ", ".join(dict.fromkeys(str(e.run.path.parent) for e in planned.evaluations))


def work_table(planned: Series, work: Work) -> Table:
    """Tabulate the remaining work, one row for each kind of run."""
    kinds: dict[tuple[str, str, int, str], list[Evaluation]] = {}
    for e in planned.evaluations:
        kinds.setdefault((e.window.training, e.dataset, e.window.size, e.kind), []).append(e)
    rows: list[Row] = []
    for (training, dataset, size, kind), evaluations in kinds.items():
        counts = [work[e.run.path] for e in evaluations]
        first, last = evaluations[0], evaluations[-1]
        rows.append(
            {
                "training": training,
                "dataset": dataset,
                "models": f"Merge@{size}",
                "steps": f"{first.window.step} to {last.window.step}",
                "decoding": kind or f"{first.run.cfg.sampling.trials} trials",
                "runs": len(evaluations),
                "finished": sum(run.finished for run in counts),
                "pending": sum(run.pending for run in counts),
                "ungraded": sum(run.ungraded for run in counts),
            }
        )
    heads = [
        *names(rows, training="training"),
        *columns(align="left", dataset="dataset", models="models", steps="steps"),
        *columns(align="left", decoding="decoding"),
        *columns(runs="runs", finished="finished"),
        *columns(group="attempts", pending="pending", ungraded="ungraded"),
    ]
    notes = [f"runs: {_folders(planned)}", f"results: {planned.out}"]
    return Table(f"trajectory of {planned.label}", heads, rows, notes)


def _show_pending(planned: Series, work: Work) -> None:
    """Print the commands of pending merges and runs, to run them elsewhere, as on a cluster."""
    pending = [e for e in planned.evaluations if not work[e.run.path].finished]
    for w in dict.fromkeys(e.window for e in pending):
        if not evaluate.present(w):
            arguments = [f"checkpoints={','.join(map(str, w.sources))}", f"out={w.path}"]
            results.print(f"{PROGRAM} merge {shlex.join(arguments)}")
    for e in pending:
        results.print(f"{PROGRAM} run {shlex.join(e.settings)}")
