"""trajectory: measure how steadily scores follow training, by protocol (MaP, Wang et al. 2025).

Plan the runs, evaluate what is pending, analyze, save.
"""

import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict

from bayes_at_n.pipeline.base.console import note, results, warnings_once
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settle import Request
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig, load
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.store import files
from bayes_at_n.pipeline.training import cells, evaluate, protocols, tracks, windows
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, names, varies, where
from bayes_at_n.pipeline.training.evaluate import Work
from bayes_at_n.pipeline.training.protocols import AVG
from bayes_at_n.pipeline.training.tracks import Track
from bayes_at_n.pipeline.training.windows import Evaluation, Series

_PRINTED = ("protocols", "merge", "passk")  # after stability
_EQUAL = 1e-9  # taus of equal orders may differ by rounding
_NAMED = 4  # protocols in a line


def run(settings: Sequence[str], dry_run: bool = False) -> None:
    """Evaluate checkpoints and merged windows, and show how steadily scores follow training.

    With `dry_run` only show what would be evaluated. Raises UserError: invalid settings,
    checkpoints or run folders; unfinished runs, with the exit status of the last. OSError: the
    folder of the results cannot be created or written.
    """
    request = load(settings)
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
        planned.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=planned.out).close()  # fails now, not after hours
        done = sum(run.finished for run in work.values())
        note(
            f"trajectory of {planned.label}: {len(work)} runs in {_folders(planned)}, {done}"
            f" finished, {len(work) - done} pending"
        )
        evaluate.evaluate(planned, work, request.cfg.merge.keep)
        metrics = protocols.metrics(request.cfg.metrics)
        curves = tracks.read(planned)
        if short := [m.title() for m in metrics if m.k > curves[0].trials]:
            note(f"{', '.join(short)} left out, as there are only {curves[0].trials} trials")
        save(curves, request, planned, warnings)


def _folders(planned: Series) -> str:
    """Return the folders of the runs, as text."""
    return ", ".join(dict.fromkeys(str(e.run.path.parent) for e in planned.evaluations))


def work_table(planned: Series, work: Work) -> Table:
    """Tabulate the remaining work, one row for each kind of run."""
    kinds: dict[tuple[str, str, int, bool], list[Evaluation]] = {}
    for e in planned.evaluations:
        kinds.setdefault((e.window.training, e.dataset, e.window.size, e.greedy), []).append(e)
    rows: list[Row] = []
    for (training, dataset, size, greedy), evaluations in kinds.items():
        counts = [work[e.run.path] for e in evaluations]
        first, last = evaluations[0], evaluations[-1]
        rows.append(
            {
                "training": training,
                "dataset": dataset,
                "models": f"Merge@{size}",
                "steps": f"{first.window.step} to {last.window.step}",
                "decoding": "greedy" if greedy else f"{first.run.cfg.sampling.trials} trials",
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


def save(
    tracks: Sequence[Track],
    request: Request[TrajectoryConfig],
    planned: Series,
    warnings: Sequence[str] = (),
) -> None:
    """Save tables, figures, `trajectory.json` and `trajectory.md` of tracks; print the main tables.

    Raises OSError: the folder cannot be written.
    """
    from bayes_at_n.pipeline.training import drawing, forms, stability  # matplotlib is slow

    cfg = request.cfg
    tables = analyze(tracks, cfg)
    rows = {stem: table.rows for stem, table in tables.items()}
    tables = {stem: table for stem, table in tables.items() if table.rows}
    lines = summary(rows["stability"])
    shared = forms.stability(rows["stability"], cfg, stability.COMMON)
    tabular.show(shared, *(tables[stem] for stem in _PRINTED if stem in tables))
    results.print("\n" + "\n".join(lines))

    figures = {files.file_stem(name): figure for name, figure in drawing.draw(rows, cfg).items()}
    record = {
        "label": planned.label,
        "command": ["python", "-m", "pipeline", *sys.argv[1:]],
        "settings": {**asdict(cfg), "run": request.models[0], "datasets": request.datasets},
        "runs": [
            {
                "run": str(evaluation.run.path),
                "dataset": evaluation.dataset,
                "training": evaluation.window.training,
                "window": evaluation.window.size,
                "step": evaluation.window.step,
                "greedy": evaluation.greedy,
                "sources": [str(path) for path in evaluation.window.sources],
            }
            for evaluation in planned.evaluations
        ],
        "summary": lines,
        "warnings": list(warnings),
        "tables": rows,
        "notes": {stem: list(table.notes) for stem, table in tables.items()},
    }
    tabular.print_json(record)
    title = f"Trajectory of {planned.label}"
    text = cells.page(title, lines, warnings, figures, tables, linked=("curve", "ahead"))
    files.write(planned.out, "trajectory", record, tables, figures, {"trajectory.md": text})
    note(
        f"saved {planned.out / 'trajectory.md'} and trajectory.json, {len(tables)} tables as .csv,"
        f" .json, .tex, .md, and {len(figures)} figures as .png, .pdf"
    )


def analyze(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, Table]:
    """Return all tables of tracks, by the stem of their files; some may have no rows."""
    from bayes_at_n.pipeline.training import forms, stability

    rows = stability.judge(tracks, cfg)
    return {
        "stability": forms.stability(rows["stability"], cfg),
        **forms.of_map(rows["stability"]),
        "samples": forms.samples(rows["samples"], cfg),
        "ahead": forms.ahead(stability.ahead(tracks, cfg), cfg),
        "curve": forms.curve(stability.curve(tracks, cfg), cfg),
    }


def summary(rows: Rows) -> list[str]:
    """Name the protocols with the highest τ in rows of `stability`, by training run and dataset."""
    common = where(rows, steps="common")
    heads = [key for key in ("training", "dataset") if varies(common, key)]
    lines: list[str] = []
    for _, group in grouped(common, "training", "dataset").items():
        head = ", ".join(group[0][key] for key in heads)
        most = max(row["tau"] for row in group)
        best = [
            row["protocol"]
            for row in group
            if row["tau"] > most - _EQUAL and (row["metric"] == AVG or not row["twin"])
        ]
        more = f" and {len(best) - _NAMED} more" if len(best) > _NAMED else ""
        plain = where(group, window=1, metric=AVG)[0]
        other = f"; {plain['protocol']} has {plain['tau']:.3f}" * (plain["protocol"] not in best)
        lines.append(
            f"{head}{': ' * bool(head)}highest τ over the {plain['n']} steps that all windows"
            f" share: {most:.3f} ({'; '.join(best[:_NAMED])}{more}){other}"
        )
    return lines
