"""What runs have cost, over all workers and sessions, and what is left of their budgets.

Each worker reports what it took in its session; a killed one not its last seconds. Attempts of
workers without a session, as of imported runs, count with their tokens in the table.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.outcomes import price
from bayes_at_n.pipeline.store.runfolder import Run

_COLUMNS = ["prompt_tokens", "completion_tokens"]
Record = Mapping[str, Any]  # a session
Cost = Callable[[Any, Any], Any]  # cost of prompt tokens and completion tokens


class Spent(NamedTuple):
    """What generating took."""

    prompt_tokens: float = 0  # each attempt counts its whole prompt
    tokens: float = 0  # of completions
    device_s: float = 0.0  # wall seconds × GPUs; × 1 for a worker without a GPU
    attempts: float = 0


def spent(runs: Iterable[Run]) -> Spent:
    """Return what these runs took so far, by all workers."""
    parts = list[Spent]()
    for run in runs:
        records = runfolder.sessions(run.path)
        parts += [without_session(run, records), *map(reported, records.values())]
    return added(parts)


def added(parts: Iterable[Spent]) -> Spent:
    """Return the sum.

    >>> added([Spent(3, 5), Spent(0, 7, 2.5)])
    Spent(prompt_tokens=3, tokens=12, device_s=2.5, attempts=0)
    """
    return Spent(*map(sum, zip(Spent(), *parts, strict=True)))


def without_session(run: Run, records: Collection[str]) -> Spent:
    """Return the tokens in the table of workers that are not among `records`."""
    rows = shards.batches(
        run.attempts,
        ATTEMPTS,
        _COLUMNS,
        shards.Damage(),
        only=lambda path: shards.worker_of(path) not in records,
    )
    table = pa.Table.from_batches(rows, pa.schema([ATTEMPTS.field(name) for name in _COLUMNS]))
    prompts, tokens = (pc.sum(column).as_py() or 0 for column in table.columns)
    return Spent(prompts, tokens, attempts=len(table))


def reported(record: Record) -> Spent:
    """Return what a worker took according to its session."""
    prompts, tokens, attempts = (record.get(name, 0) for name in (*_COLUMNS, "attempts"))
    return Spent(prompts, tokens, record.get("lived_s", 0.0) * devices(record), attempts)


def devices(record: Record) -> int:
    """Return the GPUs of a worker according to its session, at least 1."""
    return max(1, int(record.get("gpus", 0)))


def costs(cfg: RunConfig) -> dict[str, Cost]:
    """Return a cost function for each key of `budget` that is set and counts tokens."""
    functions: dict[str, Cost] = {
        "tokens": lambda prompts, tokens: tokens,
        "money": lambda prompts, tokens: price(cfg.engine, prompts, tokens),
    }
    return {key: cost for key, cost in functions.items() if key in cfg.budget.given}


def account(cfg: RunConfig, so_far: Spent) -> dict[str, dict[str, Any]]:
    """Return limit and spending of each budget that is set, by key; `until` has a limit only."""
    used = {key: cost(*so_far[:2]) for key, cost in costs(cfg).items()}
    used["gpu_hours"] = so_far.device_s / 3600
    return {
        key: {"limit": limit} | ({"spent": used[key]} if key in used else {})
        for key, limit in cfg.budget.given.items()
    }


def left(cfg: RunConfig, so_far: Spent) -> dict[str, Any]:
    """Return what is left of each budget but `until`, by key, at least 0."""
    items = account(cfg, so_far).items()
    return {key: max(0.0, one["limit"] - one["spent"]) for key, one in items if "spent" in one}


def in_words(account: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an account as a line; empty if no budget is set.

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
