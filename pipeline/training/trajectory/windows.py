"""The weights of a window: merged when its runs need them, and taken away again when told to.

    runs/_merged/demo/step-3900-merge4/           a checkpoint like any other, with merge.yaml
    runs/_merged/demo/step-3900-merge4.json       beside it from when its runs are complete

That file says which weights the merged model had and what they were made of, by fingerprint. So a
finished run is known to be of these very checkpoints although the weights are gone.
"""

import os
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.training import merge
from bayes_at_n.pipeline.training.checkpoints import MANIFEST, fingerprint
from bayes_at_n.pipeline.training.trajectory.plan import Window

_RENAME = (
    "the runs would have the same names, too: call this training otherwise with"
    " checkpoints.NAME=FOLDER, or delete that, if nobody needs it"
)
_DELETE = "delete this folder only: it is merged again, and its runs stay if the bytes are the same"
_BRING_BACK = "bring back what it was, or delete this file and its runs to make them anew"


def make(window: Window) -> None:
    """Have the weights of a window in their place; nothing to do for a single checkpoint.

    Raises UserError: they cannot be merged; something else is in their place. OSError: they cannot
    be written.
    """
    if not present(window):
        merge.merge(window.sources, window.path)


def remember(window: Window) -> None:
    """Write down what the weights of a window are, whose runs are complete.

    Raises UserError: something else is in their place. OSError: it cannot be written.
    """
    if window.size > 1 and present(window):
        manifest = yaml.safe_load((window.path / MANIFEST).read_text(encoding="utf-8"))
        record = {key: manifest[key] for key in ("weights", "sources")}
        if runfolder.read_json(_record(window)) != record:
            runfolder.write_json(_record(window), record)


def remove(window: Window) -> None:
    """Delete the weights of a window whose runs are complete, and leave what they were.

    Raises UserError: something else is in their place. OSError: the folder cannot be written.
    """
    if window.size > 1 and present(window):
        remember(window)
        merge.remove(window.path)


def known(window: Window) -> str | None:
    """The fingerprint of a model's weights, as they are or were; None where nothing says it.

    Raises UserError: what is in their place is of other checkpoints, of what these were before, or
    not to be told to be theirs.
    """
    if present(window):
        return fingerprint(window.path)
    if not (record := runfolder.read_json(_record(window))):
        return None
    if doubt := merge.differing(record, window.sources):
        remedy = _RENAME if doubt.others else _BRING_BACK
        raise UserError(f"{_record(window)}: {doubt.clause}; {remedy}")
    return str(record["weights"])


def present(window: Window) -> bool:
    """Whether a model can be loaded: a checkpoint, or a window that is merged already.

    Raises UserError: something else is in the place of merged weights.
    """
    doubt = merge.why_not(window.path, window.sources) if window.size > 1 else None
    if doubt and os.path.lexists(window.path):
        remedy = _RENAME if doubt.others else _DELETE
        raise UserError(f"{window.path}: {doubt.clause}; {remedy}")
    return doubt is None


def _record(window: Window) -> Path:
    return window.path.with_name(f"{window.path.name}.json")
