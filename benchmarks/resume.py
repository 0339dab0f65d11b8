"""How long it takes to see what is pending, and `status`, on a folder of 192,000 finished attempts.

    python -m benchmarks.resume                       attempts of 28 and of 1,000 tokens
    python -m benchmarks.resume --tokens 1000 --questions 30 --trials 6400

192,000 attempts are all of the paper's records (20 models x 4 datasets x 30 questions x 80
trials) in one folder; text, ids and log-probs are synthetic and do not compress better than real
ones. The parts are as large as the writer makes them. "pending" is `store.runfolder.pending`
 in a fresh process that has imported everything; "generate" and "status" are whole commands
with Python's start and all imports. "cold" is after the files were dropped from the page cache
(Linux only). 1,000-token attempts need about 2 GB of disk.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.generate import attempts
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import GRADES
from bayes_at_n.pipeline.store.outcomes import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common, synthetic

MOST_S = 2.0  # the target
_SAME = ("correct", "text", "the same text", "math")


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, questions=2400, trials=80)
    common.add_rounds(parser)
    parser.add_argument("--tokens", type=int, nargs="+", default=[28, 1000], metavar="T")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _one(args.one)
        return
    record: dict[str, Any] = {"questions": args.questions, "trials": args.trials}
    with common.workdir(args) as folder:
        for tokens in args.tokens:
            made = folder / f"tokens-{tokens}"
            _make(args, made, tokens)
            record[f"{tokens} tokens"] = _measure(args, made, tokens)
    common.finish(args, record)


def _make(args: argparse.Namespace, folder: Path, tokens: int) -> None:
    """A run folder in which everything is generated and graded."""
    began = time.perf_counter()
    ids = [f"q-{i:04d}" for i in range(args.questions)]
    run = synthetic.prepared(folder, ids, "sampling=demo", f"sampling.trials={args.trials}")
    keys = run.keys
    rng = np.random.default_rng(0)
    # Eight bytes a token and about three of text; the writer seals a journal at SEAL_AT bytes.
    per_part = max(shards.ROWS_PER_GROUP, attempts.SEAL_AT // (11 * tokens + 150))
    for part, at in enumerate(range(0, len(keys), per_part)):
        chosen = keys[at : at + per_part]
        table = synthetic.attempts(rng, chosen, tokens)
        shards.write_part(run.attempts / f"benchmark-{part:05d}.parquet", table)
        grades = [
            dict(zip(GRADES.names, (*key, True, "boxed", "12", *_SAME), strict=True))
            for key in chosen
        ]
        table = pa.Table.from_pylist(grades, schema=GRADES)
        GRADES_TABLE.write(run.path, f"benchmark-{part:05d}", table)
    size = sum(path.stat().st_size for path in run.attempts.iterdir())
    common.out.print(
        f"made {len(keys)} attempts of {tokens} tokens in {part + 1} parts, {size / 2**20:.0f} MiB,"
        f" {time.perf_counter() - began:.0f} s"
    )


def _measure(args: argparse.Namespace, folder: Path, tokens: int) -> dict[str, Any]:
    me = [sys.executable, "-m", "benchmarks.resume", "--one", str(folder)]
    pipeline = [sys.executable, "-m", "pipeline"]
    found: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for heat in ("cold", "warm"):
            if heat == "cold" and not _forget(folder):
                continue
            done = _run(me)
            seconds = float(done.stdout.split("PENDING")[1].split()[0])
            found.setdefault(f"pending, {heat}", []).append(seconds)
        for name, verb in (("generate, nothing pending", "generate"), ("status", "status")):
            began = time.perf_counter()
            _run([*pipeline, verb, str(folder)])
            found.setdefault(f"{name}, whole command", []).append(time.perf_counter() - began)
    rows: list[list[Any]] = [[name, statistics.median(t), min(t)] for name, t in found.items()]
    title = f"{args.questions * args.trials} attempts of {tokens} tokens"
    common.table(title, ["", "median s", "min s"], rows)
    for name in (n for n in found if n.startswith("pending")):
        seconds = statistics.median(found[name])
        met = "met" if seconds < MOST_S else "NOT met"
        common.out.print(f"{name}: {seconds:.3f} s; target under {MOST_S:g} s: {met}")
    return {"seconds": found}


def _one(folder: Path) -> None:
    """What is pending, once; times only that."""
    run = Run(load_folder(folder, []))
    began = time.perf_counter()
    pending = runfolder.pending(run, shards.Damage())
    seconds = time.perf_counter() - began
    if pending or not run.keys:
        raise common.UserError(f"{folder}: {len(pending)} pending where none should be")
    common.out.print(f"PENDING {seconds}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise common.UserError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done


def _forget(folder: Path) -> bool:
    """Drop the folder's files from the page cache, where the system can."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in folder.rglob("*.parquet"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
    return True


if __name__ == "__main__":
    common.main(main)
