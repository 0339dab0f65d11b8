"""Whether checkpoints are of one model, so that the mean of their weights means something."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.research.checkpoints.folders import read_json
from pipeline.research.checkpoints.weights import Weights

FLOATS = ("F64", "F32", "F16", "BF16")
WHOLE = ("BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64")
_UNQUANTISED = "merge the checkpoints in full precision, and quantise their mean"
# What may change from save to save, and changes nothing in what the weights mean.
_VOLATILE = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "attn_implementation",
    "dtype",
    "gradient_checkpointing",
    "torch_dtype",
    "transformers_version",
    "unsloth_version",
    "use_cache",
}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # the first that is there
_HEADS = ("lm_head.weight", "embed_out.weight", "output.weight")


def check(sources: Sequence[Weights]) -> None:
    """Raise when checkpoints, oldest first, cannot be averaged.

    Raises:
        UserError: they differ in architecture, another setting, vocabulary, tied-ness, or names,
            shapes or kinds of tensors; or they are quantised.
    """
    *others, newest = sources
    configs = [read_json(source.folder / "config.json") for source in sources]
    for source, config in zip(sources, configs, strict=True):
        _refuse_quantised(source, config)
    for other, config in zip(others, configs, strict=False):
        _same_config(newest.folder, configs[-1], other.folder, config)
    for other in others:
        _same_names(newest, other)
        _same_tensors(newest, other)
    _same_vocabulary([source.folder for source in sources])


def _refuse_quantised(source: Weights, config: dict[str, Any]) -> None:
    for key, value in _flat(config, volatile=True):
        found = re.match(r"(.*\.)?(quantization|compression)_config\b", key)
        if found and value is not None:
            raise UserError(
                f"{source.folder}/config.json: {found[0]}: these weights are quantised,"
                f" and the mean of codes is no code of the mean; {_UNQUANTISED}"
            )
    for name, tensor in source.tensors.items():
        if tensor.dtype in WHOLE and tensor.dtype != "BOOL" and _scaled(name, source):
            kind = f"{tensor.dtype} with a scale beside it"
        elif tensor.dtype in FLOATS or tensor.dtype in WHOLE:
            continue
        else:
            kind = tensor.dtype
        raise UserError(
            f"{source.folder}: {name} is {kind}, a dtype that cannot be averaged; {_UNQUANTISED}"
        )


def _scaled(name: str, source: Weights) -> bool:
    """Whether whole numbers are codes of weights, by how GPTQ, MXFP4 and others name scales."""
    stem = re.sub(r"(qweight|qzeros|weight_packed|weight|blocks)$", "", name)
    scales = {f"{name}{end}" for end in ("_scale", "_scale_inv", ".absmax", ".SCB")}
    if stem != name:
        scales |= {f"{stem}{end}" for end in ("scales", "weight_scale", "SCB")}
    return any(scale in source.tensors for scale in scales)


def _same_config(newest: Path, one: dict[str, Any], older: Path, two: dict[str, Any]) -> None:
    """Key by key; a key that is missing is a key without value."""
    mine, other = dict(_flat(one)), dict(_flat(two))
    first = ("architectures", "model_type", "vocab_size", "tie_word_embeddings")
    for key in dict.fromkeys((*first, *mine, *other)):
        a, b = mine.get(key), other.get(key)
        if a == b:
            continue
        tied = key.rpartition(".")[2] == "tie_word_embeddings"
        if tied and (a is None or b is None):
            continue  # left out where it is the default; the tensors tell
        raise UserError(
            f"{newest}/config.json: {key} is {_short(a)}, but {_short(b)} in {older}: not"
            f" checkpoints of one {'model: one ties its embeddings' if tied else 'model'}"
        )


def _flat(
    config: dict[str, Any], prefix: str = "", volatile: bool = False
) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.", volatile)
        elif volatile or key not in _VOLATILE:
            yield f"{prefix}{key}", None if value == {} else value


def _same_names(newest: Weights, older: Weights) -> None:
    for one, two in ((newest, older), (older, newest)):
        lacks = [name for name in one.tensors if name not in two.tensors]
        if not lacks:
            continue
        if all(name.endswith(_HEADS) for name in lacks):
            raise UserError(
                f"{two.folder}: lacks {lacks[0]}, which {one.folder} has: the embeddings are tied"
                " in the one and not in the other, so these are not checkpoints of one model"
            )
        more = f" and {len(lacks) - 1} more tensors" if len(lacks) > 1 else ""
        raise UserError(
            f"{two.folder}: lacks {lacks[0]}{more}, which {one.folder} has: not checkpoints of one"
            " model"
        )


def _same_tensors(newest: Weights, older: Weights) -> None:
    for name, mine in newest.tensors.items():
        other = older.tensors[name]
        if mine.shape != other.shape:
            raise UserError(
                f"{newest.folder}: {name} has shape {list(mine.shape)}, but {list(other.shape)} in"
                f" {older.folder}: not checkpoints of one model"
            )
        if mine.dtype != other.dtype and not {mine.dtype, other.dtype} <= set(FLOATS):
            raise UserError(
                f"{newest.folder}: {name} is {mine.dtype}, but {other.dtype} in {older.folder}:"
                " these have no mean"
            )


def _same_vocabulary(folders: Sequence[Path]) -> None:
    """Among those that have a tokenizer: training checkpoints often have none."""
    known: dict[str, tuple[Path, bytes]] = {}
    for folder in reversed(folders):
        path = next((folder / n for n in _TOKENIZERS if (folder / n).is_file()), None)
        if path is None:
            continue
        digest = _digest(path)
        other, seen = known.setdefault(path.name, (path, digest))
        if digest != seen and _vocabulary(path) != _vocabulary(other):
            raise UserError(
                f"{path}: another vocabulary than {other}: a token means another thing there, so"
                " these are not checkpoints of one model"
            )
    newest = folders[-1]
    if known and not any((newest / name).is_file() for name in _TOKENIZERS):
        other = next(iter(known.values()))[0]
        warn(
            f"{newest}: the newest has no tokenizer, so the mean will have none; {other.parent} has"
            f" {other.name}: copy its tokenizer files into the mean, if the model has not changed"
            " its own"
        )


def _vocabulary(path: Path) -> Any:
    """Which token has which number, where the file says so; elsewhere the file itself."""
    if path.name != "tokenizer.json":
        return path.read_bytes()
    found = read_json(path)
    model, added = found.get("model"), found.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    pairs = [(t.get("id"), t.get("content")) for t in added or [] if isinstance(t, dict)]
    return vocabulary, sorted(pairs, key=repr)


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _short(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
