"""Peak memory of the process that verifies, as the run grows.

    python -m benchmarks.verify_memory                           N = 8, 80, 800 of 30 questions
    python -m benchmarks.verify_memory --memory-trials 80 2400

Every response is another one (those of a real run, numbered on), so that nothing is judged once for
several attempts. A fresh process each N, which reports its resident memory before anything is
loaded, with the engine loaded, and at the peak (VmHWM on Linux).

  stage alone   the engine is replaced by one that returns numbers at once: what reading, hashing,
                prompts, verdicts, calibration and the report need. The target is about this
  with engine   vLLM's engine is in the same process on a CPU. It touches its key-value cache page
                by page, up to the limit beside it, and its buffers settle over the first batches
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.stage import verify
from benchmarks import common
from benchmarks.memory import peak
from benchmarks.verify import sampled, variant

KINDS = ("stage alone", "with engine")


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_work(parser)
    parser.add_argument("--verifier", default="demo", metavar="NAME", help="default %(default)s")
    parser.add_argument("--memory-trials", nargs="+", type=int, default=[8, 80, 800], metavar="N")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.settings = [f"verifier={args.verifier}", *args.settings]
    if args.one:
        _one(args, args.one[0], Path(args.one[1]))
        return
    with common.workdir(args) as folder:
        base = sampled(args, folder / "sampled")
        found = [
            _measure(args, base, folder, kind, trials)
            for trials in sorted({*args.memory_trials})
            for kind in KINDS
        ]
    _report(found)
    common.finish(args, {"memory": found})


class Numbers:
    """An engine that knows nothing and returns log-probs at once."""

    def next_logprobs(self, prompts: Sequence[list[int]], *_: Any) -> Any:
        shares = np.random.default_rng(len(prompts)).dirichlet([1.0, 1.0, 1.0], len(prompts))
        return np.log(0.99 * shares).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def _measure(
    args: argparse.Namespace, base: Run, folder: Path, kind: str, trials: int
) -> dict[str, Any]:
    """Bytes of a fresh process that verifies that many trials of every question."""
    run = variant(args, base, folder / f"memory-{trials}", True, trials)
    command = [sys.executable, "-m", "benchmarks.verify_memory", *sys.argv[1:]]
    command += ["--trials", str(trials), "--one", kind, str(run.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("MEMORY ")]
    if done.returncode or not lines:
        raise UserError(f"N={trials} failed: {(done.stderr + done.stdout)[-1500:]}")
    shutil.rmtree(run.path)
    sizes = (int(word) for word in lines[0].split()[1:])
    found = dict(zip(("before", "loaded", "peak", "cache"), sizes, strict=True))
    common.out.print(f"{kind}, N={trials}: peak {found['peak'] / 2**20:.1f} MiB")
    return {"kind": kind, "trials": trials, **found}


def _one(args: argparse.Namespace, kind: str, folder: Path) -> None:
    run, load, loaded = Run(common.run_config(args, folder)), engines.load_verifier, list[int]()
    process = psutil.Process()

    def noted(*given: Any) -> Any:
        engine = load(*given) if kind == "with engine" else Numbers()
        cache = engine.describe().get("kv_cache_memory_bytes", 0)
        loaded.extend((process.memory_info().rss, cache))
        return engine

    before, engines.load_verifier = process.memory_info().rss, noted
    verify(run)
    common.out.print(f"MEMORY {before} {loaded[0]} {peak()} {loaded[1]}")


def _report(found: list[dict[str, Any]]) -> None:
    rows = []
    for one in found:
        sizes = [one[key] / 2**20 for key in ("before", "loaded", "cache", "peak")]
        attempts = f"N={one['trials']}, {one['kind']}"
        rows.append([attempts, *sizes, sizes[3] - sizes[1]])
    columns = ["", "before MiB", "loaded", "cache's limit", "peak", "peak - loaded"]
    common.table("memory of the process that verifies, distinct responses", columns, rows)


if __name__ == "__main__":
    common.main(main)
