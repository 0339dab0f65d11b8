"""Read the headers of checkpoints' tensors, and check that the checkpoints can be averaged."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.training.checkpoints import INDEX, WEIGHTS, index, read_json

FLOATS = {"F64", "F32", "F16", "BF16"}
INTEGERS = {"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}
# Keys that may differ between saves without changing what the weights mean.
_VOLATILE = re.compile(
    r"_?attn_implementation(_autoset|_internal)?|_commit_hash|_flash_attn_2_enabled|_name_or_path"
    r"|(torch_)?dtype|gradient_checkpointing|use_cache|(transformers|unsloth)_version"
)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


class Tensor(NamedTuple):
    """The location of one tensor in a file."""

    file: Path
    dtype: str  # as safetensors spells it: BF16, F32, I64, ...
    shape: list[int]
    start: int  # offset of its first byte in the file
    size: int  # bytes


class Weights(NamedTuple):
    """All tensors of a checkpoint, file by file in the order of their bytes."""

    folder: Path
    tensors: dict[str, Tensor]

    @property
    def files(self) -> list[Path]:
        return list(dict.fromkeys(tensor.file for tensor in self.tensors.values()))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.files)


def read(folder: Path) -> Weights:
    """Read the headers of a checkpoint's files. Raises UserError: damaged headers or index."""
    file_of, tensors = index(folder), dict[str, Tensor]()
    for file in sorted({*file_of.values()}) or [WEIGHTS]:
        header = _header(folder / file)
        wrong = [name for name, other in file_of.items() if (other == file) != (name in header)]
        if wrong := [*wrong, *(tensors.keys() & header.keys())]:
            raise UserError(
                f"{folder / file}: {wrong[0]} contradicts {INDEX}; copy the checkpoint again"
            )
        tensors |= header
    return Weights(folder, tensors)


def _header(path: Path) -> dict[str, Tensor]:
    """Read the header of a file: its tensors in the order of their bytes."""
    try:
        with safe_open(path, framework="pt"), path.open("rb") as file:  # it checks the header
            data = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(data - 8))
    except (SafetensorError, ValueError) as error:
        raise UserError(
            f"{path}: damaged ({error}); copy it again, or run `git lfs pull`"
        ) from error
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        tensors[name] = Tensor(path, entry["dtype"], entry["shape"], data + first, last - first)
    return tensors


def check_alike(sources: Sequence[Weights]) -> None:
    """Check that checkpoints, oldest first, can be averaged.

    Raises UserError: they differ in configuration or vocabulary, or in names, shapes or dtypes of
    tensors.
    """
    *olders, newest = sources
    for older in olders:
        _check_config(newest.folder / "config.json", older.folder / "config.json")
        if odd := sorted(newest.tensors.keys() ^ older.tensors.keys()):
            raise UserError(
                f"{newest.folder} and {older.folder}: only one has {odd[0]} ({len(odd)} such):"
                " not checkpoints of one model, or only one ties its embeddings"
            )
        for name, tensor in newest.tensors.items():
            other = older.tensors[name]
            kinds = {tensor.dtype, other.dtype}
            averaged = kinds <= FLOATS or (kinds <= INTEGERS and len(kinds) == 1)
            if not averaged or tensor.shape != other.shape:
                raise UserError(
                    f"{newest.folder}: {name} is {tensor.dtype} {tensor.shape}, but {other.dtype}"
                    f" {other.shape} in {older.folder}: they cannot be averaged, nor can quantized"
                    " weights (merge in full precision, then quantize)"
                )
        for name in _TOKENIZERS:  # training checkpoints often have none
            paths = newest.folder / name, older.folder / name
            if all(path.is_file() for path in paths) and len({*map(_vocabulary, paths)}) > 1:
                raise UserError(
                    f"{paths[1]}: another vocabulary than {paths[0]}: tokens differ in meaning, so"
                    " these are not checkpoints of one model"
                )


def _check_config(newest: Path, older: Path) -> None:
    config, other = (_stable(read_json(path)) for path in (newest, older))
    for key in ("architectures", *config, *other):
        if config.get(key) != other.get(key):
            raise UserError(
                f"{newest}: {key} is {json.dumps(config.get(key))[:80]}, but"
                f" {json.dumps(other.get(key))[:80]} in {older}: not checkpoints of one model"
            )


def _stable(value: Any) -> Any:
    """Remove volatile keys and keys without a value from a configuration, at any depth."""
    if not isinstance(value, dict):
        return value
    return {k: _stable(v) for k, v in value.items() if v is not None and not _VOLATILE.fullmatch(k)}


def _vocabulary(path: Path) -> bytes:
    """Return the token ids in `tokenizer.json`, or the bytes of another file, for comparison."""
    if path.name != "tokenizer.json":
        return path.read_bytes()
    content = read_json(path)
    pairs = (content.get("model") or {}).get("vocab"), content.get("added_tokens")
    return json.dumps(pairs, sort_keys=True).encode()
