"""Estimate a model's memory, and choose the engine settings that are "auto".

These are the GPUs per replica, the number of replicas, and the sequences at once. Every choice is
printed with its calculation. If a size is not known, nothing is guessed.
"""

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bayes_at_n.pipeline.base.console import note, plural
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.protocol import ModelConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.workers import devices

MAX_BATCH, DEFAULT_BATCH = 1024, 256  # sequences at once: the limit on GPUs; if memory is not known
_LEAST = 8  # attempts at once that must fit beside the weights, since fewer leave GPUs idle
_GIB = 1 << 30
OVERHEAD = 3 * _GIB  # per GPU: activations, graphs, communication
Rows = Sequence[Mapping[str, Any]]  # of the questions table


def weight_bytes(cfg: ModelConfig) -> int | None:
    """Return the bytes of the weights in an engine; None if the weights are not available.

    The size is from the index in the model's folder or the hub's cache, which also counts missing
    files, else from the files; float32 files that are loaded in 16 bits count half.
    """
    if (folder := models.local_folder(cfg)) is None:
        return None
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        stored = int(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        formats = folder.glob("*.safetensors"), folder.glob("*.bin")
        stored = next(filter(None, (sum(p.stat().st_size for p in paths) for paths in formats)), 0)
    config = models.read_config(cfg)
    dtype = str(getattr(config, "dtype", None) or getattr(config, "torch_dtype", None))
    halved = "float32" in dtype and cfg.dtype != "float32"
    return (stored // 2 if halved else stored) or None


def weight_bytes_by_name(name: str) -> int | None:
    """Return the bytes of 16-bit weights by the parameter count in a model's name.

    >>> weight_bytes_by_name("opencompass/CompassVerifier-3B")
    6000000000
    >>> weight_bytes_by_name("general-verifier") is None
    True
    """
    billions = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", name, re.I)
    return round(2e9 * float(billions[1])) if billions else None


def cache_bytes(cfg: ModelConfig, tokens: int) -> int | None:
    """Return the bytes of a sequence's key-value cache; None for unknown architectures.

    Layers with sliding-window attention hold at most their window; Mamba 2 layers hold a float32
    state of fixed size and the inputs of their convolution; other layers hold nothing.
    """
    config = models.read_config(cfg)
    heads = getattr(config, "num_attention_heads", None)
    layers = getattr(config, "num_hidden_layers", None)
    if not heads or not layers:
        return None
    own, width = config.get_text_config(), 4 if cfg.dtype == "float32" else 2
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    per_layer = 2 * width * (getattr(config, "num_key_value_heads", None) or heads) * head_size
    if rank := getattr(own, "kv_lora_rank", None):  # one compressed vector instead of heads
        per_layer = width * (rank + own.qk_rope_head_dim)
    kinds = list(getattr(own, "layer_types", None) or ["full_attention"] * layers)
    window = min(tokens, getattr(own, "sliding_window", None) or tokens)
    full, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    states = 0
    if mamba_heads := getattr(own, "mamba_num_heads", None):
        inner, group = mamba_heads * own.mamba_head_dim, own.n_groups * own.ssm_state_size
        states = 4 * inner * own.ssm_state_size + 2 * (inner + 2 * group) * (own.conv_kernel - 1)
        states *= kinds.count("linear_attention")
    return int(per_layer * (full * tokens + sliding * window) + states)


class EngineMemory:
    """The memory of an engine in bytes: weights, the cache of attempts, and what GPUs have left.

    `memory`: of each GPU; None: not known.
    """

    def __init__(self, cfg: RunConfig, rows: Rows, memory: int | None) -> None:
        self.cfg, self.memory = cfg, memory
        self.weights = weight_bytes(cfg.model) if memory else None
        prompts = sum(len(row["prompt_token_ids"] or ()) for row in rows) / max(1, len(rows))
        limit = max((row["max_tokens"] for row in rows), default=cfg.sampling.max_tokens)
        # A running attempt holds half of its tokens on average, and long ones run longer:
        # E[L²] / 2E[L], which is a third of the limit if lengths are uniform up to it.
        self.tokens = round(prompts + limit / 3)
        self.attempt = cache_bytes(cfg.model, self.tokens)
        self.longest = cache_bytes(cfg.model, round(prompts + limit))

    def gpus(self, available: int) -> int:
        """Return how many GPUs one engine needs: a power of two that divides the heads."""
        if self.memory is None or self.weights is None or not self.attempt or not self.longest:
            unknown = "of the GPUs' memory" if self.memory is None else "of the model"
            what = f"engine.tensor_parallel_size=auto: the size {unknown} is unknown"
            raise UserError(f"{what}; set a number")
        heads = models.read_config(self.cfg.model).get_text_config().num_attention_heads
        size = 1
        while size <= available and heads % size == 0:
            if self.left(size) >= max(_LEAST * self.on_gpus(self.attempt, size), self.longest):
                note(f"engine.tensor_parallel_size=auto: {size}, {self._arithmetic(size)}")
                return size
            size *= 2
        raise UserError(
            f"engine.tensor_parallel_size=auto: {self.cfg.model.name} does not fit"
            f" {plural(available, 'GPU')}: {self._arithmetic(size // 2)}, and {_LEAST} attempts"
            f" take {gib(_LEAST * self.attempt)}. Lower sampling.max_tokens, or set a number"
        )

    def batch(self, size: int) -> int:
        """Return how many sequences fit in the cache, at most vLLM's own limit on large GPUs.

        Logits of 1,024 sequences in float32 take 0.6 GB per copy; CUDA graphs end at 512 (1,024 on
        Blackwell).
        """
        if self.memory is None or self.weights is None or not self.attempt:
            unknown = "the GPUs' memory" if self.memory is None else "the size of the model"
            note(f"engine.batch_size=auto: {DEFAULT_BATCH}, since {unknown} is unknown")
            return DEFAULT_BATCH
        attempt = self.on_gpus(self.attempt, size)
        batch = min(MAX_BATCH, max(1, self.left(size) // attempt))
        note(
            f"engine.batch_size=auto: {batch}, {self._arithmetic(size)} / {gib(attempt)} per"
            f" attempt ({self.tokens:,} tokens, its prompt and a third of the longest completion)"
            + (f", at most {MAX_BATCH}" if batch == MAX_BATCH else "")
        )
        return batch

    def left(self, size: int) -> int:
        """Return the bytes left for the cache of an engine on `size` GPUs."""
        assert self.memory is not None and self.weights is not None
        share = int(self.memory * self.cfg.engine.gpu_memory_utilization) - OVERHEAD
        return size * share - self.weights

    def on_gpus(self, cache: int, size: int) -> int:
        """Return a sequence's cache on all GPUs of an engine; fewer heads than GPUs are copied."""
        own = models.read_config(self.cfg.model).get_text_config()
        heads = getattr(own, "num_key_value_heads", None) or own.num_attention_heads
        return cache * max(1, size // int(heads))

    def _arithmetic(self, size: int) -> str:
        assert self.memory is not None and self.weights is not None
        share = f"{gib(self.memory)} × {self.cfg.engine.gpu_memory_utilization:g}"
        return (
            f"{size} × ({share} − {gib(OVERHEAD)}) − {gib(self.weights)} of weights ="
            f" {gib(self.left(size))} for the cache"
        )


def gib(size: int) -> str:
    """Format bytes as GiB.

    >>> gib(143771 << 20), gib(3 << 30)
    ('140.4 GiB', '3 GiB')
    """
    digits = 1 if size >= _GIB else 4
    return re.sub(r"\.0+$", "", f"{size / _GIB:,.{digits}f}") + " GiB"


def resolved(cfg: RunConfig, rows: Rows) -> RunConfig:
    """Return the configuration with numbers instead of "auto" in its engine.

    On GPUs the model must be downloaded. Raises UserError: the model does not fit these GPUs, or
    its size is needed and not known.
    """
    engine = cfg.engine
    gpus = devices.visible_gpus() if devices.on_gpus(cfg) else []
    size, batch, replicas = engine.tensor_parallel_size, engine.batch_size, engine.replicas
    if gpus and AUTO in (size, batch):
        memory = EngineMemory(cfg, rows, devices.memory(gpus))
        size = memory.gpus(len(gpus)) if size == AUTO else size
        batch = memory.batch(int(size)) if batch == AUTO else batch
    size, batch = (1 if size == AUTO else size), (DEFAULT_BATCH if batch == AUTO else batch)
    if replicas == AUTO:
        pinned = (engine.device or "").startswith("cuda:")
        replicas = 1 if pinned else max(1, len(gpus) // int(size))
        if gpus:
            each = f" of {size} GPUs each" if int(size) > 1 else ""
            note(f"{plural(len(gpus), 'GPU')}, {plural(replicas, 'worker')}{each}")
    numbers = {"tensor_parallel_size": size, "batch_size": batch, "replicas": replicas}
    return dataclasses.replace(cfg, engine=dataclasses.replace(engine, **numbers))


def resolved_alone(cfg: RunConfig, rows: Rows) -> RunConfig:
    """Return `resolved` settings for one engine in this process; downloads the model if needed."""
    if devices.on_gpus(cfg):
        models.download(cfg.model)
    engine = dataclasses.replace(cfg.engine, replicas=1)
    return resolved(dataclasses.replace(cfg, engine=engine), rows)


def continued_in_words(cfg: RunConfig, tokens: Collection[int]) -> str:
    """Return a line on attempts that continue, by their tokens so far; empty without any.

    >>> from bayes_at_n.pipeline.config.protocol import SamplingConfig
    >>> continued_in_words(RunConfig(sampling=SamplingConfig(max_tokens=65536)), [16, 8])
    'continues 2 truncated attempts from 8-16 to 65,536 tokens'
    """
    if not tokens:
        return ""
    ends = "-".join(f"{n:,}" for n in sorted({min(tokens), max(tokens)}))
    attempts = plural(len(tokens), "truncated attempt")
    return f"continues {attempts} from {ends} to {cfg.sampling.max_tokens:,} tokens"
