"""Peak memory of the process that generates and writes: at N trials and at ten times as many.

    python -m benchmarks.memory                               the demo, N = 80 and N = 800
    python -m benchmarks.memory --limit 5                     the same with five questions
    python -m benchmarks.memory --writer-only                 no engine

Each measurement is a fresh process, which reports its own peak (VmHWM on Linux: of its own memory
only, not of child processes and not of the process that started it).

  generate   prepare and generate on the real engine. Where vLLM's engine runs in a process of its
             own (on GPUs), its memory is not counted: the question is whether the writing side
             grows. On a CPU the engine is inside; its key-value cache has a fixed limit, and is
             touched page by page, so part of any growth is the engine's: bare LLM.generate calls
             of the same number of requests, in slices of one trial of everything so that it keeps
             no outputs, are measured beside it and show how much.
  writer     AttemptWriter alone with synthetic completions of the length that GPU runs have, as
             fast as it takes them ("flood", the queue is always full) and at a fixed rate.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.program import ROOT
from benchmarks import common, synthetic

MOST = 1.10  # the target: peak at the larger N / peak at the smaller


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, writer_tokens=16_000, writer_questions=5, writer_rate=40.0)
    common.add_work(parser)
    parser.add_argument("--times", type=int, default=10, metavar="K", help="N against K x N")
    parser.add_argument("--writer-only", action="store_true", help="leave the engine out")
    parser.add_argument("--one", choices=list(KINDS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        KINDS[args.one](args)
        common.out.print(f"PEAK {peak()}")
        return
    rows = []
    with common.workdir(args) as folder:
        for kind in KINDS:
            if args.writer_only and not kind.startswith("writer"):
                continue
            small = _measure(args, folder, kind, args.trials)
            large = _measure(args, folder, kind, args.trials * args.times)
            rows.append(
                [kind, small / 2**20, large / 2**20, (large - small) / 2**20, large / small]
            )
            common.out.print(f"{kind}: {rows[-1][-1]:.3f}")
    names = ["", f"N={args.trials} MiB", f"N={args.trials * args.times} MiB", "growth MiB", "ratio"]
    common.table("peak resident memory", names, rows)
    for row in rows:
        if row[0] != "bare engine":
            met = "met" if row[-1] <= MOST else "NOT met"
            common.out.print(f"{row[0]}: {row[-1]:.3f}; target at most {MOST}: {met}")
    figures = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}
    common.finish(args, {"peak_memory": figures, "arguments": _plain(args)})


def _measure(args: argparse.Namespace, folder: Path, kind: str, trials: int) -> int:
    """Bytes at the peak of a fresh process that does `kind` at `trials`."""
    command = [sys.executable, "-m", "benchmarks.memory", "--one", kind, "--trials", str(trials)]
    command += ["--workdir", str(folder), "--model", args.model]
    command += ["--max-tokens", str(args.max_tokens)]
    command += ["--writer-tokens", str(args.writer_tokens)]
    command += ["--writer-questions", str(args.writer_questions)]
    command += ["--writer-rate", str(args.writer_rate)]
    command += ["--questions", str(args.questions.resolve())] if args.questions else []
    command += ["--limit", str(args.limit)] if args.limit else []
    began = time.perf_counter()
    done = subprocess.run([*command, *args.settings], capture_output=True, text=True, cwd=ROOT)
    peaks = [line for line in done.stdout.splitlines() if line.startswith("PEAK ")]
    if done.returncode or not peaks:
        raise common.UserError(
            f"{kind} at N={trials} failed: {(done.stderr + done.stdout)[-1500:]}"
        )
    size = int(peaks[0].split()[1])
    seconds = time.perf_counter() - began
    common.out.print(f"{kind:<12} N={trials:<6} {size / 2**20:9.1f} MiB  ({seconds:.0f} s)")
    return size


def peak() -> int:
    """Bytes of the largest resident memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [s for s in status.read_text().splitlines() if s.startswith("VmHWM:")]
        return int(line.split()[1]) << 10
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size << 10


def _generate(args: argparse.Namespace) -> None:
    with common.workdir(args) as folder:
        run = common.Run(common.run_config(args, folder / "run"))
        common.prepare(run)
        common.generate(run)


def _bare(args: argparse.Namespace) -> None:
    from benchmarks.generation import requests

    with common.workdir(args) as folder:
        stage = common.Stage(args, folder)
        for trial in range(stage.trials):
            prompts, params = requests(stage, range(trial, trial + 1))
            stage.engine.llm.generate(prompts, params, use_tqdm=False)


def _writer(args: argparse.Namespace, rate: float | None) -> None:
    from bayes_at_n.pipeline.generate.attempts import AttemptWriter

    rng = np.random.default_rng(0)
    with common.workdir(args) as folder:
        writer = AttemptWriter(folder / "attempts", "benchmark")
        began = time.perf_counter()
        for i in range(args.trials * args.writer_questions):
            if rate is not None:
                time.sleep(max(0.0, began + i / rate - time.perf_counter()))
            key = f"q-{i % args.writer_questions:02d}", i // args.writer_questions
            writer.append([synthetic.attempt(rng, *key, tokens=args.writer_tokens)])
        writer.close()


def _flood(args: argparse.Namespace) -> None:
    _writer(args, None)


def _paced(args: argparse.Namespace) -> None:
    _writer(args, args.writer_rate)


def _plain(args: argparse.Namespace) -> dict[str, Any]:
    return {k: v if isinstance(v, int | float | list) else str(v) for k, v in vars(args).items()}


KINDS = {"generate": _generate, "bare engine": _bare, "writer, flood": _flood, "writer": _paced}

if __name__ == "__main__":
    common.main(main)
