"""The weights of a window: merged when its runs need them, and taken away again when told to.

    runs/_merged/demo/step-3900-merge4/           a checkpoint like any other, with merge.yaml
    runs/_merged/demo/step-3900-merge4.json       left of it where merge.keep=false deleted it

What is left says which weights the merged model had and what they were made of, by fingerprint.
So a finished run is known to be of these very checkpoints although its weights are gone.
"""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

from pipeline import models, runfolder
from pipeline.checkpoints import merging
from pipeline.console import note
from pipeline.errors import UserError
from pipeline.schema import ModelConfig
from pipeline.trajectory.plan import Weights

MANIFEST = "merge.yaml"  # of pipeline.checkpoints.merging


def make(weights: Weights) -> None:
    """Have the weights of a window in their place; nothing to do for a single checkpoint.

    Raises:
        UserError: they cannot be merged.
        OSError: they cannot be written.
    """
    if weights.window == 1 or _current(weights):
        return
    if (weights.path / MANIFEST).is_file():
        note(f"{weights.path}: merged from other checkpoints before; made anew")
        shutil.rmtree(weights.path)
    weights.path.parent.mkdir(parents=True, exist_ok=True)
    merging.merge(weights.sources, weights.path)


def remove(weights: Weights) -> None:
    """Delete the weights of a window whose runs are complete, and leave what they were.

    Raises:
        OSError: the folder cannot be written.
    """
    if weights.window == 1 or not _current(weights):
        return
    runfolder.write_json(
        _remains(weights),
        {
            "weights": fingerprint(weights.path),
            "sources": [
                {"path": str(path), "weights": fingerprint(path)} for path in weights.sources
            ],
        },
    )
    shutil.rmtree(weights.path)


def known(weights: Weights) -> str | None:
    """The fingerprint of the weights as they are, or were; None where nothing says it.

    Raises:
        UserError: what was merged there is of other checkpoints, or of what these were before.
    """
    if weights.window == 1 or _current(weights):
        return fingerprint(weights.path)
    if weights.path.exists():
        raise UserError(_stale(weights.path, weights))
    left: dict[str, Any] = runfolder.read_json(_remains(weights))
    if not left:
        return None
    try:
        sources = [one["weights"] for one in left["sources"]]
        found = str(left["weights"])
    except (KeyError, TypeError):
        raise UserError(
            f"{_remains(weights)}: damaged; delete it, then its runs are taken as they are"
        ) from None
    if sources != [fingerprint(path) for path in weights.sources]:
        raise UserError(_stale(_remains(weights), weights))
    return found


@cache
def fingerprint(path: Path) -> str:
    """The fingerprint of a folder's weights, as manifests of runs have it."""
    return models.fingerprint(ModelConfig(name=path.name, id=str(path)))


def _current(weights: Weights) -> bool:
    return weights.path.is_dir() and merging.is_merge_of(weights.path, weights.sources)


def _remains(weights: Weights) -> Path:
    return weights.path.with_name(f"{weights.path.name}.json")


def _stale(path: Path, weights: Weights) -> str:
    return (
        f"{path}: made of other weights than {weights.sources[0].name} to"
        f" {weights.sources[-1].name} hold now; delete it with the runs of {weights.name}, and they"
        " are made anew"
    )
