"""What `auto` is on this machine, for this model: GPUs of an engine, engines, sequences at once.

Every choice is told with its arithmetic. Where something is not known, nothing is guessed.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from bayes_at_n.pipeline.base.console import counted, note
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import sizes
from bayes_at_n.pipeline.replicas import devices


def settled(
    cfg: RunConfig, rows: sizes.Rows, made: Callable[[], Sequence[int]] = tuple
) -> RunConfig:
    """The configuration with a number wherever its engine has "auto".

    `rows` are the questions, with the tokens of their prompts and at most of a completion; `made`
    returns the tokens of finished ones, which only GPUs need. Raises UserError: a model fits no
    number of these GPUs, or its size is not known and needed.
    """
    engine = cfg.engine
    gpus = devices.visible_gpus() if devices.on_gpus(cfg) else []
    numbers: dict[str, Any] = {}
    if AUTO in (engine.tensor_parallel_size, engine.batch_size):
        room = sizes.Room(cfg, rows, devices.memory(gpus), made() if gpus else ())
        size = engine.tensor_parallel_size
        if size == AUTO:
            size = numbers["tensor_parallel_size"] = room.gpus(len(gpus)) if gpus else 1
        if engine.batch_size == AUTO:
            numbers["batch_size"] = room.batch(size) if gpus else sizes.MOST
    if engine.replicas == AUTO:
        size = numbers.get("tensor_parallel_size") or engine.tensor_parallel_size
        named = (engine.device or "").startswith("cuda:")
        workers = numbers["replicas"] = 1 if named else max(1, len(gpus) // size)
        if gpus:
            each = f" of {size} GPUs each" if size > 1 else ""
            note(f"{counted(len(gpus), 'GPU')}, {counted(workers, 'worker')}{each}")
    return dataclasses.replace(cfg, engine=dataclasses.replace(engine, **numbers))


def alone(cfg: RunConfig, rows: sizes.Rows) -> RunConfig:
    """The same for one engine in this process, whatever `engine.replicas` says."""
    engine = dataclasses.replace(cfg.engine, replicas=1)
    return settled(dataclasses.replace(cfg, engine=engine), rows)
