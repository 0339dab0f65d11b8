"""Results of a verb or study as files: tables in every form, figures, pages, and their record."""

import contextlib
import itertools
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import warn
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

    `record` is all that was computed, for programs; `NAME.json` holds it and, under "files", what
    else was written: what an earlier one lists and is no longer made is removed. `tables` and
    `figures` are by stem or SUBFOLDER/stem: each table becomes .csv, .json, .tex and .md, each
    figure .png and .pdf; `texts` are pages by file name. Returns every file, NAME.json the last.
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
    result, own, stale = folder / f"{name}.json", folder.resolve(), list[Path]()
    folder.mkdir(parents=True, exist_ok=True)
    with lease.held(folder / "results.lease", "writing results", wait=True):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, UserError):
            listed = {*map(str, untrusted.read_json(result)["files"])} - {*files}
            paths = ((own / name).resolve() for name in listed)  # what is elsewhere stays
            stale = [path for path in paths if path.is_relative_to(own) and path.is_file()]
        atomic.replace_all(made | dict.fromkeys(stale) | {result: f"{text}\n".encode()})
        for parent in {path.parent for path in stale} - {own}:
            if not any(parent.iterdir()):
                parent.rmdir()
    return [*made, result]


def file_stem(text: str) -> str:
    """Return a text as a file name without suffix."""
    return re.sub(r"[^\w.-]", "_", text)


def folder_of(cfg: SelectionConfig, verb: str, runs: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the folder for what a verb makes of a selection, and the links to lead to it.

    `runs` has one run of each data set. The folder is `out`, unless that is such a link, else
    DATASET/_VERB-SELECTION, in `cfg.runs` for several data sets.
    """
    out, root = Path(cfg.out or "").expanduser(), Path(cfg.runs).expanduser()
    if cfg.out is not None and not out.is_symlink():
        return out, []
    parent = runs[0].parent if len(runs) == 1 else root
    every = {Path(run).expanduser().resolve() for run in cfg.folders}  # by a shell's *, maybe
    named = [path for path in every if path.name[:1] not in ("_", ".")]
    sets = cfg.dataset if named or len(runs) > 1 else []
    words = sorted([*sets, *cfg.model, *(path.name for path in named)])
    text = "+".join(words) or "all"
    if {path.parent for path in named} - {parent.resolve()} or len(text) > 80 or words == ["all"]:
        text = f"{text[:80]}-{short_hash(str(sorted([*words, *map(str, named)])))}"
    if cfg.out is not None:
        return out.with_name(f"_{verb}-{text}"), [out]
    places = dict.fromkeys([parent, root] if verb == "report" else [parent])
    return parent / f"_{verb}-{text}", [place / f"_{verb}" for place in places]


def publish(folder: Path, links: Sequence[Path]) -> None:
    """Let each link lead to the folder."""
    for link in links:
        new = link.with_name(f".{link.name}-{secrets.token_hex(4)}")
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            new.symlink_to(os.path.relpath(folder.resolve(), link.parent.resolve()))
            new.replace(link)
        except OSError as error:
            new.unlink(missing_ok=True)
            warn(f"{link}: cannot link to {folder} ({error.strerror})")
