"""What the readers of other harnesses' logs share: which runs they name, and which values count."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.base.console import note
from pipeline.base.errors import UserError
from pipeline.imports import names
from pipeline.imports.source import Source, shown


def latest(paths: Iterable[Path], same: Callable[[Path], Hashable], first: bool) -> list[Path]:
    """Of the files that say the same (one folder, task and model) the last; others are named."""
    kept: dict[Hashable, Path] = {}
    for path in paths:
        if first and (older := kept.get(same(path))):
            note(f"import: {shown(older.name)} is older than {shown(path.name)} and left out")
        kept[same(path)] = path
    return list(kept.values())


def rename(source: Source, runs: Iterable[dict[str, str]]) -> None:
    """Give the runs of a source the user's names of data set and model.

    Raises UserError: `dataset=` or `model=` is to name several.
    """
    cfg, runs = source.cfg, list(runs)
    for key, given, what in (("dataset", cfg.dataset, "task"), ("model", cfg.model, "model")):
        found = sorted({run[what] for run in runs})
        if given and len(found) > 1:
            raise UserError(
                f"{key}={shown(given[0])}: is one name, and {source.path} holds"
                f" {', '.join(map(shown, found[:10]))}; leave it out, or import one of them"
            )
        for run in runs:
            run[what] = [*given, run[what]][0]


def check_metric(metric: str, values: Mapping[str, Any], place: str) -> None:
    """Refuse `metric=` where a sample has no such value.

    Raises UserError: with the names of what it has.
    """
    if metric not in values:
        there = ", ".join(map(shown, values)) or "none"
        raise UserError(f"metric={shown(metric)}: {shown(place)} has no such value, but {there}")


def joined(reasoning: str | None, text: str, model: str, level: str | None = None) -> str:
    """Reasoning that a log holds apart, before the answer, as our runs of that model store it.

    >>> joined("2 + 2 is 4.", "4", "any"), joined(None, "4", "any")
    ('2 + 2 is 4.</think>4', '4')
    """
    if not reasoning or not text:
        return reasoning or text
    return f"{reasoning}{names.reasoning_end(model, level)}{text}"
