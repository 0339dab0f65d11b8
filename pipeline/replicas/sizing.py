"""What `auto` is on this machine, for this model: GPUs of an engine, engines, sequences at once.

Every choice is told with its arithmetic. Where something is not known, nothing is guessed.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.base.console import note
from pipeline.base.errors import UserError
from pipeline.config.checks import AUTO
from pipeline.config.settings import RunConfig
from pipeline.prepare import models, sizes
from pipeline.replicas import devices

MOST = 256  # sequences at once
_LEAST = 8  # attempts at once that a model which fits has room for: fewer leave GPUs idle
_GIB = 1 << 30
_BESIDE = 3 * _GIB  # of each GPU: activations, graphs, communication


def settled(cfg: RunConfig, rows: Sequence[Mapping[str, Any]]) -> RunConfig:
    """The configuration with a number wherever its engine has "auto".

    `rows` are the questions, with the tokens of their prompts and at most of a completion. Raises
    UserError: a model fits no number of these GPUs, or its size is not known and needed.
    """
    engine = cfg.engine
    gpus = devices.visible_gpus() if devices.on_gpus(cfg) else []
    numbers: dict[str, Any] = {}
    if AUTO in (engine.tensor_parallel_size, engine.batch_size):
        room = _Room(cfg, rows, devices.memory(gpus))
        size = engine.tensor_parallel_size
        if size == AUTO:
            size = numbers["tensor_parallel_size"] = room.gpus(len(gpus)) if gpus else 1
        if engine.batch_size == AUTO:
            numbers["batch_size"] = room.batch(size) if gpus else MOST
    if engine.replicas == AUTO:
        size = numbers.get("tensor_parallel_size") or engine.tensor_parallel_size
        named = (engine.device or "").startswith("cuda:")
        workers = numbers["replicas"] = 1 if named else max(1, len(gpus) // size)
        if gpus:
            each = f" of {size} GPUs each" if size > 1 else ""
            note(f"{_count(len(gpus), 'GPU')}, {_count(workers, 'worker')}{each}")
    return dataclasses.replace(cfg, engine=dataclasses.replace(engine, **numbers))


def alone(cfg: RunConfig, rows: Sequence[Mapping[str, Any]]) -> RunConfig:
    """The same for one engine in this process, whatever `engine.replicas` says."""
    engine = dataclasses.replace(cfg.engine, replicas=1)
    return settled(dataclasses.replace(cfg, engine=engine), rows)


class _Room:
    """What a model takes of GPUs of so many bytes (None: not known), and what is left of them."""

    def __init__(
        self, cfg: RunConfig, rows: Sequence[Mapping[str, Any]], memory: int | None
    ) -> None:
        self.cfg, self.memory = cfg, memory
        self.weights = sizes.weights(cfg.model) if memory else None
        # If lengths are anything up to the limit alike, a running attempt holds a third of it in
        # the mean: the long ones run longer.
        prompts = sum(len(row["prompt_token_ids"] or ()) for row in rows) / max(1, len(rows))
        limit = max((row["max_tokens"] for row in rows), default=cfg.sampling.max_tokens)
        self.tokens = round(prompts + limit / 3)
        self.attempt = sizes.cache(cfg.model, self.tokens)
        self.longest = sizes.cache(cfg.model, round(prompts + limit))

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
            if self._left(size) >= max(_LEAST * self._each(self.attempt, size), self.longest):
                note(f"engine.tensor_parallel_size=auto: {size}, {self._sum(size)}")
                return size
            size *= 2
        raise UserError(
            f"engine.tensor_parallel_size=auto: {self.cfg.model.name} does not fit"
            f" {_count(there, 'GPU')}: {self._sum(size // 2)}, and {_LEAST} attempts take"
            f" {_gib(_LEAST * self.attempt)}. Lower sampling.max_tokens, or give a number"
        )

    def batch(self, size: int) -> int:
        """How many sequences the cache has room for."""
        if self.memory is None or self.weights is None or not self.attempt:
            unknown = "the GPUs' memory" if self.memory is None else "the size of the model"
            note(f"engine.batch_size=auto: {MOST}, since {unknown} is not known")
            return MOST
        attempt = self._each(self.attempt, size)
        batch = min(MOST, max(1, self._left(size) // attempt))
        note(
            f"engine.batch_size=auto: {batch}, {self._sum(size)} / {_gib(attempt)} an attempt"
            f" ({self.tokens:,} tokens, its prompt and a third of the longest completion)"
            + (f", at most {MOST}" if batch == MOST else "")
        )
        return batch

    def _left(self, size: int) -> int:
        """Bytes for the cache of an engine on so many GPUs."""
        assert self.memory is not None and self.weights is not None
        share = int(self.memory * self.cfg.engine.gpu_memory_utilization) - _BESIDE
        return size * share - self.weights

    def _each(self, cache: int, size: int) -> int:
        """A sequence's cache on all GPUs of an engine: too few heads are copied."""
        own = models.read_config(self.cfg.model).get_text_config()
        heads = getattr(own, "num_key_value_heads", None) or own.num_attention_heads
        return cache * max(1, size // int(heads))

    def _sum(self, size: int) -> str:
        assert self.memory is not None and self.weights is not None
        share = f"{_gib(self.memory)} × {self.cfg.engine.gpu_memory_utilization:g}"
        return (
            f"{size} × ({share} − {_gib(_BESIDE)}) − {_gib(self.weights)} of weights ="
            f" {_gib(self._left(size))} for the cache"
        )


def _gib(size: int) -> str:
    """Bytes for people.

    >>> _gib(143771 << 20), _gib(3 << 30)
    ('140.4 GiB', '3 GiB')
    """
    digits = 1 if size >= _GIB else 4
    return re.sub(r"\.0+$", "", f"{size / _GIB:,.{digits}f}") + " GiB"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
