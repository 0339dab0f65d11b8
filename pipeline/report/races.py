"""The pages of what `settle` decided between the models of a report."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.adaptive import RECORD, looks, tables
from bayes_at_n.pipeline.adaptive.race import Course
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.report import data, figures
from bayes_at_n.pipeline.report.names import visible


def panels(cohorts: Sequence[Cohort], notices: list[str]) -> Iterator[dict[str, Any]]:
    """A tab for each race beside the runs whose models are all in the report.

    What cannot be read is left out, and `notices` gets why.
    """
    for folder, names, of in _folders(cohorts):
        try:
            seen, why = looks.of_folder(folder)
        except UserError as error:
            notices.append(visible(str(error)))
            continue
        if not names.issuperset(seen.goal.names):
            continue
        if why:
            notices.append(visible(f"{of}settle {folder.name} is left out: {why}"))
        elif seen.states:
            yield _panel(_shown(seen), visible(f"{of}settle {folder.name}"))


def _folders(cohorts: Sequence[Cohort]) -> list[tuple[Path, set[str], str]]:
    """Folders of `settle` beside runs, the names of those runs, and of which data set."""
    found: dict[Path, tuple[set[str], str]] = {}
    for cohort in cohorts:
        of = f"{cohort.dataset}: " if len(cohorts) > 1 else ""
        for member in cohort.members:
            runs = member.run.path.parent
            for place, label in ((runs, of), (runs.parent, "")):
                found.setdefault(place / "_settle", (set(), label))[0].add(member.run.path.name)
    return [
        (record.parent, names, of)
        for place, (names, of) in found.items()
        for record in sorted(place.glob(f"*/{RECORD}"))
    ]


def _shown(seen: Course) -> Course:
    """With names that cannot turn the text round."""
    goal = seen.goal
    cfg = replace(goal.cfg, until=visible(goal.cfg.until))
    return seen._replace(goal=replace(goal, cfg=cfg, names=[visible(name) for name in goal.names]))


def _panel(seen: Course, title: str) -> dict[str, Any]:
    board, left = tables.leaderboard(seen), tables.departures(seen)
    words = tables.line(seen)
    board = replace(board, notes=[f"{words[0].upper()}{words[1:]}.", *board.notes])
    caption = "Estimates, and what decides, over what was spent; a line ends where its model left."
    with style.narrow():
        drawn = figures.figure(tables.picture(seen), caption)
    return {
        "title": title,
        "first": None,
        "rubrics": {},
        "name": f"={title}",
        "notices": [],
        "counts": None,
        "tables": [data.table(board) | {"title": board.title}, data.table(left)],
        "figures": [drawn],
    }
