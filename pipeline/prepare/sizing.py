"""How much memory a model takes, before it is loaded: its weights, and the cache of a sequence.

And what `auto` is on this machine, for this model: GPUs of an engine, engines, sequences at once.
Every choice is told with its arithmetic. Where something is not known, nothing is guessed.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import counted, note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.settings import ModelConfig, RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.prepare.hub import from_hub
from bayes_at_n.pipeline.workers import devices

MOST, USUAL = 1024, 256  # sequences at once: on GPUs, and where their memory says nothing
_SOME, _SPARE = 100, 1.125  # attempts whose lengths tell those of others; for few preemptions
_LEAST = 8  # attempts at once that a model which fits has room for: fewer leave GPUs idle
_GIB = 1 << 30
BESIDE = 3 * _GIB  # of each GPU: activations, graphs, communication
Rows = Sequence[Mapping[str, Any]]  # of the questions table


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

    Layers that look back over a window hold no more than that; those of Mamba 2 a state of one
    size, in float32, and the inputs of its convolution; others nothing.
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
    window = min(tokens, getattr(own, "sliding_window", None) or tokens)
    full, sliding = kinds.count("full_attention"), kinds.count("sliding_attention")
    states = 0
    if heads := getattr(own, "mamba_num_heads", None):
        inner, group = heads * own.mamba_head_dim, own.n_groups * own.ssm_state_size
        states = 4 * inner * own.ssm_state_size + 2 * (inner + 2 * group) * (own.conv_kernel - 1)
        states *= kinds.count("linear_attention")
    return int(per_layer * (full * tokens + sliding * window) + states)


def is_here(cfg: ModelConfig) -> bool:
    """Whether a model is a folder or in the hub's cache, so that nobody else need be asked."""
    return Path(models.locate(cfg)).is_dir() or _cached(cfg) is not None


def by_name(name: str) -> int | None:
    """Bytes of 16-bit weights, from the number of parameters that a model's name says.

    >>> by_name("opencompass/CompassVerifier-3B"), by_name("general-verifier")
    (6000000000, None)
    """
    said = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", name, re.I)
    return round(2e9 * float(said[1])) if said else None


def _indexed(folder: Path) -> int | None:
    """What an index of several files says of all of them, also of those that are not there."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_bytes())
        return int(index["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _largest(files: dict[str, int]) -> int | None:
    """Bytes of the weights among files, by name; those in other formats lie beside them."""
    sums = (sum(files[n] for n in files if n.endswith(kind)) for kind in (".safetensors", ".bin"))
    return next(filter(None, sums), None)


def _cached(cfg: ModelConfig) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(cfg.id, "config.json", revision=cfg.revision)
    return Path(found).parent if isinstance(found, str) else None


def _listed(cfg: ModelConfig) -> dict[str, int]:
    """The files of a model on the hub, without those in folders; none without a network."""
    from huggingface_hub import HfApi

    asked: dict[str, Any] = {"revision": cfg.revision, "files_metadata": True, "timeout": 30}
    try:
        with from_hub("", ""):
            files = HfApi().model_info(cfg.id, **asked).siblings or []
    except UserError:
        return {}
    return {file.rfilename: file.size or 0 for file in files if "/" not in file.rfilename}


class Room:
    """What a model takes of GPUs of so many bytes (None: not known), and what is left of them."""

    def __init__(
        self, cfg: RunConfig, rows: Rows, memory: int | None, made: Sequence[int] = ()
    ) -> None:
        self.cfg, self.memory = cfg, memory
        self.weights = weights(cfg.model) if memory else None
        prompts = sum(len(row["prompt_token_ids"] or ()) for row in rows) / max(1, len(rows))
        limit = max((row["max_tokens"] for row in rows), default=cfg.sampling.max_tokens)
        # A running attempt has made half of its own tokens in the mean, and the long ones run
        # longer: E[L²] / 2E[L], a third of the limit if lengths are anything up to it alike.
        held, self.basis = limit / 3, "a third of the longest completion"
        if len(made) >= _SOME:
            held = _SPARE * sum(tokens * tokens for tokens in made) / max(1, sum(made)) / 2
            self.basis = f"{_SPARE} times what {len(made):,} attempts held while they ran"
        self.tokens = round(prompts + held)
        self.attempt = cache(cfg.model, self.tokens)
        self.longest = cache(cfg.model, round(prompts + limit))

    def gpus(self, there: int) -> int:
        """How many GPUs one engine needs, a power of two that divides the heads."""
        if self.memory is None or self.weights is None or not self.attempt or not self.longest:
            unknown = "of the GPUs' memory" if self.memory is None else "of the model"
            raise UserError(
                f"engine.tensor_parallel_size=auto: the size {unknown} is not known; give a number"
            )
        heads = models.read_config(self.cfg.model).get_text_config().num_attention_heads
        size = 1
        while size <= there and heads % size == 0:
            if self.left(size) >= max(_LEAST * self.each(self.attempt, size), self.longest):
                note(f"engine.tensor_parallel_size=auto: {size}, {self._sum(size)}")
                return size
            size *= 2
        raise UserError(
            f"engine.tensor_parallel_size=auto: {self.cfg.model.name} does not fit"
            f" {counted(there, 'GPU')}: {self._sum(size // 2)}, and {_LEAST} attempts take"
            f" {gib(_LEAST * self.attempt)}. Lower sampling.max_tokens, or give a number"
        )

    def batch(self, size: int) -> int:
        """How many sequences the cache has room for, up to vLLM's own most on large GPUs.

        Logits of 1,024 in float32 take 0.6 GB a copy; its graphs end at 512 (Blackwell: 1,024).
        """
        if self.memory is None or self.weights is None or not self.attempt:
            unknown = "the GPUs' memory" if self.memory is None else "the size of the model"
            note(f"engine.batch_size=auto: {USUAL}, since {unknown} is not known")
            return USUAL
        attempt = self.each(self.attempt, size)
        batch = min(MOST, max(1, self.left(size) // attempt))
        note(
            f"engine.batch_size=auto: {batch}, {self._sum(size)} / {gib(attempt)} an attempt"
            f" ({self.tokens:,} tokens, its prompt and {self.basis})"
            + (f", at most {MOST}" if batch == MOST else "")
        )
        return batch

    def left(self, size: int) -> int:
        """Bytes for the cache of an engine on so many GPUs."""
        assert self.memory is not None and self.weights is not None
        share = int(self.memory * self.cfg.engine.gpu_memory_utilization) - BESIDE
        return size * share - self.weights

    def each(self, cache: int, size: int) -> int:
        """A sequence's cache on all GPUs of an engine: too few heads are copied."""
        own = models.read_config(self.cfg.model).get_text_config()
        heads = getattr(own, "num_key_value_heads", None) or own.num_attention_heads
        return cache * max(1, size // int(heads))

    def _sum(self, size: int) -> str:
        assert self.memory is not None and self.weights is not None
        share = f"{gib(self.memory)} × {self.cfg.engine.gpu_memory_utilization:g}"
        return (
            f"{size} × ({share} − {gib(BESIDE)}) − {gib(self.weights)} of weights ="
            f" {gib(self.left(size))} for the cache"
        )


def gib(size: int) -> str:
    """Bytes for people.

    >>> gib(143771 << 20), gib(3 << 30)
    ('140.4 GiB', '3 GiB')
    """
    digits = 1 if size >= _GIB else 4
    return re.sub(r"\.0+$", "", f"{size / _GIB:,.{digits}f}") + " GiB"


def settled(cfg: RunConfig, rows: Rows, made: Callable[[], Sequence[int]] = tuple) -> RunConfig:
    """The configuration with a number wherever its engine has "auto".

    `rows` are the questions, with the tokens of their prompts and at most of a completion; `made`
    returns the tokens of finished ones, which only GPUs need. Raises UserError: a model fits no
    number of these GPUs, or its size is not known and needed.
    """
    engine = cfg.engine
    gpus = devices.visible_gpus() if devices.on_gpus(cfg) else []
    numbers: dict[str, Any] = {}
    if AUTO in (engine.tensor_parallel_size, engine.batch_size):
        room = Room(cfg, rows, devices.memory(gpus), made() if gpus else ())
        size = engine.tensor_parallel_size
        if size == AUTO:
            size = numbers["tensor_parallel_size"] = room.gpus(len(gpus)) if gpus else 1
        if engine.batch_size == AUTO:
            numbers["batch_size"] = room.batch(size) if gpus else USUAL
    if engine.replicas == AUTO:
        size = numbers.get("tensor_parallel_size") or engine.tensor_parallel_size
        named = (engine.device or "").startswith("cuda:")
        workers = numbers["replicas"] = 1 if named else max(1, len(gpus) // size)
        if gpus:
            each = f" of {size} GPUs each" if size > 1 else ""
            note(f"{counted(len(gpus), 'GPU')}, {counted(workers, 'worker')}{each}")
    return dataclasses.replace(cfg, engine=dataclasses.replace(engine, **numbers))


def alone(cfg: RunConfig, rows: Rows) -> RunConfig:
    """The same for one engine in this process, whatever `engine.replicas` says."""
    engine = dataclasses.replace(cfg.engine, replicas=1)
    return settled(dataclasses.replace(cfg, engine=engine), rows)
