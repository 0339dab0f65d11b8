"""Checkpoints, Hugging Face folders with safetensors: finding them, and their files."""

import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.console import joined, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM, ROOT, find_local
from bayes_at_n.pipeline.config.settings import ModelConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store.find import natural

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MANIFEST = "merge.yaml"  # of a merged checkpoint; no .json, which `models.fingerprint` would hash
# What weights need to be run: index, config, tokenizer, chat template, own Python; not what else a
# trainer writes, or about weights in another form.
SIDE_FILES = re.compile(
    r"(?!trainer_state\.|adapter_|zero_to_fp32\.|requirements\.|pytorch_model|.*_results\.)"
    r".+\.(json|jinja|txt|model|tiktoken|py)"
)
# One of these makes a folder a checkpoint, if only a broken one.
_MODEL_FILES = re.compile(r"(adapter_)?config\.json|.*\.safetensors|.*model.*\.(bin|index\.json)")
_MEAN = f"is itself a mean ({MANIFEST}); to take it, name it outright"


class Checkpoint(NamedTuple):
    """A folder with a model, and the step in its name (`step-3900`: 3900)."""

    path: Path
    name: str
    step: int | None


def find(patterns: Sequence[str], last: int | None = None) -> list[Checkpoint]:
    """Find the checkpoints that patterns name, each once: a folder rather than a link to it.

    Patterns (checkpoints, folders that hold some, or globs) keep their order; what one of them
    finds is in `natural` order. The `last` so many count; default: all. Merged checkpoints that a
    folder or a glob holds are left out with a warning, as are incomplete ones before the first that
    counts: among or after those they would shift the windows. Raises UserError: a pattern finds
    none, or names a folder that is none; fewer than `last` are there; or an incomplete one lies
    among or after those that count.
    """
    candidates: dict[Path, tuple[Path, str | None]] = {}  # by real path: what is wrong with each
    for path, reason in itertools.chain.from_iterable(map(_candidates, patterns)):
        earlier, why = candidates.setdefault(path.resolve(), (path, reason))
        if (path.is_symlink(), reason or "") < (earlier.is_symlink(), why or ""):
            candidates[path.resolve()] = path, reason
    complete = [path for path, reason in candidates.values() if reason is None]
    if last is not None and last > len(complete):
        raise UserError(
            f"last={last}: only {len(complete)} checkpoints there; last={len(complete)} takes all"
        )
    counted = complete[-last:] if last else complete
    order = [path for path, _ in candidates.values()]
    for place, (path, reason) in enumerate(candidates.values()):
        if reason not in (None, _MEAN) and place > order.index(counted[0]):
            raise UserError(
                f"{path}: not a complete checkpoint ({reason}), and it lies among or after those"
                " that are: finish it, remove it, or name the checkpoints one by one"
            )
        if reason:
            warn(f"left out: {path}: {reason}")
    steps = [[None, *map(int, re.findall(r"\d+", path.name))][-1] for path in counted]
    return [Checkpoint(p, p.name, step) for p, step in zip(counted, steps, strict=True)]


def problem(folder: Path) -> str | None:
    """Return why a folder is no checkpoint, with a remedy; None for one that is."""
    names = {path.name for path in folder.iterdir()}
    if len(names & {WEIGHTS, INDEX}) != 1:
        weights = sorted(name for name in names if _MODEL_FILES.fullmatch(name))
        return (
            f"must hold {WEIGHTS}, or else {INDEX} and what it names, but holds"
            f" {joined(weights, 5) or 'neither'}; save_pretrained() makes such a folder (merge an"
            " adapter into its base model first)"
        )
    if "config.json" not in names:
        return "has no config.json, so it is no model"
    if missing := sorted({*index(folder).values()} - names):
        return f"{joined(missing, 5)} is missing, which {INDEX} names; copy the checkpoint again"
    return None


def leaving(folder: Path) -> str | None:
    """Return why a checkpoint must not be copied: a link that leads out of it; else None.

    Links of the hub's cache lead from `snapshots/COMMIT/` to `blobs/` beside it.
    """
    homes = [os.path.realpath(folder)]
    if folder.parent.name == "snapshots":
        homes.append(os.path.realpath(folder.parent.parent / "blobs"))
    for path in sorted(folder.iterdir()):
        if not (SIDE_FILES.fullmatch(path.name) or path.suffix == ".safetensors"):
            continue
        target = Path(os.path.realpath(path))
        if not any(target.is_relative_to(home) for home in homes):
            return (
                f"{path.name} is a link to {target}, out of the folder; put the file itself there"
            )
        if not (target.is_file() or target.is_dir()):
            return f"{path.name} is no file; remove it, or copy the checkpoint again"
    return None


def index(folder: Path) -> dict[str, str]:
    """Read the file of each tensor from the index; empty without one, UserError if damaged."""
    files = read_json(folder / INDEX).get("weight_map") if (folder / INDEX).is_file() else {}
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{folder / INDEX}: damaged: no weight_map of file names; copy it again")
    return files


def fingerprint(folder: Path) -> str:
    """Compute the fingerprint of a folder's weights, as manifests of runs have it."""
    return models.fingerprint(ModelConfig(name="", id=str(folder)))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file that somebody else wrote; UserError where it is none."""
    try:
        return untrusted.read_json(path)
    except ValueError as error:
        raise UserError(f"{path}: damaged: not JSON ({error}); copy it again") from error


def _candidates(pattern: str) -> list[tuple[Path, str | None]]:
    """List the folders that one pattern names, in natural order, each with why it is none."""
    folder = find_local(pattern)
    if folder is None:
        within = _glob(pattern)
    elif not folder.is_dir():
        raise UserError(f"checkpoints: {pattern}: a file; name the folder that holds it")
    elif (folder / "config.json").exists() or not (within := _folders(folder)):
        if reason := problem(folder):
            raise UserError(f"checkpoints: {pattern}: {reason}")
        return [(folder, None)]
    real = {path.resolve(): path for path in sorted(within, key=Path.is_symlink, reverse=True)}
    models = [
        (path, _MEAN if (path / MANIFEST).exists() else problem(path))
        for path in sorted(real.values(), key=lambda path: natural(str(path)))
        if any(_MODEL_FILES.fullmatch(file.name) for file in path.iterdir())
    ]
    if all(reason for _, reason in models):
        why = f"; {models[0][0]}: {models[0][1]}" if models else ""
        raise UserError(
            f"checkpoints: {pattern}: none of the {len(within)} folders there is a checkpoint{why}"
        )
    return models


def _glob(pattern: str) -> list[Path]:
    own = Path(pattern).expanduser()
    if names := glob.glob(str(own)) or glob.glob(str(ROOT / own)):
        return [path for path in map(Path, names) if path.is_dir()]
    parent = find_local(str(own.parent))
    beside = sorted((path.name for path in _folders(parent)), key=natural) if parent else []
    raise UserError(
        f"checkpoints: {pattern}: no such folder (there: {joined(beside, 5) or 'none'}); of a"
        f" hub id, `{PROGRAM} prefetch` prints the folder to name here"
    )


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
