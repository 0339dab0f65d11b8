"""How much memory a model takes, before it is loaded: its weights, and the cache of a sequence."""

import json
from pathlib import Path
from typing import Any

from pipeline.base.errors import UserError
from pipeline.config.settings import ModelConfig
from pipeline.prepare import models
from pipeline.prepare.hub import from_hub

_SUFFIXES = (".safetensors", ".bin")  # the first of which there are files


def weights(cfg: ModelConfig) -> int | None:
    """Bytes of the model's weights as an engine holds them; None where nobody says.

    From the index or the files of its folder or of the hub's cache, else from the hub's list of
    files; halved where float32 files become 16 bits.
    """
    folder = Path(models.locate(cfg))
    if not folder.is_dir():
        folder = _cached(cfg) or folder
    stored = _indexed(folder) or _largest({p.name: p.stat().st_size for p in folder.glob("*")})
    if stored is None and not folder.is_dir():
        stored = _largest(_listed(cfg))
    config = models.read_config(cfg)
    kind = str(getattr(config, "dtype", None) or getattr(config, "torch_dtype", None))
    if stored and "float32" in kind and cfg.dtype != "float32":
        return stored // 2
    return stored


def cache(cfg: ModelConfig, tokens: int) -> int | None:
    """Bytes of key-value cache of one sequence; None for what is no decoder as we know them.

    Layers that look back over a window hold no more than that; layers without attention nothing.
    """
    per_token = models.cache_bytes_per_token(cfg)
    own = models.read_config(cfg).get_text_config()
    if per_token is None:
        return None
    layers = int(own.num_hidden_layers)
    per_layer = per_token // layers
    if rank := getattr(own, "kv_lora_rank", None):  # one compressed vector in the place of heads
        per_layer = (rank + own.qk_rope_head_dim) * (4 if cfg.dtype == "float32" else 2)
    kinds = list(getattr(own, "layer_types", None) or ["full_attention"] * layers)
    if pattern := getattr(own, "hybrid_override_pattern", None):
        kinds = ["full_attention" if letter == "*" else "other" for letter in pattern]
    window = min(tokens, getattr(own, "sliding_window", None) or tokens)
    full, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    return int(per_layer * (full * tokens + sliding * window))


def _indexed(folder: Path) -> int | None:
    """What an index of several files says of all of them, also of those that are not there."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        return int(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _largest(files: dict[str, int]) -> int | None:
    """Bytes of the weights among files, by name; those in other formats lie beside them."""
    for suffix in _SUFFIXES:
        if found := sum(size for name, size in files.items() if name.endswith(suffix)):
            return found
    return None


def _cached(cfg: ModelConfig) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(cfg.id, "config.json", revision=cfg.revision)
    return Path(found).parent if isinstance(found, str) else None


def _listed(cfg: ModelConfig) -> dict[str, int]:
    """The files of a model on the hub, without those in folders; none without a network."""
    from huggingface_hub import HfApi

    def ask() -> Any:
        return HfApi().model_info(cfg.id, revision=cfg.revision, files_metadata=True, timeout=30)

    try:
        with from_hub("", ""):
            files = ask().siblings or []
    except UserError:
        return {}
    return {file.rfilename: file.size or 0 for file in files if "/" not in file.rfilename}
