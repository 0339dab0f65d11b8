"""What a merged checkpoint was made from: `merge.yaml` beside its weights.

Files are told apart by BLAKE3 (`b3sum FILE` prints the same): SHA-256 of all that is read would
take longer than all the rest of a merge.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from blake3 import blake3

from pipeline.base import environment
from pipeline.base.errors import UserError
from pipeline.research.checkpoints import weights
from pipeline.research.checkpoints.folders import MANIFEST
from pipeline.research.checkpoints.weights import Weights

VERSION = 2  # of the manifest; 1 said nothing about the files of the mean
Looks = dict[Path, tuple[int, int]]  # of every file: bytes, time of the last change in ns


def look(folder: Path) -> Looks:
    """Size and time of every file of a checkpoint, to see later whether it is still the same.

    Raises:
        UserError: when a file is missing.
        OSError: when one cannot be looked at.
    """
    stats = {path: path.stat() for path in weights.files(folder)}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def text(
    sources: Sequence[Weights],
    looks: Sequence[Looks],
    hashes: Sequence[Mapping[str, str]],
    made: Looks,
    own: Mapping[str, str],
) -> str:
    """The manifest of a mean.

    Args:
        sources: the checkpoints, oldest first.
        looks: what `look` found of each.
        hashes: BLAKE3 of its weights by name of the file; small files are hashed here.
        made: what `look` found of the mean.
        own: BLAKE3 of its weights.

    Raises:
        OSError: when a small file cannot be read.
    """
    newest = sources[-1]
    dtypes = sorted({tensor.dtype for tensor in newest.tensors.values()})
    content = {
        "version": VERSION,
        "made_by": {
            "project": environment.version("bayes-at-n"),
            "commit": environment.commit(),  # `describe` asks the GPUs, too
        },
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "window": len(sources),
        "dtype": ", ".join(dtypes),
        "tensors": len(newest.tensors),
        "files": _files(made, own),
        "sources": [  # oldest first
            {"path": os.path.realpath(source.folder), "files": _files(seen, known)}
            for source, seen, known in zip(sources, looks, hashes, strict=True)
        ],
    }
    written: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return written


def is_merge_of(out: Path, sources: Sequence[Path]) -> bool:
    """Whether `out` surely is the mean of exactly these checkpoints, all as they are now.

    Files with the path, size and time that the manifest recorded are taken to be the same; others
    are hashed, if they have at least the size.

    Args:
        out: a folder that may be a merged checkpoint, or not exist.
        sources: folders of checkpoints, oldest first.
    """
    return why_not(out, sources) is None


def why_not(out: Path, sources: Sequence[Path]) -> str | None:
    """Why `out` is not, or not surely, the mean of these checkpoints; None when it is.

    Args:
        out: a folder that may be a merged checkpoint, or not exist.
        sources: folders of checkpoints, oldest first.

    Returns:
        A clause to follow the name of `out`: "has no merge.yaml", "its merge.yaml is of another
        version", "is the mean of other checkpoints: PATHS", "its model.safetensors was changed
        after merging".
    """
    if not out.is_dir():
        return "is no folder" if os.path.lexists(out) else "does not exist"
    try:
        content = yaml.safe_load((out / MANIFEST).read_text(encoding="utf-8"))
        if "sources" in content and content.get("version") != VERSION:
            return f"its {MANIFEST} is of another version"
        recorded = content["sources"]
        looks = [look(source) for source in sources]
        changed = None
        if len(recorded) == len(looks):
            changed = [_changed(*each) for each in zip(recorded, sources, looks, strict=True)]
        if changed is None or any(changed):
            return _other(recorded, sources, changed)
        own = _changed({"path": os.path.realpath(out), **content}, out, look(out))
    except FileNotFoundError as error:
        if error.filename == str(out / MANIFEST):
            return f"has no {MANIFEST}"
        return f"cannot be compared: {error.filename} is missing"
    except (OSError, UserError) as error:
        return f"cannot be compared: {error}"
    except (ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError):
        return f"its {MANIFEST} is damaged"
    return f"its {own} was changed after merging" if own else None


def _other(
    recorded: Sequence[dict[str, Any]], sources: Sequence[Path], changed: list[str | None] | None
) -> str:
    paths = [str(source["path"]) for source in recorded]
    if changed and paths == [os.path.realpath(source) for source in sources]:
        where = next(i for i, name in enumerate(changed) if name)
        return f"was made before {sources[where] / str(changed[where])} changed"
    return f"is the mean of other checkpoints: {', '.join(paths)}"


def _changed(recorded: dict[str, Any], folder: Path, seen: Looks) -> str | None:
    """The first file that is not what was recorded of it."""
    files = {file["name"]: file for file in recorded["files"]}
    sizes = {path.name: size for path, (size, _) in seen.items()}
    for name in files | sizes:
        if name not in files or files[name]["bytes"] != sizes.get(name):
            return str(name)
    here = os.path.realpath(folder) == recorded["path"]
    for path, (_, changed) in seen.items():
        file = files[path.name]
        if not (here and file["mtime_ns"] == changed) and file["blake3"] != _hash(path):
            return path.name
    return None


def _files(seen: Looks, known: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": path.name,
            "bytes": size,
            "mtime_ns": changed,
            "blake3": known.get(path.name) or _hash(path),
        }
        for path, (size, changed) in seen.items()
    ]


def _hash(path: Path) -> str:
    digest = blake3()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return str(digest.hexdigest())
