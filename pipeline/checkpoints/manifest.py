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

from pipeline import environment
from pipeline.checkpoints import weights
from pipeline.checkpoints.folders import MANIFEST
from pipeline.checkpoints.weights import Weights
from pipeline.errors import UserError

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
    sources: Sequence[Weights], looks: Sequence[Looks], hashes: Sequence[Mapping[str, str]]
) -> str:
    """The manifest of a mean.

    Args:
        sources: the checkpoints, oldest first.
        looks: what `look` found of each.
        hashes: BLAKE3 of its weights by name of the file; small files are hashed here.

    Raises:
        OSError: when a small file cannot be read.
    """
    newest = sources[-1]
    dtypes = sorted({tensor.dtype for tensor in newest.tensors.values()})
    content = {
        "made_by": {
            "project": environment.version("bayes-at-n"),
            "commit": environment.describe()["commit"],
        },
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "window": len(sources),
        "dtype": ", ".join(dtypes),
        "tensors": len(newest.tensors),
        "sources": [  # oldest first
            {
                "path": os.path.realpath(source.folder),
                "files": [
                    {
                        "name": path.name,
                        "bytes": size,
                        "mtime_ns": changed,
                        "blake3": known.get(path.name) or _hash(path),
                    }
                    for path, (size, changed) in seen.items()
                ],
            }
            for source, seen, known in zip(sources, looks, hashes, strict=True)
        ],
    }
    made: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return made


def is_merge_of(out: Path, sources: Sequence[Path]) -> bool:
    """Whether `out` is the mean of exactly these checkpoints, as they are now.

    Files with the path, size and time that the manifest recorded are taken to be the same; others
    are hashed, if they have at least the size.

    Args:
        out: a folder that may be a merged checkpoint, or not exist.
        sources: folders of checkpoints, oldest first.
    """
    try:
        recorded = yaml.safe_load((out / MANIFEST).read_text(encoding="utf-8"))["sources"]
        looks = [look(source) for source in sources]
        if len(recorded) != len(looks):
            return False
        here = {path.name: path.stat().st_size for path in weights.files(out)}
        if here != {path.name: size for path, (size, _) in looks[-1].items()}:
            return False  # somebody took a file away
        return all(map(_same, recorded, sources, looks))
    except (OSError, UserError, ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError):
        return False  # not there, no manifest, or one that somebody changed


def _same(recorded: dict[str, Any], folder: Path, seen: Looks) -> bool:
    files = {file["name"]: file for file in recorded["files"]}
    sizes = {path.name: size for path, (size, _) in seen.items()}
    if {name: file["bytes"] for name, file in files.items()} != sizes:
        return False
    here = os.path.realpath(folder) == recorded["path"]
    return all(
        (here and files[path.name]["mtime_ns"] == changed)
        or files[path.name]["blake3"] == _hash(path)
        for path, (_, changed) in seen.items()
    )


def _hash(path: Path) -> str:
    digest = blake3()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return str(digest.hexdigest())
