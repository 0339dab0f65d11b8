"""What runs have cost, over all workers and sessions, against what they may cost.

Of every worker counts what it reported or what it left, whichever is more: one that was
killed may have finished more than it last reported, and attempts may have been lost since.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import parquet, sessions, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.outcomes import price
from bayes_at_n.pipeline.store.runfolder import Run

_NAMES = ["prompt_tokens", "completion_tokens", "continued_from"]
Record = Mapping[str, Any]  # a session
Cost = Callable[[Any, Any], Any]  # of so many tokens of prompts and of completions


class Spent(NamedTuple):
    """What generating took."""

    prompt_tokens: float = 0  # of every attempt all of its prompt
    tokens: float = 0  # of completions
    device_s: float = 0.0  # wall seconds × GPUs, of a worker without a GPU × 1
    attempts: float = 0


def spent(runs: Iterable[Run]) -> Spent:
    """What all of these runs took so far, whoever worked on them."""
    return added(one for run in runs for one in by_worker(run, made(run)).values())


def added(parts: Iterable[Spent]) -> Spent:
    """The sum.

    >>> added([Spent(3, 5), Spent(0, 7, 2.5)])
    Spent(prompt_tokens=3, tokens=12, device_s=2.5, attempts=0)
    """
    return Spent(*map(sum, zip(Spent(), *parts, strict=True)))


def made(run: Run) -> dict[str, Spent]:
    """What is stored, by worker; of an attempt that goes on under a raised cap only what is new."""
    found, damage = dict[str, Spent](), parquet.Damage()
    for worker in {shards.worker_of(path) for path in shards.files(run.attempts)}:
        own = shards.batches(run.attempts, ATTEMPTS, _NAMES, damage, only=shards.written_by(worker))
        table = pa.Table.from_batches(own, pa.schema([ATTEMPTS.field(name) for name in _NAMES]))
        prompts, tokens, before = (pc.sum(table[name]).as_py() or 0 for name in _NAMES)
        found[worker] = Spent(prompts, tokens - before, attempts=len(table))
    return found


def by_worker(run: Run, stored: Mapping[str, Spent]) -> dict[str, Spent]:
    """What each worker took, by its name, from what it reported and what is `made`."""
    records = sessions.sessions(run.path)
    both = {n: (reported(records.get(n, {})), stored.get(n, Spent())) for n in {*records, *stored}}
    return {name: Spent(*map(max, *two)) for name, two in both.items()}


def reported(record: Record) -> Spent:
    """What a worker took as its session reports."""
    prompts, tokens, attempts = (record.get(name, 0) for name in (*_NAMES[:2], "attempts"))
    return Spent(prompts, tokens, record.get("lived_s", 0.0) * devices(record), attempts)


def devices(record: Record) -> int:
    """The GPUs of a worker by its session, one where it has none."""
    return max(1, int(record.get("gpus", 0)))


def costs(cfg: RunConfig) -> dict[str, Cost]:
    """By key of the budgets that tokens count for, what tokens cost."""
    every: dict[str, Cost] = {
        "tokens": lambda prompts, tokens: tokens,
        "money": lambda prompts, tokens: price(cfg.engine, prompts, tokens),
    }
    return {key: cost for key, cost in every.items() if key in cfg.budget.given}


def account(cfg: RunConfig, so_far: Spent) -> dict[str, dict[str, Any]]:
    """By key of every budget that is set its limit and what is spent of it; until: only that."""
    taken = {key: cost(*so_far[:2]) for key, cost in costs(cfg).items()}
    taken["gpu_hours"] = so_far.device_s / 3600
    return {
        key: {"limit": limit} | ({"spent": taken[key]} if key in taken else {})
        for key, limit in cfg.budget.given.items()
    }


def left(cfg: RunConfig, so_far: Spent) -> dict[str, Any]:
    """What is left of every budget but `until`, by its key; nothing, where more is spent."""
    found = account(cfg, so_far).items()
    return {key: max(0.0, one["limit"] - one["spent"]) for key, one in found if "spent" in one}


def in_words(account: Mapping[str, Mapping[str, Any]]) -> str:
    """An account as a line; empty where no budget is set.

    >>> in_words({"tokens": {"limit": 2e6, "spent": 512e3}, "until": {"limit": "2026-12-01"}})
    'budget: 512,000 of 2,000,000 tokens, until 2026-12-01'
    """
    units, parts = {"gpu_hours": "GPU-hours", "money": "in money", "tokens": "tokens"}, []
    for key, one in account.items():
        if key == "until":
            parts.append(f"until {one['limit']}")
            continue
        digits = 0 if key == "tokens" else 2
        parts.append(f"{one['spent']:,.{digits}f} of {one['limit']:,.{digits}f} {units[key]}")
    return f"budget: {', '.join(parts)}" if parts else ""
