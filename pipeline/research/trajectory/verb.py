"""trajectory: plan, evaluate what is owed, analyse, save."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.base.console import collected, note, results, warn
from pipeline.base.errors import UserError
from pipeline.config import trajectory as own_settings
from pipeline.config.trajectory import Settings, TrajectoryConfig
from pipeline.display import table as tabular
from pipeline.display.table import Table
from pipeline.research.trajectory import evaluate, plan, preview, tracks
from pipeline.research.trajectory.plan import Evaluation, TrajectoryPlan
from pipeline.research.trajectory.tracks import Track
from pipeline.store import runfolder

_PRINTED = ("protocols", "merge", "windows", "passk", "crossings")  # behind stability


def run(settings: list[str], dry_run: bool = False) -> None:
    """Evaluate checkpoints and merged windows, and say how steadily scores follow training.

    Args:
        settings: KEY=VALUE, as `settings.load` takes them.
        dry_run: show what would be evaluated, and write nothing.

    Raises:
        UserError: a setting, a checkpoint or a run folder cannot work; or runs were not finished,
            with the exit status of the last of them.
    """
    asked = own_settings.load(settings)
    with collected() as warnings:
        made = plan.make(asked)
        preview.check_out(made.out)
        questions = evaluate.read_questions(made)
        lacking = evaluate.work(made, questions)
        preview.warn_unknown(lacking)
        if dry_run:
            tabular.show(preview.table(made, lacking))
            preview.show_owed(made, lacking)
            note("nothing was written or evaluated")
            return
        note(preview.line(made, lacking))
        evaluate.evaluate(made, questions, lacking, asked.cfg.merge.keep)
        read = tracks.read(made)
        _told_short(read, asked.cfg)
        analyse(read, asked, made, warnings)


def analyse(
    read: Sequence[Track], asked: Settings, made: TrajectoryPlan, warnings: Sequence[str] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Tables, pictures, `trajectory.json` and `trajectory.md` of tracks; the main tables printed.

    Returns:
        The rows of every table, by the stem of its files.

    Raises:
        UserError: the folder cannot be written.
    """
    from pipeline.research.trajectory import (
        beside,
        forms,
        samples,
        samples_tables,
        spread,
        stability,
        summary,
    )

    cfg = asked.cfg
    rows: dict[str, list[dict[str, Any]]] = {
        "stability": stability.stability(read, cfg),
        "curve": stability.curve(read, cfg),
        "ahead": beside.ahead(read, cfg),
        "variance": spread.variances(read, cfg),
    }
    rows |= samples.samples(read, cfg)._asdict()
    rows["crossings"] = beside.crossings(rows["ahead"])
    tables = {
        "stability": stability.stability_table(rows["stability"], cfg),
        **forms.tables(rows["stability"], rows["gains"]),
        "samples": samples_tables.samples_table(rows["samples"], cfg),
        "pairs": samples_tables.pairs_table(rows["pairs"], cfg),
        "gains": samples_tables.gains_table(rows["gains"], cfg),
        "crossings": beside.crossings_table(rows["crossings"], cfg),
        "ahead": beside.ahead_table(rows["ahead"], cfg),
        "variance": spread.table(rows["variance"]),
        "curve": stability.curve_table(rows["curve"], cfg),
    }
    tables = {stem: table for stem, table in tables.items() if table.rows}
    shared = stability.stability_table(rows["stability"], cfg, stability.COMMON)
    for table in (shared, *(tables[stem] for stem in _PRINTED if stem in tables)):
        tabular.show(table)
        results.print()
    merges = tables["merge"].rows if "merge" in tables else []
    told = summary.lines(rows, merges, cfg)
    for line in told:
        results.print(line)
    _save(made, asked, rows, tables, told, warnings)
    return rows


def _save(
    made: TrajectoryPlan,
    asked: Settings,
    rows: Mapping[str, Sequence[Any]],
    tables: Mapping[str, Table],
    summary: Sequence[str],
    warnings: Sequence[str],
) -> None:
    from pipeline.display import style  # matplotlib takes half a second
    from pipeline.research.trajectory import figures, page

    folder, files = made.out, []
    figures_of = figures.draw(rows, asked.cfg)
    pictures: list[str] = []
    before = runfolder.read_json(folder / "trajectory.json").get("files")
    try:
        for stem, table in tables.items():
            files += tabular.save(table, folder, stem)
        for stem, figure in figures_of.items():
            pictures.append(page.stem(stem))
            files += style.save(figure, folder / page.stem(stem))
        files.append(page.write(folder, made, tables, pictures, summary, warnings))
        told = {
            "label": made.label,
            "command": ["python", "-m", "pipeline", *sys.argv[1:]],
            "settings": {**asdict(asked.cfg), "run": asked.run, "datasets": asked.datasets},
            "runs": [_told(one) for one in made.evaluations],
            "summary": list(summary),
            "warnings": list(warnings),
            "tables": {stem: list(of) for stem, of in rows.items()}
            | {stem: list(table.rows) for stem, table in tables.items() if stem not in rows},
            "notes": {stem: list(table.notes) for stem, table in tables.items()},
            "files": sorted(path.name for path in files),
        }
        runfolder.write_json(folder / "trajectory.json", tabular.plain(told))
        _remove_old(folder, before, {path.name for path in files})
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; the trajectory was not saved,"
            " its runs are"
        ) from error
    note(
        f"saved {folder / 'trajectory.md'} and trajectory.json, {len(tables)} tables as .csv,"
        f" .json, .tex, .md, and {len(pictures)} pictures as .png, .pdf"
    )


def _remove_old(folder: Path, before: Any, files: Iterable[str]) -> None:
    """Take away what an earlier trajectory left there and this one does not make."""
    kept = {*files, "trajectory.json"}
    for name in before if isinstance(before, list) else []:
        if isinstance(name, str) and Path(name).name == name and name not in kept:
            (folder / name).unlink(missing_ok=True)


def _told(one: Evaluation) -> dict[str, Any]:
    window = one.window
    return {
        "run": str(one.run.path),
        "dataset": one.dataset,
        "training": window.training,
        "window": window.size,
        "step": window.step,
        "greedy": one.greedy,
        "sources": [str(path) for path in window.sources],
    }


def _told_short(read: Sequence[Track], cfg: TrajectoryConfig) -> None:
    """Say which k have too few trials, and where trials are not alike."""
    for dataset in dict.fromkeys(track.dataset for track in read):
        own = [track for track in read if track.dataset == dataset]
        trials = min(track.trials for track in own)
        short = [k for k in cfg.pass_k if k > trials]
        if short:
            names = ", ".join(f"Pass@{k}" for k in short)
            note(f"{dataset}: {names} left out, as some question has only {trials} trials")
        if not all(track.equal for track in own):
            warn(
                f"{dataset}: some questions have fewer trials than others, the fewest {trials};"
                " grade or sample what is missing (the same command says what is owed)"
            )
