"""The weights of a checkpoint as they lie on the disk: which tensor is where in which file.

Only headers are read here. A safetensors file is eight bytes with the length of its header, the
header (JSON: dtype, shape and place of every tensor), then the tensors, without gaps.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.base.errors import UserError
from pipeline.research.checkpoints.folders import INDEX, WEIGHTS, read_json, side_files

_MOST_HEADER = 100_000_000  # bytes; the limit of the safetensors library, too


class Tensor(NamedTuple):
    """Where one tensor lies: `size` bytes from byte `start` of `file`."""

    file: Path
    dtype: str  # as safetensors spells it: BF16, F32, I64, ...
    shape: tuple[int, ...]
    start: int
    size: int


class Shard(NamedTuple):
    """One file: its tensors begin at byte `data`, and are named in the order of their bytes."""

    path: Path
    data: int
    size: int
    names: tuple[str, ...]


class Weights(NamedTuple):
    """All tensors of a checkpoint."""

    folder: Path
    shards: tuple[Shard, ...]
    tensors: dict[str, Tensor]


def read(folder: Path) -> Weights:
    """Where the tensors of a checkpoint lie.

    Raises:
        UserError: a file is missing or damaged, or the index and the shards do not agree.
    """
    named = _index(folder)
    shards: list[Shard] = []
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(named.values())) or [WEIGHTS]:
        shard, found = _shard(folder / name)
        for tensor in found:
            if tensor in tensors:
                raise UserError(
                    f"{folder}: {tensor} is in {tensors[tensor].file.name} and in {name}; a tensor"
                    " must be in one file"
                )
        shards.append(shard)
        tensors |= found
    for tensor, file in named.items():
        if tensor not in tensors or tensors[tensor].file.name != file:
            raise UserError(
                f"{folder / file}: lacks {tensor}, which {INDEX} says is there; copy the"
                " checkpoint again"
            )
    return Weights(folder, tuple(shards), tensors)


def files(folder: Path) -> list[Path]:
    """What makes a checkpoint: weights, their index, config, tokenizer.

    Raises:
        UserError: when the index cannot be read, or a file is missing.
        OSError: when the folder cannot be read.
    """
    named = [folder / name for name in sorted(set(_index(folder).values()))]
    return [*([*named, folder / INDEX] if named else [folder / WEIGHTS]), *side_files(folder)]


def _index(folder: Path) -> dict[str, str]:
    """Which tensor is in which file, as the index says; empty without an index."""
    path = folder / INDEX
    if not path.exists():
        return {}
    named = read_json(path).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise UserError(f"{path}: damaged: no weight_map, which says what is where; copy it again")
    for file in named.values():
        if not isinstance(file, str) or not re.fullmatch(r"[^/\\]+\.safetensors", file):
            raise UserError(f"{path}: weight_map names {file!r}, which is no file of this folder")
        if not (folder / file).exists():
            raise UserError(
                f"{folder}: {file} is missing, which {INDEX} names; copy the checkpoint again"
            )
    return named


def _shard(path: Path) -> tuple[Shard, dict[str, Tensor]]:
    """One file, checked by the safetensors library before anything in it is believed."""
    from safetensors import SafetensorError, safe_open

    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(64)
            length = int.from_bytes(start[:8], "little")
            if start.startswith(b"version https://git-lfs"):
                raise UserError(f"{path}: a Git LFS pointer, not the weights; run `git lfs pull`")
            if size < 8 or length > min(_MOST_HEADER, size - 8):
                raise UserError(f"{path}: damaged: no safetensors header; copy it again")
            file.seek(8)
            header = file.read(length)
        with safe_open(path, framework="np"):  # header only: offsets, sizes, nothing left over
            entries = json.loads(header, object_pairs_hook=_once)
        entries.pop("__metadata__", None)
        tensors = dict(sorted(_tensors(path, entries, 8 + length), key=lambda item: item[1].start))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: damaged or cut off ({reason}); copy it again") from error
    if any(tensor.start + tensor.size > size for tensor in tensors.values()):
        raise UserError(f"{path}: damaged: names bytes beyond its end; copy it again")
    return Shard(path, 8 + length, size, tuple(tensors)), tensors


def _tensors(path: Path, entries: dict[str, Any], data: int) -> Iterator[tuple[str, Tensor]]:
    for name, entry in entries.items():
        first, last = entry["data_offsets"]
        shape = tuple(entry["shape"])
        tensor = Tensor(path, entry["dtype"], shape, data + first, last - first)
        if not 0 <= first <= last or (math.prod(shape) == 0) != (tensor.size == 0):
            raise ValueError(f"the place of {name} makes no sense")
        yield name, tensor


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object that says nothing twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made
