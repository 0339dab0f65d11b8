"""trajectory: plan, evaluate what is owed, analyse, save."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict

from bayes_at_n.pipeline.base.console import collected, note, results
from bayes_at_n.pipeline.config.settle import Asked
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig, load
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.store import files
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.tables import page
from bayes_at_n.pipeline.training.trajectory import evaluate, plan, preview, tracks
from bayes_at_n.pipeline.training.trajectory.plan import TrajectoryPlan
from bayes_at_n.pipeline.training.trajectory.tracks import Track

_PRINTED = ("protocols", "merge", "windows", "passk", "crossings")  # behind stability


def run(settings: Sequence[str], dry_run: bool = False) -> None:
    """Evaluate checkpoints and merged windows, and say how steadily scores follow training.

    With `dry_run` show what would be evaluated, and write nothing. Raises UserError: a setting, a
    checkpoint or a run folder cannot work; or runs were not finished, with the exit status of the
    last of them. OSError: the folder of the results cannot be made or written.
    """
    asked = load(settings)
    with collected() as warnings:
        planned = plan.make(asked)
        lacking = evaluate.work(planned)
        preview.warn_unknown(lacking)
        if dry_run:
            table = preview.table(planned, lacking)
            tabular.show(table)
            tabular.answer({"runs": table.rows, "notes": table.notes})
            preview.show_owed(planned, lacking)
            note("nothing was written or evaluated")
            return
        planned.out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=planned.out).close()  # fails now, not after hours
        note(preview.line(planned, lacking))
        evaluate.evaluate(planned, lacking, asked.cfg.merge.keep)
        read = tracks.read(planned, protocols.metrics(asked.cfg.metrics))
        short = [m.title() for m in protocols.metrics(asked.cfg.metrics) if m.k > read[0].trials]
        if short:
            note(f"{', '.join(short)} left out, as there are only {read[0].trials} trials")
        analyse(read, asked, planned, warnings)


def analyse(
    read: Sequence[Track],
    asked: Asked[TrajectoryConfig],
    planned: TrajectoryPlan,
    warnings: Sequence[str] = (),
) -> None:
    """Tables, pictures, `trajectory.json` and `trajectory.md` of tracks; the main tables printed.

    Raises OSError: the folder cannot be written.
    """
    from bayes_at_n.pipeline.training.trajectory import (  # matplotlib takes half a second
        beside,
        figures,
        forms,
        samples,
        stability,
        summary,
        variance,
    )

    cfg = asked.cfg
    steady, curve = stability.stability(read, cfg), stability.curve(read, cfg)
    ahead, by_trials = beside.ahead(read, cfg), samples.samples(read, cfg)
    tables = {
        "stability": stability.stability_table(steady, cfg),
        **forms.tables(steady, by_trials["gains"].rows),
        **by_trials,
        "crossings": beside.crossings(ahead.rows, cfg),
        "ahead": ahead,
        "variance": variance.variances(read, cfg),
        "curve": curve,
    }
    rows = {stem: table.rows for stem, table in tables.items()}
    tables = {stem: table for stem, table in tables.items() if table.rows}
    shared = stability.stability_table(steady, cfg, stability.COMMON)
    lines = summary.lines(steady, rows["pairs"], rows.get("merge", []), cfg)
    tabular.show(shared, *(tables[stem] for stem in _PRINTED if stem in tables))
    results.print("\n" + "\n".join(lines))

    pictures = {files.file_stem(name): figure for name, figure in figures.draw(rows, cfg).items()}
    record = {
        "label": planned.label,
        "command": ["python", "-m", "pipeline", *sys.argv[1:]],
        "settings": {**asdict(cfg), "run": asked.models[0], "datasets": asked.datasets},
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
    tabular.answer(record)
    title = f"Trajectory of {planned.label}"
    text = page(title, lines, warnings, pictures, tables, linked=("curve", "ahead"))
    files.write(planned.out, "trajectory", record, tables, pictures, {"trajectory.md": text})
    note(
        f"saved {planned.out / 'trajectory.md'} and trajectory.json, {len(tables)} tables as .csv,"
        f" .json, .tex, .md, and {len(pictures)} pictures as .png, .pdf"
    )
