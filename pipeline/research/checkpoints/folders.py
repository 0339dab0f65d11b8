"""Checkpoints as folders: finding them, their order, and which of their files are what.

A checkpoint is a folder in Hugging Face's form: `config.json` and weights as safetensors, in one
file or in shards with an index.
"""

import glob
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.prepare.questions import find_local

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MANIFEST = "merge.yaml"  # of a merged checkpoint; no .json, which `models.fingerprint` would hash
_SIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")
# Of those suffixes, too, but about a training, or about weights in another form.
_NOT_SIDE = re.compile(
    r"(trainer_state|adapter_config|.*_results|.*\.index)\.json|zero_to_fp32\.py|requirements\.txt"
)
_CONFIGS = ("config.json", "adapter_config.json")
_WEIGHTS = re.compile(r".*\.safetensors|(pytorch_|adapter_)?model.*\.bin|.*\.index\.json")
_MOST_JSON = 200 << 20  # bytes


class Checkpoint(NamedTuple):
    """A folder with a model, and the step that its name tells (`step-3900`: 3900)."""

    path: Path
    name: str
    step: int | None


def find(patterns: Sequence[str], last: int | None = None) -> list[Checkpoint]:
    """The checkpoints that patterns name, each once: a folder rather than a link to it.

    What a folder or a glob holds besides is left out: merged checkpoints (those with a
    `merge.yaml`) with a warning, mere folders without a word. What looks like a checkpoint but is
    not complete (it has a config or weights) would shift the windows, and is an error; before the
    first checkpoint that counts it shifts nothing, and is a warning.

    Args:
        patterns: each a checkpoint, a folder that holds checkpoints, or a glob such as
            `training/step-3*`. They keep their order; what one of them finds is in `natural` order
            (step-900 before step-1000).
        last: how many of them count, from the end; default: all.

    Raises:
        UserError: when a pattern finds none, or names a folder that is no checkpoint; fewer than
            `last` are there; an incomplete one lies among or after those that count; or the one
            that is found holds checkpoints itself.
    """
    found: dict[Path, tuple[Path, str | None]] = {}  # in order, with what is wrong
    merged: list[Path] = []
    for pattern in patterns:
        taken, means = _find(pattern)
        merged += means
        for path, reason in taken:
            real = path.resolve()
            if real not in found or _links(path) < _links(found[real][0]):
                found[real] = path, reason
    paths = [path for path, reason in found.values() if reason is None]
    count = len(paths)
    paths = paths[-last:] if last else paths
    _judge(found.values(), paths)
    if last is not None and last > count:
        raise UserError(
            f"last={last}: only {count} checkpoints there: {_some([p.name for p in paths])}; name"
            f" more of them, or last={count}"
        )
    for path in merged:
        if path.resolve() not in found:
            warn(f"left out: {path}: itself a mean ({MANIFEST}); to take it, name it outright")
    if len(paths) == 1 and (hint := inside(paths[0])):
        raise UserError(f"checkpoints: {paths[0]}: is one checkpoint{hint}")
    return [Checkpoint(path, path.name, _step(path.name)) for path in paths]


def windows(checkpoints: Sequence[Checkpoint], size: int) -> list[tuple[Checkpoint, ...]]:
    """Every run of `size` neighbours, in order; each ends at its newest.

    >>> steps = [Checkpoint(Path(f"s-{n}"), f"s-{n}", n) for n in (1, 2, 3)]
    >>> [[c.step for c in window] for window in windows(steps, 2)]
    [[1, 2], [2, 3]]
    """
    return [tuple(checkpoints[i : i + size]) for i in range(len(checkpoints) - size + 1)]


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key by which numbers count by their value, wherever in the name they are.

    Everything else counts by its letters, after numbers. So folders without a number, such as
    `best` and `final`, are sorted by name among the others: after `step-1000` or before it, as the
    alphabet has it, whenever they were saved.

    >>> sorted(["step-1000", "step-900"], key=natural)
    ['step-900', 'step-1000']
    >>> sorted(["final", "best", "checkpoint-20"], key=natural)
    ['best', 'checkpoint-20', 'final']
    """
    parts = re.split(r"(\d+)", name)
    return [(not p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in parts if p]


def inside(folder: Path) -> str:
    """A clause for a folder that holds checkpoints, as that of a trainer does; else empty."""
    within = [path for path in _folders(folder) if not (path / MANIFEST).exists()]
    count = sum(problem(path) is None for path in within)
    several = f"{count} checkpoints" if count > 1 else "1 checkpoint"
    return f"; it holds {several}: name them with '{folder}/*'" if count else ""


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
    if "config.json" not in names:
        return "holds no config.json, so no model"
    if INDEX in names and (missing := _missing(folder)):
        return f"{_some(missing)} is missing, which {INDEX} names; copy the checkpoint again"
    return None


def has_weights(folder: Path) -> bool:
    """Whether any file of a folder is named as weights are, in whatever form."""
    try:
        return any(_WEIGHTS.fullmatch(path.name) for path in folder.iterdir())
    except OSError:
        return False


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


def _find(pattern: str) -> tuple[list[tuple[Path, str | None]], list[Path]]:
    """Checkpoints, each with what is wrong with it, in natural order; and means of others."""
    try:
        folder = find_local(pattern)
        if folder is None:
            return _several(pattern, _glob(pattern))
        if not folder.is_dir():
            raise UserError(f"checkpoints: {pattern}: a file; name the folder that holds it")
        if (folder / "config.json").exists() or not (within := _folders(folder)):
            if reason := problem(folder):
                raise UserError(f"checkpoints: {pattern}: {reason}{inside(folder)}")
            return [(folder, None)], []
        return _several(pattern, within)
    except OSError as error:
        raise UserError(f"checkpoints: {pattern}: cannot be read ({error.strerror})") from error


def _judge(found: Iterable[tuple[Path, str | None]], paths: Sequence[Path]) -> None:
    """Warn of what is incomplete before the first checkpoint that counts; raise after it."""
    before = True
    for path, reason in found:
        before = before and path not in paths[:1]
        if reason and before:
            warn(f"left out: {path}: {reason}")
        elif reason:
            raise UserError(
                f"{path}: not a complete checkpoint ({reason}), and it lies among or after"
                " those that are: finish it, remove it, or name the checkpoints one by one"
            )


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _glob(pattern: str) -> list[Path]:
    from pipeline.base.places import ROOT

    if not glob.has_magic(pattern):
        raise UserError(f"checkpoints: {pattern}: no such folder{_there(pattern)}")
    own = Path(pattern).expanduser()
    found = glob.glob(str(own)) or glob.glob(str(ROOT / own))
    if not found:
        raise UserError(f"checkpoints: {pattern}: matches nothing{_there(pattern)}")
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


def _several(pattern: str, folders: list[Path]) -> tuple[list[tuple[Path, str | None]], list[Path]]:
    """Of many folders those that are checkpoints, or nearly, and those that are means."""
    real: dict[Path, Path] = {}
    for path in sorted(folders, key=lambda path: (_links(path), natural(str(path)))):
        real.setdefault(path.resolve(), path)
    found: list[tuple[Path, str | None]] = []
    means: list[Path] = []
    for folder in sorted(real.values(), key=lambda path: natural(str(path))):
        reason = problem(folder)
        if (folder / MANIFEST).exists():
            means.append(folder)
        elif reason is None or has_weights(folder) or any((folder / n).exists() for n in _CONFIGS):
            found.append((folder, reason))
    if any(reason is None for _, reason in found):
        return found, means
    why = f"; {found[0][0]}: {found[0][1]}" if found else ""
    if means:
        why += f"; {means[0]} is itself a mean ({MANIFEST}), to be named outright"
    raise UserError(
        f"checkpoints: {pattern}: none of the {len(folders)} folders there is a checkpoint{why}"
    )


def _links(path: Path) -> int:
    """How many parts of a path are links: `latest` beside `step-900` is one more."""
    whole = Path(os.path.abspath(path))
    return sum(part.is_symlink() for part in (whole, *whole.parents))


def _step(name: str) -> int | None:
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else None


def _missing(folder: Path) -> list[str]:
    """Files that the index names; what else may be wrong with one is found when it is read."""
    try:
        named = read_json(folder / INDEX).get("weight_map")
    except UserError:
        return []
    files = {str(name) for name in named.values()} if isinstance(named, dict) else set()
    return sorted(name for name in files if "/" not in name and not (folder / name).exists())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
