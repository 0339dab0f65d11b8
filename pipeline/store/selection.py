"""Where results of a selection of runs go: a folder for each selection, and links to the newest."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.config.analysis import SelectionConfig
from bayes_at_n.pipeline.store.runfolder import short_hash


def folder(cfg: SelectionConfig, verb: str, runs: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the folder for what a verb makes of a selection, and the links to turn to it.

    `runs` has one run of each data set. The folder is `out`, unless that is such a link, else
    DATASET/_VERB-SELECTION, of several data sets in `cfg.runs`: the names that settings select.
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
            warn(f"{link}: cannot lead to {folder} ({error.strerror})")
