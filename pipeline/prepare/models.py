"""A model before it is loaded: where it is, its tokenizer, its context, its identity."""

import dataclasses
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.base.errors import UserError
from pipeline.config.settings import ModelConfig
from pipeline.prepare.hub import OFFLINE, from_hub
from pipeline.prepare.questions import find_local

_HASH_WHOLE_UP_TO = 64 << 20  # bytes of a folder; of larger weights a sample is hashed
_SAMPLES, _SAMPLE_BYTES = 16, 64 << 10  # of each file, evenly spaced: training changes them all


def locate(cfg: ModelConfig) -> str:
    """The local folder, or the hub id, that the engine is to load.

    Raises UserError: when `model.id` is a path and nothing is there, or the folder holds no model.
    """
    local = find_local(cfg.id)
    if local is not None:
        if not (local / "config.json").is_file():
            raise UserError(f"{cfg.key}.id={cfg.id}: {local} holds no config.json, so no model")
        return str(local.resolve())
    if cfg.id.startswith(("/", "./", "../", "~")) or cfg.id.count("/") != 1:
        parent = find_local(str(Path(cfg.id).parent))
        names = sorted(p.name for p in parent.iterdir() if p.is_dir()) if parent else []
        siblings = f" (there: {', '.join(names[:20])})" if names else ""
        raise UserError(
            f"{cfg.key}.id={cfg.id}: no such folder{siblings}; give a folder with a Hugging Face"
            " model, or a hub id OWNER/NAME"
        )
    return cfg.id


def tokenizer(cfg: ModelConfig) -> Any:
    """The model's tokenizer, with its chat template.

    Raises UserError: when it cannot be loaded, or its files are missing.
    """
    from transformers import AutoTokenizer

    cfg = of_tokenizer(cfg)
    tokenizer = _from_hub(cfg, AutoTokenizer.from_pretrained)
    digits = tokenizer("1", add_special_tokens=False)["input_ids"]
    if not digits:  # transformers makes up an empty one
        raise UserError(
            f"{cfg.key}.id={cfg.id}: could not be loaded: its tokenizer knows no digits; are"
            " tokenizer.json and its companions missing?"
        )
    return tokenizer


def of_tokenizer(cfg: ModelConfig) -> ModelConfig:
    """The model whose tokenizer is used: `model.tokenizer`, or the model itself."""
    if cfg.tokenizer is None:
        return cfg
    return dataclasses.replace(cfg, id=cfg.tokenizer, revision=None)


def context(cfg: ModelConfig) -> int:
    """The most tokens, prompt and completion together, that the model can hold.

    Raises UserError: when neither `model.context` nor the model's own config says it.
    """
    config = read_config(cfg).get_text_config()
    stated = (cfg.context, getattr(config, "max_position_embeddings", None))
    limits = [int(limit) for limit in stated if limit]
    if not limits:
        raise UserError(
            f"{cfg.key}.context: {cfg.id} does not state its context; set {cfg.key}.context=N"
        )
    return min(limits)


def cache_bytes_per_token(cfg: ModelConfig) -> int | None:
    """Bytes of key-value cache that a token takes in 16 bits; None for what is no plain decoder."""
    config = read_config(cfg)
    heads = getattr(config, "num_attention_heads", None)
    layers = getattr(config, "num_hidden_layers", None)
    if not heads or not layers:
        return None
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    width = 4 if cfg.dtype == "float32" else 2
    return int(2 * width * layers * key_heads * size)


def fingerprint(cfg: ModelConfig) -> str:
    """What tells this model's weights from others: the hub commit, or a hash of the folder.

    A folder's hash covers names and sizes of its files and their bytes; of weights that take
    more than 64 MiB in all it covers sixteen samples of 64 KiB from each file.
    """
    folder = Path(locate(cfg))
    if not folder.is_dir():
        commit = getattr(read_config(cfg), "_commit_hash", None)
        return f"{cfg.id}@{commit or cfg.revision or 'unknown'}"
    files = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".bin", ".json"))
    small = sum(p.stat().st_size for p in files) <= _HASH_WHOLE_UP_TO
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            if small or path.suffix == ".json":
                hashlib.file_digest(file, lambda: digest)
                continue
            for i in range(_SAMPLES):
                file.seek(path.stat().st_size * i // _SAMPLES)
                digest.update(file.read(_SAMPLE_BYTES))
    return f"sha256:{digest.hexdigest()[:16]}"


def read_config(cfg: ModelConfig) -> Any:
    """The model's own configuration, as transformers reads it."""
    return _read_config(cfg.key, cfg.id, cfg.revision, cfg.trust_remote_code)


@cache
def _read_config(key: str, name: str, revision: str | None, trust: bool) -> Any:
    from transformers import AutoConfig

    cfg = ModelConfig(name="", id=name, revision=revision, trust_remote_code=trust)
    cfg.key = key
    return _from_hub(cfg, AutoConfig.from_pretrained)


def _from_hub(cfg: ModelConfig, load: Any) -> Any:
    where = locate(cfg)
    try:
        with from_hub(f"{cfg.key}.id={cfg.id}", OFFLINE.capitalize(), not Path(where).is_dir()):
            return load(where, revision=cfg.revision, trust_remote_code=cfg.trust_remote_code)
    except UserError as error:
        if "trust_remote_code" not in str(error.__cause__):
            raise
        raise UserError(
            f"{cfg.key}.id={cfg.id}: this model brings Python code of its own, which runs only if"
            f" you allow it: read that code, then set {cfg.key}.trust_remote_code=true"
        ) from error
