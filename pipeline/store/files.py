"""Results of one verb or study as files: tables in every form, figures, pages, and their record."""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_at_n.pipeline.base import atomic, foreign, lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.display.table import FORMS, Table, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write(
    folder: Path,
    name: str,
    record: Mapping[str, Any],
    tables: Mapping[str, Table],
    figures: Mapping[str, "Figure"] | None = None,
    texts: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the results of one verb or study into a folder, all of them or none.

    Whoever writes there at the same time is waited for. Files that an earlier `NAME.json` lists,
    and that are no longer made, are removed, with folders left empty.

    `record` is all that was computed, for programs; `NAME.json` holds it and, under "files", what
    else was written. `tables` and `figures` are by stem (`file_stem` makes one of any text), or
    SUBFOLDER/stem: each table becomes .csv, .json, .tex and .md, each figure .png and .pdf; `texts`
    are pages by file name. Returns every file, NAME.json the last. Raises OSError: the disk.
    """
    forms = itertools.product(tables.items(), FORMS.items())
    pages = {f"{stem}.{ending}": form(table) for (stem, table), (ending, form) in forms}
    made = {folder / file: text.encode() for file, text in {**pages, **(texts or {})}.items()}
    if figures:
        from bayes_at_n.pipeline.display import style  # matplotlib takes half a second

        for stem, figure in figures.items():
            made |= style.pictures(figure, folder / stem)
    files = sorted(str(path.relative_to(folder)) for path in made)
    text = json.dumps(plain({**record, "files": files}), indent=2, ensure_ascii=False)
    result = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    with lease.held(folder / "results.lease", "writing results", wait=True):
        stale = _stale(result, set(files))
        atomic.replace_all(made | dict.fromkeys(stale) | {result: f"{text}\n".encode()})
        for parent in {path.parent for path in stale} - {folder.resolve()}:
            if not any(parent.iterdir()):
                parent.rmdir()
    return [*made, result]


def _stale(record: Path, files: set[str]) -> list[Path]:
    """Return what an earlier record lists and is not among the files now; nothing elsewhere."""
    folder = record.parent.resolve()
    try:
        listed = map(str, foreign.read_json(record)["files"])
    except (OSError, ValueError, LookupError, TypeError, UserError):
        return []
    paths = ((folder / name).resolve() for name in {*listed} - files)
    return [path for path in paths if path.is_relative_to(folder) and path.is_file()]


def file_stem(text: str) -> str:
    """A text as a file name without suffix, and as a link: data sets may be called anything.

    >>> file_stem("samples_my set/2")
    'samples_my_set_2'
    """
    return re.sub(r"[^\w.-]", "_", text)
