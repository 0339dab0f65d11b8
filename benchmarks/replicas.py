"""Two CPU replicas, one core each, against one worker with both cores; what sharing a run costs.

    python -m benchmarks.replicas
    python -m benchmarks.replicas --rounds 3 --trials 20 engine.batch_size=64

Every measurement is the whole command `generate` on a fresh copy of one prepared run, so both sides
load their engines: "whole command" is by this script's clock, "sampling" from the first engine that
is ready to the last attempt, by the workers' own records. Both sides use the same cores, all that
this process may use; with more than two, each replica gets half of them.

Then one more run with replicas whose methods are timed from outside, in every replica: claims (what
sharing a run costs while it goes on), tidying (what it costs at both ends), and the writer (what
being durable costs, shared or not); wall time in the worker's main thread, and the processor time
of the writer's own thread, which flushes and seals. Shares are of all replicas' sampling time.

Only GPUs can tell what eight replicas on eight GPUs do; nothing here measures that.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli import main as cli
from bayes_at_n.pipeline.generate import job, writer
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims, process
from benchmarks import common

SHARE = 0.02  # the target: claims and tidying, of the sampling time
_PARENT, _REPLICA = "--timed-parent", "--timed-replica"
_SIDES = {"one worker, all cores": 1, "two replicas, half each": 2}


def main() -> None:
    """Measure and report."""
    if sys.argv[1:2] in ([_PARENT], [_REPLICA]):
        sys.exit(_timed(sys.argv[1], sys.argv[2], sys.argv[3:]))
    parser = common.parser(__doc__)
    common.add_rounds(parser)
    common.add_work(parser)
    args = parser.parse_args()
    with common.workdir(args) as folder:
        base = Run(common.run_config(args, folder / "prepared"))
        prepare(base)
        expected = len(base.keys)
        sides = {
            name: _side(args, base, folder / "run", replicas) for name, replicas in _SIDES.items()
        }
        found = common.alternate(args.rounds, sides)
        parts = _parts(args, base, folder)
    one, two = found.values()
    rows = [
        [name, *(statistics.median(m[key] for m in ms) for key in ("sampling_s", "seconds"))]
        for name, ms in found.items()
    ]
    title = f"{expected} attempts, {len(os.sched_getaffinity(0))} cores in all"
    common.table(title, ["median s", "sampling", "whole command"], rows)
    record: dict[str, Any] = {"rounds": found, "parts": parts}
    for key, what in (("sampling_s", "sampling"), ("seconds", "whole command")):
        ratio = common.ratio([m[key] for m in one], [m[key] for m in two])
        record[f"one / two, {key}"] = ratio
        common.out.print(common.against_target(f"{what}: one worker / two replicas", ratio))
    _report(parts)
    common.finish(args, record)


def _side(
    args: argparse.Namespace, base: Run, folder: Path, replicas: int
) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        command = [sys.executable, "-m", "pipeline", "generate"]
        return _run(args, base, folder, [*command, str(folder), f"engine.replicas={replicas}"])

    return measure


def _run(args: argparse.Namespace, base: Run, folder: Path, command: list[str]) -> dict[str, float]:
    """One command on a fresh copy of the prepared run."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base.path, folder)
    began = time.perf_counter()
    done = subprocess.run([*command, *args.settings], capture_output=True, text=True, cwd=ROOT)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise common.UserError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    sessions = [json.loads(p.read_text()) for p in (folder / "sessions").glob("*.json")]
    sessions = [s for s in sessions if "load_s" in s]
    ends = [s["started"] + s["load_s"] + s["wall_s"] for s in sessions]
    return {
        "seconds": seconds,
        "sampling_s": max(ends) - min(s["started"] + s["load_s"] for s in sessions),
        "engine_s": sum(s["wall_s"] for s in sessions),
        "attempts": sum(s["attempts"] for s in sessions),
    }


def _parts(args: argparse.Namespace, base: Run, folder: Path) -> dict[str, float]:
    """Seconds spent in each part by two timed replicas, and their sampling time."""
    times = folder / "times"
    times.mkdir()
    command = [sys.executable, "-m", "benchmarks.replicas", _PARENT, str(times), "generate"]
    run = folder / "run"
    found = _run(args, base, run, [*command, str(run), "engine.replicas=2"])
    parts: dict[str, float] = defaultdict(float)
    for path in times.iterdir():
        for part, seconds in json.loads(path.read_text()).items():
            parts[part] += seconds
    return {"sampling": found["engine_s"], **parts}


def _report(parts: dict[str, float]) -> None:
    whole = parts["sampling"]
    rows = [[name, seconds, f"{seconds / whole:.2%}"] for name, seconds in parts.items()]
    common.table("two timed replicas together", ["", "s", "of sampling"], rows)
    share = (parts.get("claims", 0.0) + parts.get("tidying", 0.0)) / whole
    met = "met" if share < SHARE else "NOT met"
    common.out.print(f"claims and tidying: {share:.2%}; target under {SHARE:.0%}: {met}")


def _timed(role: str, times: str, arguments: list[str]) -> int:
    """The command, or one of its replicas, with a stop-watch in each replica."""
    if role == _PARENT:
        process.PROGRAM = [sys.executable, "-m", "benchmarks.replicas", _REPLICA, times]
        return cli.main(arguments)
    watch = _Watch()
    for name in ("read", "take", "lost", "durable", "release"):
        watch.time(claims.Claims, name, "claims")
    for name in ("tidy", "leave"):
        watch.time(job, name, "tidying")
    for name in ("append", "sync", "close", "_settle"):
        watch.time(writer.AttemptWriter, name, "writer")
    code = process.main()
    Path(times, f"{os.getpid()}.json").write_text(json.dumps(watch.seconds))
    return code


class _Watch:
    """Adds up the seconds spent in functions; one that another of them calls counts once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.inside = threading.local()

    def time(self, owner: Any, name: str, part: str) -> None:
        """Count the seconds in `owner.name` as `part`."""
        function = getattr(owner, name)

        @wraps(function)
        def timed(*args: Any, **more: Any) -> Any:
            if getattr(self.inside, "one", False):
                return function(*args, **more)
            main = threading.current_thread() is threading.main_thread()
            clock = time.perf_counter if main else time.thread_time
            self.inside.one, began = True, clock()
            try:
                return function(*args, **more)
            finally:
                self.inside.one = False
                self.seconds[part if main else f"{part}'s thread, CPU"] += clock() - began

        setattr(owner, name, timed)


if __name__ == "__main__":
    common.main(main)
