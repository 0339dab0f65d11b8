"""trajectory: plan, evaluate what is owed, analyse, save."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import runfolder, tabular
from pipeline.console import collected, note, results, warn
from pipeline.errors import UserError
from pipeline.tabular import Column, Table
from pipeline.trajectory import evaluate, plan, tracks, trainings
from pipeline.trajectory import settings as own_settings
from pipeline.trajectory.evaluate import Standings
from pipeline.trajectory.plan import Evaluation, Plan
from pipeline.trajectory.settings import Settings, TrajectoryConfig
from pipeline.trajectory.tracks import Track

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
        found = trainings.find(asked.cfg.checkpoints, asked.cfg.merge.windows)
        made = plan.make(asked, found)
        standings = evaluate.standings(made)
        if dry_run:
            tabular.show(_plan_table(made, standings))
            note("nothing was written or evaluated")
            return
        note(_planned(made, standings))
        try:
            evaluate.evaluate(made, standings, asked.cfg.merge.keep)
        except OSError as error:
            raise UserError(
                f"{error.filename or made.out}: {error.strerror or error}; mend the disk, then the"
                " same command continues"
            ) from error
        unknown = [one for one in made.evaluations if standings[evaluate.key(one)].unknown]
        if unknown:
            note(
                f"{len(unknown)} finished runs of merged weights that are gone, with all that said"
                f" what they were made of: taken as they are, first {unknown[0].run.path}"
            )
        read = tracks.read(made)
        _told_short(read, asked.cfg)
        analyse(read, asked, made, warnings)


def analyse(
    read: Sequence[Track], asked: Settings, made: Plan, warnings: Sequence[str] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Tables, pictures, `trajectory.json` and `trajectory.md` of tracks; the main tables printed.

    Returns:
        The rows of every table, by the stem of its files.

    Raises:
        UserError: the folder cannot be written.
    """
    from pipeline.trajectory import beside, forms, samples, spread, stability

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
        "samples": samples.samples_table(rows["samples"], cfg),
        "pairs": samples.pairs_table(rows["pairs"], cfg),
        "gains": samples.gains_table(rows["gains"], cfg),
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
    _save(made, asked, rows, tables, warnings)
    return rows


def _save(
    made: Plan,
    asked: Settings,
    rows: Mapping[str, Sequence[Any]],
    tables: Mapping[str, Table],
    warnings: Sequence[str],
) -> None:
    from pipeline.plots import style  # matplotlib takes half a second
    from pipeline.trajectory import figures, page

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
        files.append(page.write(folder, made, tables, pictures, warnings))
        told = {
            "label": made.label,
            "command": ["python", "-m", "pipeline", *sys.argv[1:]],
            "settings": {**asdict(asked.cfg), "run": asked.run, "datasets": asked.datasets},
            "runs": [_told(one) for one in made.evaluations],
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
    weights = one.weights
    return {
        "run": str(one.run.path),
        "dataset": one.dataset,
        "training": weights.training,
        "window": weights.window,
        "step": weights.step,
        "greedy": one.greedy,
        "sources": [str(path) for path in weights.sources],
    }


def _told_short(read: Sequence[Track], cfg: TrajectoryConfig) -> None:
    """Say which k have too few trials, and where trials are not alike."""
    for dataset in dict.fromkeys(track.dataset for track in read):
        own = [track for track in read if track.dataset == dataset]
        trials = min(track.trials for track in own)
        short = [k for k in cfg.pass_k if k > trials]
        if short:
            names = ", ".join(f"Pass@{k}" for k in short)
            note(f"{dataset}: {names} left out, a question has {trials} trials")
        if not all(track.equal for track in own):
            warn(f"{dataset}: questions do not have the same number of trials; the least: {trials}")


def _planned(made: Plan, standings: Standings) -> str:
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


def _places(made: Plan) -> list[str]:
    """The folders that runs are in."""
    return list(dict.fromkeys(str(one.run.path.parent) for one in made.evaluations))


def _plan_table(made: Plan, standings: Standings) -> Table:
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
        Column("owed", "owed", group="attempts"),
        Column("ungraded", "ungraded", group="attempts"),
    ]
    merged = [one.weights.path for one in made.evaluations if one.weights.window > 1]
    notes = [f"runs: {', '.join(_places(made))}"]
    notes += [f"merged weights: {one.parent}" for one in merged[:1]]
    notes.append(f"results: {made.out}")
    return Table(f"trajectory of {made.label}", columns, rows, notes)
