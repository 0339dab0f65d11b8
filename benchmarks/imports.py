"""Import of records with texts: how long, and how much memory, from Parquet to run folders.

    python -m benchmarks.imports                                     192,000 records of 15 KB each
    python -m benchmarks.imports --records 1152000 --bytes 4000      as many as scorio-gpqa has
    python -m benchmarks.imports --records 4800 --tokens 3000        as scorio-gpqa: with the top 20

Records in the layout of harimo/scorio-trace: 4 tasks x 30 questions x 80 seeds x as many models as
the number of records gives, in files of one model, 80 to a group of rows, as there. Texts are
random words, which compress about as well as reasoning does. The import runs in a child process;
its peak is read from outside with psutil, every twentieth of a second.

  pyarrow         the same files, all columns, decoded and thrown away
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common

TASKS, QUESTIONS, SEEDS = ("aime24", "aime25", "brumo25", "hmmt25_feb"), 30, 80
MOST_TIMES, MOST_BYTES = 3.0, 1e9  # pyarrow's seconds, and the peak
_EACH = len(TASKS) * QUESTIONS * SEEDS


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, records=192_000)
    parser.add_argument("--bytes", type=int, default=15_000, metavar="B", help="of text a record")
    parser.add_argument(
        "--tokens", type=int, default=0, metavar="N", help="a record, with log-probs"
    )
    args = parser.parse_args()
    with common.workdir(args) as folder:
        size = make(folder / "records", args)
        common.out.print(f"{args.records} records, {size / 2**20:.0f} MiB of Parquet")
        whole, whole_cpu = decode(folder / "records")
        seconds, cpu, peak = watched(folder / "records", folder / "runs")
        made = sum(p.stat().st_size for p in (folder / "runs").rglob("*.parquet"))
    record = {
        "records": args.records,
        "seconds": seconds,
        "cpu_s": cpu,
        "pyarrow_s": whole,
        "pyarrow_cpu_s": whole_cpu,
        "times_pyarrow": seconds / whole,
        "peak_mb": peak / 1e6,
        "source_mib": size / 2**20,
        "runs_mib": made / 2**20,
    }
    common.table("import", ["", "value"], [[*pair] for pair in record.items()])
    met = "met" if seconds <= MOST_TIMES * whole and peak < MOST_BYTES else "NOT met"
    common.out.print(f"target: {MOST_TIMES:g} times pyarrow's seconds, peak under 1 GB: {met}")
    common.finish(args, record)


def make(folder: Path, args: argparse.Namespace) -> int:
    """Files of records; returns their bytes."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    pool = np.array([rng.bytes(3).hex() for _ in range(4000)])
    for start in range(0, args.records, _EACH):
        rows = np.arange(start, min(start + _EACH, args.records))
        path = folder / f"{start // _EACH:03d}.parquet"
        writer: Any = None
        for part in np.array_split(rows, max(1, rows.size // SEEDS)):
            table = records(part, pool, rng, args)
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
        writer.close()
    return sum(p.stat().st_size for p in folder.iterdir())


def records(rows: Any, pool: Any, rng: np.random.Generator, args: argparse.Namespace) -> pa.Table:
    """Records of some numbers: model, task, question and seed are its digits."""
    model, rest = rows // _EACH, rows % _EACH
    task, question, seed = rest // (QUESTIONS * SEEDS), rest // SEEDS % QUESTIONS, rest % SEEDS
    n, size = rows.size, args.bytes
    right = rng.random(n) < 0.6
    texts = [" ".join(pool[rng.integers(0, pool.size, size // 7)]) for _ in range(n)]
    columns = {
        "task": np.array(TASKS)[task],
        "model": [f"somebody/model-{m}" for m in model],
        "model_key": [f"model-{m}" for m in model],
        "reasoning_level": pa.nulls(n, pa.string()),
        "data_id": question,
        "seed": 1234 + seed,
        "prompt": [
            f"Problem {q} of {TASKS[t]}. " * 40 for q, t in zip(question, task, strict=True)
        ],
        "num_prompt_tokens": np.full(n, 300),
        "text": texts,
        "finish_reason": np.full(n, "stop"),
        "num_completion_tokens": np.full(n, size // 3),
        "ground_truth": [str(q) for q in question],
        "extracted_answer": [str(q) if r else "0" for q, r in zip(question, right, strict=True)],
        "has_box": np.ones(n, bool),
        "is_correct": right,
        "cv3b_label": np.where(right, "A", "B"),
        "cv3b_ctx_A": np.where(right, 0.8, 0.1),
        "cv3b_ctx_B": np.where(right, 0.1, 0.8),
        "cv3b_ctx_C": np.full(n, 0.1),
        "prompt_avg_logprob": np.full(n, -1.5),
        "completion_avg_logprob": -rng.random(n),
    }
    if args.tokens:
        ends = pa.array(np.arange(n + 1) * args.tokens, pa.int32())
        every = pa.array(np.arange(n * args.tokens + 1) * 20, pa.int32())
        top = pa.ListArray.from_arrays(every, -rng.random(n * args.tokens * 20, np.float32))
        tokens = {
            "completion_logprob_list": pa.array(-rng.random(n * args.tokens)),
            "completion_token_list": pool[rng.integers(0, pool.size, n * args.tokens)],
            "completion_topk_logprobs_list": top,
        }
        lists = [pa.ListArray.from_arrays(ends, pa.array(values)) for values in tokens.values()]
        columns["tokens"] = pa.StructArray.from_arrays(lists, list(tokens))
    return pa.table(columns)


def decode(folder: Path) -> tuple[float, float]:
    """Seconds, and those of processors, for all columns of all files."""
    began, cpu = time.perf_counter(), time.process_time()
    for path in sorted(folder.iterdir()):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(1000):
                del batch
    return time.perf_counter() - began, time.process_time() - cpu


def watched(source: Path, runs: Path) -> tuple[float, float, int]:
    """Seconds, those of processors, and peak resident bytes of an import in its own process.

    Raises:
        SystemExit: the import failed.
    """
    program = (
        "import sys; from bayes_at_n.pipeline.config import compose, records\n"
        "from bayes_at_n.pipeline.records.importing import import_records\n"
        "import_records(compose.load_as(records.RecordsConfig, sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, f"source={source}", f"runs={runs}"]
    began, peak, used = time.perf_counter(), 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    child = psutil.Popen(command, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        try:
            peak = max(peak, child.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    if child.wait():
        raise SystemExit("the import failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return seconds, cpu, peak


if __name__ == "__main__":
    common.main(main)
