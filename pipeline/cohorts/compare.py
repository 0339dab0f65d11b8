"""compare: the runs of one or several data sets side by side, in tables and in compare.json."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import scoring
from pipeline.base.console import note, results, warn
from pipeline.base.errors import UserError
from pipeline.cohorts import cohort as cohorts_of
from pipeline.cohorts import leaderboard, neighbours
from pipeline.cohorts import rubrics as cohort_rubrics
from pipeline.cohorts.cohort import Cohort
from pipeline.config.analysis import AnalysisConfig
from pipeline.display import table as tabular
from pipeline.display.table import Column, Table
from pipeline.store import runfolder

# All files that a comparison of one data set may leave in a folder, by their stems.
_TABLES = ("leaderboard", "attempts", "neighbours", "posterior_ranks", "rubrics")
_PICTURES = ("forest", "questions")
_POOLED = "_pooled"  # no folder of a data set: what begins with "_" holds no runs


def compare(cfg: AnalysisConfig) -> None:
    """Compare runs: print tables, and write them with `compare.json` into a folder.

    Raises:
        UserError: nothing that can be compared; the folder may not be written.
    """
    cohorts = cohorts_of.load(cfg)
    tables: dict[str, Table] = {}
    told: dict[str, Any] = {"settings": _settings(cfg), "datasets": [], "pooled": None}
    boards, parts = [], [f"{c.dataset}/" if len(cohorts) > 1 else "" for c in cohorts]
    for part, cohort in zip(parts, cohorts, strict=True):
        made = _one(cohort, cfg)
        boards.append(made["leaderboard"])
        tables |= {f"{part}{stem}": table for stem, table in made.items()}
        told["datasets"].append(_told(cohort, cfg, made))
    if len(cohorts) > 1:
        stack = _pooled(cohorts)
        if stack is not None:
            board = leaderboard.leaderboard(stack, cfg)
            made = {"leaderboard": leaderboard.pooled_usage(board, boards)} | _order(stack, cfg)
            tables |= {f"{_POOLED}/{stem}": table for stem, table in made.items()}
            told["pooled"] = _told(stack, cfg, made)
        tables["rankings"] = rankings(cohorts, cfg, stack)
        told["rankings"] = [dict(row) for row in tables["rankings"].rows]
    for stem, table in tables.items():
        # Of several data sets there is too much to read: the rest is in the files.
        if len(cohorts) == 1 or stem.endswith(("leaderboard", "rankings")):
            tabular.show(table)
            results.print()
    folder = _folder(cfg, cohorts)
    try:
        for stem, table in tables.items():
            tabular.save(table, (folder / stem).parent, Path(stem).name)
        _remove_old(folder, {*tables, *(f"{part}{stem}" for part in parts for stem in _PICTURES)})
        runfolder.write_json(folder / "compare.json", tabular.plain(told))
        for part, cohort, board in zip(parts, cohorts, boards, strict=True):
            _draw(cohort, cfg, board, folder / part)
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; the comparison was not saved"
        ) from error
    note(
        f"saved {folder / 'compare.json'}, {len(tables)} tables as .csv, .json, .tex, .md, and"
        " forest and questions as .png, .pdf"
    )


def _draw(cohort: Cohort, cfg: AnalysisConfig, board: Table, folder: Path) -> None:
    """Save the leaderboard as a forest plot, and models by questions as a heat map."""
    from pipeline.display import style
    from pipeline.plots import leaderboard as plots  # matplotlib takes half a second

    keys = ("model", "mu", "low", "high", f"rank_{cfg.scoring.rule}")
    columns: list[list[Any]] = [[row.get(key) for row in board.rows] for key in keys]
    names, mu, low, high, rank = columns
    ranks = rank if len(names) > 1 else None
    size = f"{len(cohort.question_ids)} questions, {cohort.outcomes.shape[2]} trials"
    title = f"Bayes@N on {cohort.dataset}, {size}"
    axis = f"posterior mean μ (share of trials correct), {cfg.scoring.confidence:.0%} interval"
    style.save(plots.forest(names, mu, low, high, ranks, title, axis), folder / "forest")
    success = cohort.matrix().mean(axis=2)
    title = f"correct attempts on {cohort.dataset}"
    drawn = plots.heat_map(cohort.names, cohort.question_ids, success, title)
    style.save(drawn, folder / "questions")


def _remove_old(folder: Path, written: set[str]) -> None:
    """Remove what an earlier comparison left in the folder and this one does not replace.

    The earlier `compare.json` says where its files lie; nothing else in the folder is touched.
    """
    told = runfolder.read_json(folder / "compare.json").get("datasets")
    rows = told if isinstance(told, list) else []
    names = [row["dataset"] for row in rows if isinstance(row, dict) and "dataset" in row]
    known = {path.name: path for path in folder.iterdir() if path.is_dir()}  # so no path leads out
    places = {"": folder}
    if len(names) > 1:
        places = {f"{n}/": known[n] for n in (*names, _POOLED) if isinstance(n, str) and n in known}
        if "rankings" not in written:
            tabular.remove(folder, "rankings")
    for part, place in places.items() if names else ():
        for stem in _TABLES:
            if f"{part}{stem}" not in written:
                tabular.remove(place, stem)
        for stem in _PICTURES:
            if f"{part}{stem}" not in written:
                for ending in ("png", "pdf"):
                    (place / f"{stem}.{ending}").unlink(missing_ok=True)
        if part and not any(place.iterdir()):
            place.rmdir()


def rankings(cohorts: Sequence[Cohort], cfg: AnalysisConfig, stack: Cohort | None = None) -> Table:
    """Table 2's form: for each data set the ranks with and without uncertainty.

    Args:
        cohorts: one a data set; models come in the order of the first.
        cfg: `scoring.rule` is the rule of the columns "w/ CI".
        stack: the questions of all of them together, for the last pair of columns.

    Source: arXiv 2510.04265, Table 2.
    """
    rows: dict[str, dict[str, Any]] = {}
    columns = [Column("model", "model", align="left")]
    shown = [(cohort.dataset, cohort.dataset, cohort) for cohort in cohorts]
    if stack is not None:
        shown.append((_POOLED, "all pooled", stack))
    for name, group, cohort in shown:
        found = leaderboard.scores(cohort, cfg)
        places = leaderboard.ranks(found, cfg)
        for i in found.order.tolist():
            row = rows.setdefault(cohort.names[i], {"model": cohort.names[i]})
            row[f"{name}_with"] = int(places[cfg.scoring.rule][i])
            row[f"{name}_without"] = int(places["none"][i])
        for key, head in (("with", "w/ CI"), ("without", "w/o CI")):
            columns.append(Column(f"{name}_{key}", head, group=group))
    s = cfg.scoring
    notes = [
        f"w/ CI: {s.rule.replace('_', ' ')}, z = {s.z:g}; w/o CI: by avg; {s.method} ranks; models"
        " in the order of the first data set"
    ]
    if stack is not None:
        notes.append(
            f"all pooled: all {len(stack.question_ids)} questions of the data sets as one stack,"
            f" each of equal weight, for the {len(stack.names)} models that all of them hold"
        )
    for cohort in cohorts:
        if cohort.members:
            notes += [f"not alike: {cohort.dataset}: {line}" for line in cohort.differences]
    return Table("ranks on several data sets", columns, list(rows.values()), notes)


def _one(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, Table]:
    """The tables of one data set, by the stem of their files."""
    board = leaderboard.leaderboard(cohort, cfg)
    made = {"leaderboard": board, "attempts": leaderboard.attempts(board, cfg)}
    made |= _order(cohort, cfg)
    folders = [member.run.path / "categories" for member in cohort.members]
    if any(folder.is_dir() for folder in folders):
        try:
            made["rubrics"] = cohort_rubrics.scores(cohort, cfg)
        except UserError as error:
            if cfg.rubric.names:
                raise
            warn(f"{cohort.dataset}: rubrics are left out: {error}")
    strayed = [r["model"] for r in board.rows if abs(r["shrinkage"]) > scoring.SHRINKAGE_LIMIT]
    if strayed:
        more = f" and {len(strayed) - 5} more" if len(strayed) > 5 else ""
        warn(
            f"{cohort.dataset}: the uniform prior moved μ of {', '.join(strayed[:5])}{more} by more"
            f" than {scoring.SHRINKAGE_LIMIT:g} σ; read avg and its interval"
        )
    return made


def _order(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, Table]:
    if len(cohort.names) < 2:
        warn(f"{cohort.dataset}: one model only, {cohort.names[0]}; ranks need two")
        return {}
    return {
        "neighbours": neighbours.order_of_neighbours(cohort, cfg),
        "posterior_ranks": neighbours.posterior_ranks(cohort, cfg),
    }


def _pooled(cohorts: Sequence[Cohort]) -> Cohort | None:
    try:
        return cohorts_of.pooled(cohorts)
    except UserError as error:
        warn(str(error))
        return None


def _told(cohort: Cohort, cfg: AnalysisConfig, made: dict[str, Table]) -> dict[str, Any]:
    """All that was computed of a data set, as docs/compare.md describes it."""
    keys = {"leaderboard": "models", "neighbours": "neighbours", "posterior_ranks": "ranks"}
    rows = {
        keys.get(stem, stem): [dict(row) for row in table.rows]
        for stem, table in made.items()
        if stem != "attempts"  # columns of the leaderboard
    }
    return {
        "dataset": cohort.dataset,
        "question_ids": cohort.question_ids,
        "trials": cohort.outcomes.shape[2],
        "differences": cohort.differences,
        "protocols": {member.name: member.protocol for member in cohort.members},
        **rows,
        "groups": neighbours.groups(cohort, cfg),
        "notes": {stem: list(table.notes) for stem, table in made.items()},
    }


def _settings(cfg: AnalysisConfig) -> dict[str, Any]:
    return {"scoring": asdict(cfg.scoring), "thresholds": asdict(cfg.thresholds)}


def _folder(cfg: AnalysisConfig, cohorts: Sequence[Cohort]) -> Path:
    if cfg.out is not None:
        return Path(cfg.out).expanduser()
    if len(cohorts) > 1:
        return Path(cfg.runs).expanduser() / "_compare"
    return cohorts[0].members[0].run.path.parent / "_compare"
