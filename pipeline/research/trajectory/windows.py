"""The weights of a window: merged when its runs need them, and taken away again when told to.

    runs/_merged/demo/step-3900-merge4/           a checkpoint like any other, with merge.yaml
    runs/_merged/demo/step-3900-merge4.json       beside it from when its runs are complete

That file says which weights the merged model had and what they were made of, by fingerprint. So a
finished run is known to be of these very checkpoints although the weights are gone.
"""

import os
import secrets
import shutil
from functools import cache
from glob import escape
from pathlib import Path

from pipeline.base.errors import UserError
from pipeline.config.settings import ModelConfig
from pipeline.prepare import models
from pipeline.research.checkpoints import merging
from pipeline.research.trajectory.plan import Window
from pipeline.store import runfolder

_RENAME = (
    "the runs would have the same names, too: call this training otherwise with"
    " checkpoints.NAME=FOLDER, or delete that, if nobody needs it"
)


def make(window: Window) -> None:
    """Have the weights of a window in their place; nothing to do for a single checkpoint.

    Raises:
        UserError: they cannot be merged; something else is in their place.
        OSError: they cannot be written.
    """
    if present(window):
        return
    if os.path.lexists(window.path):
        raise UserError(_doubt(window))
    window.path.parent.mkdir(parents=True, exist_ok=True)
    _tidy(window)
    merging.merge(window.sources, window.path)


def remember(window: Window) -> None:
    """Write down what the weights of a window are, whose runs are complete.

    Raises:
        OSError: it cannot be written.
    """
    if window.size == 1 or not present(window):
        return
    sources = [{"path": str(path), "weights": fingerprint(path)} for path in window.sources]
    record = {"weights": fingerprint(window.path), "sources": sources}
    if runfolder.read_json(_record(window)) != record:
        runfolder.write_json(_record(window), record)


def remove(window: Window) -> None:
    """Delete the weights of a window whose runs are complete, and leave what they were.

    Their name goes first: a folder half deleted is never taken for a checkpoint.

    Raises:
        OSError: the folder cannot be written.
    """
    if window.size == 1:
        return
    _tidy(window)
    if present(window):
        remember(window)
        hidden = window.path.with_name(f".{window.path.name}.removing-{secrets.token_hex(4)}")
        window.path.rename(hidden)
        shutil.rmtree(hidden)


def known(window: Window) -> str | None:
    """The fingerprint of a model's weights, as they are or were; None where nothing says it.

    Raises:
        UserError: what is in their place is of other checkpoints, of what these were before, or
            not to be told to be theirs.
    """
    if present(window):
        return fingerprint(window.path)
    if os.path.lexists(window.path):
        raise UserError(_doubt(window))
    return _remembered(window)


def _remembered(window: Window) -> str | None:
    """The fingerprint that was written down, if it is of these sources."""
    path = _record(window)
    if not (record := runfolder.read_json(path)):
        return None
    before = {source["path"]: source["weights"] for source in record["sources"]}
    now = {str(source): fingerprint(source) for source in window.sources}
    if [*before.values()] == [*now.values()]:
        return str(record["weights"])
    if [*before] != [*now]:
        others = f"{next(iter(before))} to {[*before][-1]}"
        raise UserError(f"{path}: is of the mean of other checkpoints, {others}; {_RENAME}")
    changed = ", ".join(Path(source).name for source in now if before[source] != now[source])
    raise UserError(
        f"{path}: {changed} had other weights when the runs of {window.name} were made; bring"
        " them back, or delete this file and those runs to make them anew"
    )


@cache
def fingerprint(path: Path) -> str:
    """The fingerprint of a folder's weights, as manifests of runs have it."""
    return models.fingerprint(ModelConfig(name=path.name, id=str(path)))


def present(window: Window) -> bool:
    """Whether a model can be loaded: a checkpoint, or a window that is merged already."""
    return window.size == 1 or merging.why_not(window.path, window.sources) is None


def _tidy(window: Window) -> None:
    """Delete what a removal that was stopped has left."""
    for left in window.path.parent.glob(f".{escape(window.path.name)}.removing-*"):
        shutil.rmtree(left, ignore_errors=True)


def _record(window: Window) -> Path:
    return window.path.with_name(f"{window.path.name}.json")


def _doubt(window: Window) -> str:
    why = merging.why_not(window.path, window.sources) or "changed just now"
    if why.startswith("is the mean of other checkpoints"):
        return f"{window.path}: {why}; {_RENAME}"
    return (
        f"{window.path}: {why}; delete this folder only: it is merged again, and its runs stay if"
        " the bytes are the same"
    )
