"""trajectory: measure how steadily scores follow training, by protocol (MaP, Wang et al. 2025).

Plan the runs, evaluate what is pending, analyze, save.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bayes_at_n.pipeline.base.console import note, plural, results, warnings_once
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settle import Request
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig, load
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.store import files
from bayes_at_n.pipeline.training import cells, evaluate, tracks, windows
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, names, varies, where
from bayes_at_n.pipeline.training.evaluate import Work
from bayes_at_n.pipeline.training.tracks import AVG, Track
from bayes_at_n.pipeline.training.windows import Evaluation, Series

_PRINTED = ("protocols", "merge", "passk")  # after stability
_EQUAL = 1e-9  # taus of equal orders may differ by rounding
_NAMED = 4  # protocols in a line


def read(planned: Series, request: Request[TrajectoryConfig]) -> list[Track]:
    """Read the tracks of finished runs, of a suite by benchmark."""
    curves = tracks.read(planned)
    return tracks.combined(curves) if request.cfg.suite else curves


def show(tables: Mapping[str, Table], cfg: TrajectoryConfig) -> None:
    """Print the main tables and the summary."""
    from bayes_at_n.pipeline.training import forms, stability

    if "stability" not in tables:  # fewer than two steps
        return
    rows = tables["stability"].rows
    shared = forms.stability(rows, cfg, stability.COMMON)
    main = [tables[stem] for stem in _PRINTED if stem in tables]
    tabular.show(*([] if cfg.suite else [shared]), *main)  # a suite has its own tables
    results.print("\n" + "\n".join(summary(rows)))


def save(
    tracks: Sequence[Track],
    request: Request[TrajectoryConfig],
    planned: Series,
    warnings: Sequence[str] = (),
    points: Mapping[str, Table] = {},
    refresh: float = 0,
) -> dict[str, Table]:
    """Save tables, figures, `trajectory.json` and the page of tracks; return the tables.

    `points`: further tables; `refresh`: seconds after which a browser reads the page again, 0:
    never. Raises OSError: the folder cannot be written.
    """
    from bayes_at_n.pipeline.training import forms  # matplotlib is slow

    cfg = request.cfg
    tables = {**points, **analyze(tracks, cfg)}
    rows = {stem: table.rows for stem, table in tables.items()}
    tables = {stem: table for stem, table in tables.items() if table.rows}
    lines = summary(rows["stability"])
    figures = {files.file_stem(name): figure for name, figure in forms.draw(rows, cfg).items()}
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
                "kind": evaluation.kind,
                "sources": [str(path) for path in evaluation.window.sources],
            }
            for evaluation in planned.evaluations
        ],
        "summary": lines,
        "warnings": list(warnings),
        "tables": rows,
        "notes": {stem: list(table.notes) for stem, table in tables.items()},
    }
    title, about = f"Trajectory of {planned.label}", [*lines, *warnings]
    text = cells.page(title, about, figures, tables, ("curve", "ahead"), refresh)
    files.write(planned.out, "trajectory", record, tables, figures, {"index.html": text})
    if not refresh:
        tabular.print_json(record)
        note(f"saved {planned.out}: index.html, trajectory.json, its tables and figures")
    return tables


def analyze(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, Table]:
    """Return all tables of tracks, by the stem of their files; some may have no rows."""
    from bayes_at_n.pipeline.training import forms, stability

    rows = stability.judge(tracks, cfg)
    return {
        "stability": forms.stability(rows["stability"], cfg),
        **(forms.of_suite if cfg.suite else forms.of_map)(rows["stability"]),
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


def run(settings: Sequence[str], dry_run: bool = False) -> None:
    """Evaluate checkpoints and merged windows, and show how steadily scores follow training.

    With `dry_run` only show what would be evaluated. Raises UserError: invalid settings,
    checkpoints or run folders; unfinished runs, with the exit status of the last. OSError: the
    folder of the results cannot be created or written.
    """
    request = load(settings)
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
        curves = read(planned, request)
        trials = max((curve.trials for curve in curves if not curve.fixed), default=0)
        short = [m.title() for m in tracks.metrics(request.cfg.metrics) if m.k > trials > 0]
        if short:
            note(f"{', '.join(short)} left out, as there are only {plural(trials, 'trial')}")
        show(save(curves, request, planned, warnings), request.cfg)


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
