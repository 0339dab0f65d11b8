"""Results of a verb or study as files: tables in all formats, figures, pages, and their record."""

import contextlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.analysis import SelectionConfig
from bayes_at_n.pipeline.display.table import FORMS, Table, plain
from bayes_at_n.pipeline.store.runfolder import short_hash

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
    """Write the results of one verb or study into a folder, all or none; one writer at a time.

    Files that an earlier `NAME.json` lists and that are not written again are removed.

    Args:
        folder: created if missing.
        name: of the verb or study.
        record: everything that was computed, for programs, stored in `NAME.json`.
        tables: by stem or SUBFOLDER/stem; each becomes .csv, .json, .tex and .md.
        figures: by stem or SUBFOLDER/stem; each becomes .png and .pdf.
        texts: pages by file name.

    Returns every file written, `NAME.json` last; it lists the others under "files".
    """
    forms = itertools.product(tables.items(), FORMS.items())
    pages = {f"{stem}.{ending}": form(table) for (stem, table), (ending, form) in forms}
    contents = {folder / file: text.encode() for file, text in {**pages, **(texts or {})}.items()}
    if figures:
        from bayes_at_n.pipeline.display import style  # matplotlib takes half a second

        for stem, figure in figures.items():
            contents |= style.pictures(figure, folder / stem)
    files = sorted(str(path.relative_to(folder)) for path in contents)
    text = json.dumps(plain({**record, "files": files}), indent=2, ensure_ascii=False)
    result, own, stale = folder / f"{name}.json", folder.resolve(), list[Path]()
    folder.mkdir(parents=True, exist_ok=True)
    with lease.held(folder / "results.lease", "writing results", wait=True):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, UserError):
            listed = {*map(str, untrusted.read_json(result)["files"])} - {*files}
            paths = ((own / name).resolve() for name in listed)  # files elsewhere stay
            stale = [path for path in paths if path.is_relative_to(own) and path.is_file()]
        atomic.replace_all(contents | dict.fromkeys(stale) | {result: f"{text}\n".encode()})
        for parent in {path.parent for path in stale} - {own}:
            if not any(parent.iterdir()):
                parent.rmdir()
    return [*contents, result]


def file_stem(text: str) -> str:
    """Return a text as a file name without suffix."""
    return re.sub(r"[^\w.-]", "_", text)


def folder_of(cfg: SelectionConfig, verb: str, runs: Sequence[Path]) -> Path:
    """Return the folder for the results of a selection; `runs` has one run of each dataset.

    It is `out`, else DATASET/_VERB-SELECTION, or above DATASET if there are several datasets.
    """
    if cfg.out is not None:
        return Path(cfg.out).expanduser()
    root = runs[0].parent.parent if cfg.folders and not cfg.dataset else Path(cfg.runs).expanduser()
    parent = runs[0].parent if len(runs) == 1 else root
    folders = {Path(run).expanduser().resolve() for run in cfg.folders}
    named = [path for path in folders if path.name[:1] not in ("_", ".")]  # a shell's * has those
    sets = cfg.dataset if named or len(runs) > 1 else []
    words = sorted({*sets, *cfg.model, *(path.name for path in named)})
    text = "+".join(words) or "all"
    if {path.parent for path in named} - {parent.resolve()} or len(text) > 80 or words == ["all"]:
        text = f"{text[:80]}-{short_hash(str(sorted([*words, *map(str, named)])))}"
    return parent / f"_{verb}-{text}"
