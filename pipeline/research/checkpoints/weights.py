"""The tensors of checkpoints as their headers tell them, and whether they have a mean."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from pipeline.base.errors import UserError
from pipeline.research.checkpoints.folders import INDEX, WEIGHTS, index, read_json

FLOATS = {"F64", "F32", "F16", "BF16"}
WHOLE = {"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}
# What may change from save to save, and changes nothing in what the weights mean.
_VOLATILE = re.compile(
    r"(.*\.)?(_?attn_implementation(_autoset|_internal)?|_commit_hash|_flash_attn_2_enabled"
    r"|_name_or_path|(torch_)?dtype|gradient_checkpointing|use_cache|(transformers|unsloth)_version)"
)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # the first that is there


class Tensor(NamedTuple):
    """One tensor of a file, not yet read."""

    file: Path
    dtype: str  # as safetensors spells it: BF16, F32, I64, ...
    shape: tuple[int, ...]


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
    """What the headers of a checkpoint's files say; the library checks that they can be true.

    Raises:
        UserError: a file is damaged, or the index and the files do not agree.
    """
    places = index(folder)
    tensors: dict[str, Tensor] = {}
    for file in sorted({*places.values()}) or [WEIGHTS]:
        try:
            with safe_open(folder / file, framework="pt") as content:
                for name in content.offset_keys():
                    if name in tensors or places.get(name, file) != file:
                        raise UserError(
                            f"{folder / file}: holds {name}, and so does another file, or {INDEX}"
                            " says that it is elsewhere; copy the checkpoint again"
                        )
                    part = content.get_slice(name)
                    tensors[name] = Tensor(folder / file, part.get_dtype(), (*part.get_shape(),))
        except (SafetensorError, ValueError) as error:
            raise UserError(
                f"{folder / file}: damaged or cut off, or a Git LFS pointer ({error}); copy it"
                " again, or run `git lfs pull`"
            ) from error
    if lacking := [name for name in places if name not in tensors]:
        raise UserError(
            f"{folder / places[lacking[0]]}: lacks {lacking[0]}, which {INDEX} says is there; copy"
            " the checkpoint again"
        )
    return Weights(folder, tensors)


def check_alike(sources: Sequence[Weights]) -> None:
    """Raise when checkpoints, oldest first, have no mean.

    Raises:
        UserError: they differ in a setting of the model, in vocabulary, or in names, shapes or
            kinds of tensors; or they are quantised.
    """
    *olders, newest = sources
    for older in olders:
        _same_config(newest.folder / "config.json", older.folder / "config.json")
        for one, other in ((newest, older), (older, newest)):
            if lacking := [name for name in one.tensors if name not in other.tensors]:
                raise UserError(
                    f"{other.folder}: lacks {lacking[0]} and {len(lacking) - 1} other tensors that"
                    f" {one.folder} has: not checkpoints of one model, or one ties its embeddings"
                )
        _same_tensors(newest, older)
    _same_vocabulary([source.folder for source in sources[::-1]])


def _same_config(newest: Path, older: Path) -> None:
    config, other = (dict(_flat(read_json(path))) for path in (newest, older))
    for key in dict.fromkeys(("architectures", "model_type", *config, *other)):
        if config.get(key) != other.get(key) and not _VOLATILE.fullmatch(key):
            raise UserError(
                f"{newest}: {key} is {json.dumps(config.get(key))[:80]}, but"
                f" {json.dumps(other.get(key))[:80]} in {older}: not checkpoints of one model"
            )


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted keys; one without a value is one that is missing."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _same_tensors(newest: Weights, older: Weights) -> None:
    for name, tensor in newest.tensors.items():
        other = older.tensors[name]
        kinds = {tensor.dtype, other.dtype}
        if not (kinds <= FLOATS or (kinds <= WHOLE and len(kinds) == 1)):
            raise UserError(
                f"{newest.folder}: {name} is {tensor.dtype}, and {other.dtype} in {older.folder}:"
                " these have no mean; merge checkpoints in full precision, and quantise their mean"
            )
        if tensor.shape != other.shape:
            raise UserError(
                f"{newest.folder}: {name} has shape {list(tensor.shape)}, but {list(other.shape)}"
                f" in {older.folder}: not checkpoints of one model"
            )


def _same_vocabulary(folders: Sequence[Path]) -> None:
    """Among those that have a tokenizer: training checkpoints often have none."""
    first: dict[str, Path] = {}
    for folder in folders:
        path = next((folder / name for name in _TOKENIZERS if (folder / name).is_file()), None)
        if path is None:
            continue
        other = first.setdefault(path.name, path)
        if path.read_bytes() != other.read_bytes() and _vocabulary(path) != _vocabulary(other):
            raise UserError(
                f"{path}: another vocabulary than {other}: a token means another thing there, so"
                " these are not checkpoints of one model"
            )


def _vocabulary(path: Path) -> Any:
    """Which token has which number, where the file says so; elsewhere the file itself."""
    if path.name != "tokenizer.json":
        return path.read_bytes()
    content = read_json(path)
    return (content.get("model") or {}).get("vocab"), content.get("added_tokens")
