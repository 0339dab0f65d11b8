"""Results of one verb or study as files: tables in every form, figures, pages, and their record."""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.base import atomic
from pipeline.display.table import FORMS, Table, plain

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
    """Write the results of one verb or study into a folder, each file atomically.

    `NAME.json` comes last: the record, and under "files" what else was written. Files that an
    earlier `NAME.json` lists, and that are no longer made, are removed, with folders left empty.

    `record` is all that was computed, for programs. `tables` and `figures` are by stem (`file_stem`
    makes one of any text), or SUBFOLDER/stem: each table becomes .csv, .json, .tex and .md, each
    figure .png and .pdf. `texts` are pages around them, by file name, and `name` is that of the
    verb or study, no key of `tables`.

    Returns every file, NAME.json the last. Raises OSError: the disk is full, or may not be written.
    """
    forms = itertools.product(tables.items(), FORMS.items())
    pages = {f"{stem}.{ending}": form(table) for (stem, table), (ending, form) in forms}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file, text in {**pages, **(texts or {})}.items():
        written.append(folder / file)
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(written[-1], text)
    if figures:
        from pipeline.display import style  # matplotlib takes half a second

        for stem, figure in figures.items():
            written += style.save(figure, folder / stem)
    files = sorted(str(path.relative_to(folder)) for path in written)
    text = json.dumps(plain({**record, "files": files}), indent=2, ensure_ascii=False)
    _remove_stale(folder / f"{name}.json", set(files))
    atomic.write_text(folder / f"{name}.json", text + "\n")
    return [*written, folder / f"{name}.json"]


def _remove_stale(record: Path, files: set[str]) -> None:
    """Remove what an earlier record lists and is not among the files now; nothing elsewhere."""
    folder = record.parent.resolve()
    try:
        listed = set(map(str, json.loads(record.read_text(encoding="utf-8"))["files"]))
    except (OSError, ValueError, LookupError, TypeError):
        return
    for path in ((folder / file).resolve() for file in listed - files):
        if path.is_relative_to(folder) and path.is_file():
            path.unlink()
            if path.parent != folder and not any(path.parent.iterdir()):
                path.parent.rmdir()


def file_stem(text: str) -> str:
    """A text as a file name without suffix, and as a link: data sets may be called anything.

    >>> file_stem("samples_my set/2")
    'samples_my_set_2'
    """
    return re.sub(r"[^\w.-]", "_", text)
