"""Run folders and attempts made up of random numbers, of any length, for what needs no engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.store import provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run


def prepared(folder: Path, ids: list[str], *settings: str, **cells: Any) -> Run:
    """A run folder as `prepare` would leave it; `cells` are those of every question."""
    run = Run(compose.load([*settings, f"run_dir={folder}"]))
    folder.mkdir(parents=True)
    runfolder.save_config(run)
    common = dict.fromkeys(QUESTIONS.names) | {
        "prompt_token_ids": [1, 2, 3],
        "prompt_logprobs": [float("nan"), -1.0, -1.0],
        "max_tokens": 96,
    }
    rows = [
        {
            **common,
            **{name: f"The {name} of {qid}." for name in ("problem", "gold", "prompt")},
            **cells,
            "question_id": qid,
            "question_hash": provenance.short_hash(qid),
        }
        for qid in ids
    ]
    shards.write_part(folder / "questions.parquet", pa.Table.from_pylist(rows, QUESTIONS))
    hashes = {row["question_id"]: row["question_hash"] for row in rows}
    runfolder.claim(run, provenance.identity(run.cfg) | {"questions": hashes})
    return Run(run.cfg)


def filled(columns: dict[str, Any], rows: int, schema: pa.Schema) -> pa.Table:
    """A table of those columns, and nulls for all others."""
    return pa.table(
        {
            f.name: pa.array(columns[f.name]).cast(f.type)
            if f.name in columns
            else pa.nulls(rows, f.type)
            for f in schema
        },
        schema,
    )


def attempts(rng: np.random.Generator, keys: list[tuple[str, int]], tokens: int) -> pa.Table:
    """Attempts with random ids, log-probs and text, as a table: nothing in it compresses well."""
    n = len(keys)
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * tokens)
    ids = pa.array(rng.integers(0, 150_000, n * tokens, dtype=np.int32))
    logprobs = pa.array(-rng.exponential(0.3, n * tokens).astype(np.float32))
    texts = [rng.bytes(3 * tokens // 2).hex() for _ in keys]
    when = pa.array(np.full(n, 1.7e9) + np.arange(n))
    columns = {
        "question_id": pa.array([key[0] for key in keys]),
        "trial": pa.array([key[1] for key in keys], pa.int32()),
        "seed": pa.array([1234 + key[1] for key in keys], pa.int64()),
        "text": pa.array(texts),
        "finish_reason": pa.array(["stop"] * n),
        "prompt_tokens": pa.array([100] * n, pa.int32()),
        "completion_tokens": pa.array([tokens] * n, pa.int32()),
        "token_ids": pa.ListArray.from_arrays(offsets, ids),
        "logprobs": pa.ListArray.from_arrays(offsets, logprobs),
        "started": when,
        "first_token": when,
        "finished": when,
        "continued_from": pa.nulls(n, pa.int32()),
        "options": pa.nulls(n, ATTEMPTS.field("options").type),
    }
    return pa.Table.from_pydict(columns, schema=ATTEMPTS)


def attempt(rng: np.random.Generator, question_id: str, trial: int, tokens: int) -> dict[str, Any]:
    """One such attempt as the row of Python lists that the stage hands to its writer."""
    [row] = attempts(rng, [(question_id, trial)], tokens).to_pylist()
    return dict(row)


def texts(rng: np.random.Generator, count: int, size: int) -> list[str]:
    """Texts of about `size` characters of random words, which compress as reasoning does."""
    words = np.random.default_rng(0)  # the same in every call
    pool = np.array([words.bytes(3).hex() for _ in range(4000)])
    return [" ".join(pool[rng.integers(0, pool.size, size // 7)]) for _ in range(count)]
