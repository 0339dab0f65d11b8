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
from typing import Any, NamedTuple

from pipeline.base.errors import UserError
from pipeline.config.settings import ModelConfig
from pipeline.prepare import models
from pipeline.research.checkpoints import manifest, merging
from pipeline.research.trajectory.plan import Weights
from pipeline.store import runfolder

# How `manifest.why_not` begins where a folder is whole, and of other weights.
_OTHERS, _OLDER = "is the mean of other checkpoints", "was made before"
_RENAME = (
    "the runs would have the same names, too: call this training otherwise with"
    " checkpoints.NAME=FOLDER, or delete that, if nobody needs it"
)


class Known(NamedTuple):
    """What can be said of the weights of a model."""

    weights: str | None  # the fingerprint, as they are or were; None where nothing says it
    doubt: str | None = None  # why what is in their place cannot be told to be theirs, and a remedy


def make(weights: Weights) -> None:
    """Have the weights of a window in their place; nothing to do for a single checkpoint.

    Raises:
        UserError: they cannot be merged; something else is in their place.
        OSError: they cannot be written.
    """
    if weights.window == 1 or _current(weights):
        return
    if os.path.lexists(weights.path):
        raise UserError(_doubt(weights))
    weights.path.parent.mkdir(parents=True, exist_ok=True)
    _tidy(weights)
    merging.merge(weights.sources, weights.path)


def remember(weights: Weights) -> None:
    """Write down what the weights of a window are, whose runs are complete.

    Raises:
        OSError: it cannot be written.
    """
    if weights.window == 1 or not _current(weights):
        return
    sources = [{"path": str(path), "weights": fingerprint(path)} for path in weights.sources]
    told = {"weights": fingerprint(weights.path), "sources": sources}
    if runfolder.read_json(_remains(weights)) != told:
        runfolder.write_json(_remains(weights), told)


def remove(weights: Weights) -> None:
    """Delete the weights of a window whose runs are complete, and leave what they were.

    Their name goes first: a folder half deleted is never taken for a checkpoint.

    Raises:
        OSError: the folder cannot be written.
    """
    if weights.window == 1:
        return
    _tidy(weights)
    if not _current(weights):
        return
    remember(weights)
    hidden = weights.path.with_name(f"{_prefix(weights)}{secrets.token_hex(4)}")
    weights.path.rename(hidden)
    shutil.rmtree(hidden)


def known(weights: Weights) -> Known:
    """What is known of the weights of a model.

    Raises:
        UserError: what was merged there is of other checkpoints, or of what these were before.
    """
    if weights.window == 1 or _current(weights):
        return Known(fingerprint(weights.path))
    if not os.path.lexists(weights.path):
        return Known(_remembered(weights))
    why = manifest.why_not(weights.path, weights.sources) or ""
    if why.startswith(_OTHERS):
        raise UserError(f"{weights.path}: {why}; {_RENAME}")
    if why.startswith(_OLDER):
        return Known(None, _doubt(weights))
    try:
        found = fingerprint(weights.path)
    except (UserError, OSError):
        return Known(None, _doubt(weights))
    return Known(found, None if found == _remembered(weights) else _doubt(weights))


def _remembered(weights: Weights) -> str | None:
    """The fingerprint in what was written down, if it is of these sources."""
    path = _remains(weights)
    left: dict[str, Any] = runfolder.read_json(path)
    if not left:
        return None
    try:
        made_of = {str(one["path"]): str(one["weights"]) for one in left["sources"]}
        found = str(left["weights"])
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: damaged; delete it, then its runs are taken as they are"
        ) from None
    now = {str(source): fingerprint(source) for source in weights.sources}
    if [*made_of.values()] == [*now.values()]:
        return found
    if [*made_of] != [*now]:
        others = f"{next(iter(made_of))} to {[*made_of][-1]}"
        raise UserError(f"{path}: is of the mean of other checkpoints, {others}; {_RENAME}")
    changed = ", ".join(Path(source).name for source in now if made_of[source] != now[source])
    raise UserError(
        f"{path}: {changed} had other weights when the runs of {weights.name} were made; bring"
        " them back, or delete this file and those runs to make them anew"
    )


@cache
def fingerprint(path: Path) -> str:
    """The fingerprint of a folder's weights, as manifests of runs have it."""
    return models.fingerprint(ModelConfig(name=path.name, id=str(path)))


def present(weights: Weights) -> bool:
    """Whether a model can be loaded: a checkpoint, or a window that is merged already."""
    return weights.window == 1 or _current(weights)


def _current(weights: Weights) -> bool:
    return weights.path.is_dir() and manifest.is_merge_of(weights.path, weights.sources)


def _tidy(weights: Weights) -> None:
    """Delete what a removal that was stopped has left."""
    for left in weights.path.parent.glob(f"{escape(_prefix(weights))}*"):
        shutil.rmtree(left, ignore_errors=True)


def _prefix(weights: Weights) -> str:
    return f".{weights.path.name}.removing-"


def _remains(weights: Weights) -> Path:
    return weights.path.with_name(f"{weights.path.name}.json")


def _doubt(weights: Weights) -> str:
    why = manifest.why_not(weights.path, weights.sources) or "changed just now"
    return (
        f"{weights.path}: {why}; delete this folder only: it is merged again, and its runs stay if"
        " the bytes are the same"
    )
