"""Checkpoints as folders: finding them, their order, and which of their files are what.

A checkpoint is a folder in Hugging Face's form: `config.json` and weights as safetensors, in one
file or in shards with an index.
"""

import glob
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.console import warn
from pipeline.errors import UserError
from pipeline.questions import find_local

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MANIFEST = "merge.yaml"  # of a merged checkpoint; no .json, which `models.fingerprint` would hash
_SIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
# Of those suffixes, too, but about a training, or about weights in another form.
_NOT_SIDE = re.compile(
    r"(trainer_state|adapter_config|.*_results|.*\.index)\.json|zero_to_fp32\.py|requirements\.txt"
)
_MOST_JSON = 200 << 20  # bytes


class Checkpoint(NamedTuple):
    """A folder with a model, and the step that its name tells (`step-3900`: 3900)."""

    path: Path
    name: str
    step: int | None


def find(patterns: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints that patterns name, each folder once.

    Args:
        patterns: each a checkpoint, a folder that holds checkpoints, or a glob such as
            `training/step-3*`. They keep their order; what one of them finds is in natural order
            (step-900 before step-1000).

    Raises:
        UserError: when a pattern finds none, or names a folder that is no checkpoint.
    """
    found: dict[Path, Checkpoint] = {}
    for pattern in patterns:
        for path in _find(pattern):
            numbers = re.findall(r"\d+", path.name)
            step = int(numbers[-1]) if numbers else None
            found.setdefault(path.resolve(), Checkpoint(path, path.name, step))
    return list(found.values())


def windows(checkpoints: Sequence[Checkpoint], size: int) -> list[tuple[Checkpoint, ...]]:
    """Every run of `size` neighbours, in order; each ends at its newest.

    >>> steps = [Checkpoint(Path(f"s-{n}"), f"s-{n}", n) for n in (1, 2, 3)]
    >>> [[c.step for c in window] for window in windows(steps, 2)]
    [[1, 2], [2, 3]]
    """
    return [tuple(checkpoints[i : i + size]) for i in range(len(checkpoints) - size + 1)]


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key by which numbers inside names count as numbers.

    >>> sorted(["step-1000", "step-900"], key=natural)
    ['step-900', 'step-1000']
    """
    parts = re.split(r"(\d+)", name)
    return [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts if p]


def problem(folder: Path) -> str | None:
    """Why a folder is no checkpoint, with a remedy; None for one that is."""
    try:
        names = {path.name for path in folder.iterdir() if not path.is_dir()}
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    if "adapter_config.json" in names:
        return "a PEFT adapter, not a whole model; merge it into its base model and save that"
    if not names & {WEIGHTS, INDEX} and weights:
        return (
            f"holds {_some(weights)}, but neither {WEIGHTS} nor {INDEX}, which says what is where"
        )
    if not names & {WEIGHTS, INDEX}:
        others = sorted(n for n in names if n.endswith((".bin", ".pt", ".pth", ".gguf", ".h5")))
        if others:
            return (
                f"holds no safetensors, only {_some(others)}; load it with transformers and"
                " save_pretrained() it as safetensors"
            )
        return f"no checkpoint: holds neither {WEIGHTS} nor {INDEX}"
    if {WEIGHTS, INDEX} <= names:
        return f"holds {WEIGHTS} and {INDEX}: programs differ in which they read; remove the stale"
    return None if "config.json" in names else "holds no config.json, so no model"


def side_files(folder: Path) -> list[Path]:
    """What makes weights a model that can be run: config, tokenizer, chat template, own Python."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.suffix in _SIDE and not _NOT_SIDE.fullmatch(path.name)
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that somebody else wrote.

    Raises:
        UserError: when it cannot be read, or is none.
    """
    try:
        if path.stat().st_size > _MOST_JSON:
            raise UserError(f"{path}: larger than {_MOST_JSON >> 20} MiB, so no such file")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged: not JSON ({error}); copy it again") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: damaged: not a JSON object; copy it again")
    return found


def _find(pattern: str) -> list[Path]:
    try:
        folder = find_local(pattern)
        if folder is None:
            return _several(pattern, _glob(pattern))
        if not folder.is_dir():
            raise UserError(f"checkpoints: {pattern}: a file; name the folder that holds it")
        if (folder / "config.json").exists() or not (inside := _folders(folder)):
            if reason := problem(folder):
                raise UserError(f"checkpoints: {pattern}: {reason}")
            return [folder]
        return _several(pattern, inside)
    except OSError as error:
        raise UserError(f"checkpoints: {pattern}: cannot be read ({error.strerror})") from error


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _glob(pattern: str) -> list[Path]:
    from pipeline.config import ROOT

    if not glob.has_magic(pattern):
        raise UserError(f"checkpoints: {pattern}: no such folder{_there(pattern)}")
    own = Path(pattern).expanduser()
    found = glob.glob(str(own)) or glob.glob(str(ROOT / own))
    return [Path(name) for name in found if Path(name).is_dir()]


def _there(pattern: str) -> str:
    """What may help somebody whose folder is not there."""
    parent = find_local(str(Path(pattern).parent))
    if parent is not None and parent.is_dir() and "/" in pattern:
        names = sorted((path.name for path in _folders(parent)), key=natural)
        return f" (there: {_some(names)})" if names else f" ({parent} holds no folders)"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", pattern):
        return (
            "; if it is a hub id: `python -m pipeline prefetch model=custom"
            f" model.id={pattern}` downloads it and prints the folder to name here"
        )
    return ""


def _several(pattern: str, folders: list[Path]) -> list[Path]:
    """Those that are checkpoints; one that nearly is gets a warning, a mere folder none."""
    found, nearly = [], []
    for folder in sorted(folders, key=lambda path: natural(str(path))):
        reason = problem(folder)
        if reason is None:
            found.append(folder)
        elif any((folder / name).exists() for name in ("config.json", "adapter_config.json")):
            nearly.append(f"{folder}: {reason}")
    if not found:
        why = f"; {nearly[0]}" if nearly else ""
        raise UserError(
            f"checkpoints: {pattern}: none of the {len(folders)} folders there is a checkpoint{why}"
        )
    for line in nearly:
        warn(f"left out: {line}")
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
