"""Exports of attempts with texts: MB of text a second and peak memory, as commands.

    python -m benchmarks.exports                   20 runs of 120 x 80 attempts, 15 KB of text each
    python -m benchmarks.exports --runs 1          the same 192,000 attempts in one run
    python -m benchmarks.exports --attempts 9600   a small one
    python -m benchmarks.exports --only parquet,eee

Runs are made up as for `benchmarks.categorize`, in the order in which engines leave attempts: trial
by trial. Texts are random words, which compress as reasoning does. Each format is written by a
fresh process, and deleted again. Rates are of the texts, 15 KB an attempt, by the processor time of
the process with all its threads, and by the clock; start-up is in both.

  pyarrow   the attempts read and written again part by part, with the same compression, by a
            process of its own; nothing is sorted or joined

192,000 attempts take 1.3 GB of disk, and up to 6 GB more while a format is measured.
"""

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.config.records import FORMATS
from bayes_at_n.pipeline.config.settings import TRACKERS
from benchmarks import categorize as made
from benchmarks import common

LEAST = {"parquet": 100.0}  # MB/s of texts; of all other formats:
LEAST_OTHER = 30.0
OTHERS = ("hf", *TRACKERS)  # scores without attempts, and servers
_READ = """import sys
from pathlib import Path
import pyarrow.parquet as pq
source, target = Path(sys.argv[1]), Path(sys.argv[2])
target.mkdir()
for number, path in enumerate(sorted(source.glob("*/*/attempts/*.parquet"))):
    table = pq.read_table(path)
    pq.write_table(table, target / f"{number}.parquet", compression="zstd", row_group_size=512)
"""


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, attempts=192_000, runs=20)
    common.add_rounds(parser, default=1)
    parser.add_argument("--bytes", type=int, default=15_000, metavar="B", help="of text an attempt")
    parser.add_argument("--only", metavar="FORMAT,FORMAT")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [n for n in FORMATS if n not in OTHERS]
    if "inspect" in names and not find_spec("inspect_ai"):
        common.out.print("to=inspect is left out: inspect_ai is not installed")
        names.remove("inspect")
    found: dict[str, list[dict[str, float]]] = {}
    with common.workdir(args) as folder:
        runs, questions = folder / "runs", args.attempts // made.TRIALS // args.runs
        for number in range(args.runs):
            with made.quiet():
                path = runs / "words" / f"model-{number:02d}"
                path.parent.mkdir(parents=True, exist_ok=True)
                made.make(path, questions, args.bytes // 3, args.bytes)
        done = args.runs * questions * made.TRIALS
        for _ in range(args.rounds):
            for name in ("pyarrow", *names):
                found.setdefault(name, []).append(once(name, runs, folder / "out"))
                common.out.print(f"{name:<10} {found[name][-1]['cpu_s']:8.1f} s of processor time")
    report(found, done * args.bytes / 1e6)
    common.finish(args, {"attempts": done, "runs": args.runs, "bytes": args.bytes, "found": found})


def once(name: str, runs: Path, out: Path) -> dict[str, float]:
    """Seconds, by the processor and by the clock, and peak MiB of one process; MB on the disk."""
    command = [sys.executable, "-m", "pipeline", "export", f"runs={runs}", f"to={name}"]
    command += [f"out={out}"]
    if name == "pyarrow":
        command = [sys.executable, "-c", _READ, str(runs), str(out)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    shutil.rmtree(out, ignore_errors=True)
    if status:
        raise common.UserError(f"{' '.join(command)} failed")
    cpu = used.ru_utime + used.ru_stime
    return {"cpu_s": cpu, "clock_s": seconds, "mib": used.ru_maxrss / 1024, "mb": size}


def report(found: dict[str, list[dict[str, float]]], megabytes: float) -> None:
    """Rates of the best rounds, and whether the targets are met."""
    rows: list[list[Any]] = []
    for name, rounds in found.items():
        cpu, clock = (min(one[key] for one in rounds) for key in ("cpu_s", "clock_s"))
        peak, size = (max(one[key] for one in rounds) for key in ("mib", "mb"))
        share = min(one["cpu_s"] for one in found["pyarrow"]) / cpu
        rows.append([name, megabytes / cpu, megabytes / clock, share, f"{peak:.0f}", f"{size:.0f}"])
        least = LEAST.get(name, LEAST_OTHER)
        if name in FORMATS:
            met = "met" if megabytes / cpu >= least else "NOT met"
            common.out.print(f"{name}: {megabytes / cpu:.0f} MB/s, target {least:g}: {met}")
    heads = ["", "MB/s of CPU", "MB/s", "of pyarrow's speed", "peak MiB", "MB written"]
    common.table(f"{megabytes:.0f} MB of texts", heads, rows)


if __name__ == "__main__":
    common.main(main)
