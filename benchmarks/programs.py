"""Time to grade programs: sandboxed, against a plain loop of `python -c` without a sandbox.

    python -m benchmarks.programs
    python -m benchmarks.programs --programs 2000 --rounds 3

All sides run each program on its tests in processes of its own, and judge correct and wrong ones
alike. The plain loop is what harnesses without a sandbox do: program and tests in one interpreter,
where a program can read its tests and leave with status 0. Sandboxes fill the cores; the loop takes
one program after another, or has a thread a core, which shows what a sandbox costs.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bayes_at_n.verifiers.code import programs, run
from benchmarks import common

MOST = 1.5  # the target: time of the sandbox / time of the loop
_CHECK = "def check(f):\n" + "".join(f"    assert f({x}) == {x * x}\n" for x in range(20))


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, programs=400)
    common.add_rounds(parser)
    args = parser.parse_args()
    gold = programs.pack({"test": _CHECK, "prompt": "", "entry_point": "square"})
    numbers = range(args.programs)  # one program in four is wrong; a comment makes each distinct
    sources = [f"def square(x):\n    return x * x + {int(n % 4 == 3)}  # {n}\n" for n in numbers]
    limits = {"box": "bubblewrap", "workers": None, "timeout_s": 3.0, "memory_mb": 1024}

    def sandboxed() -> int:
        grades = run.grade([(gold, source) for source in sources], **limits)  # type: ignore[arg-type]
        return sum(grade.outcome == "correct" for grade in grades.values())

    def wide() -> int:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return sum(pool.map(_passes, sources))

    def timed(side: Callable[[], int]) -> dict[str, float]:
        began, right = time.perf_counter(), side()
        assert right == sum(n % 4 != 3 for n in numbers)
        return {"seconds": time.perf_counter() - began}

    sides = {
        "sandboxes": lambda: timed(sandboxed),
        "plain loop": lambda: timed(lambda: sum(map(_passes, sources))),
        "plain loop, a thread a core": lambda: timed(wide),
    }
    found = common.alternate(args.rounds, sides)
    seconds = {name: [one["seconds"] for one in of] for name, of in found.items()}
    ours, *theirs = seconds
    ratios = {name: common.ratio(seconds[ours], seconds[name]) for name in theirs}
    for name, ratio in ratios.items():
        most = MOST if name == "plain loop" else 0.0
        common.out.print(common.against_target(f"{ours} / {name}", ratio, most=most))
    common.out.print(f"{3600 * args.programs / min(seconds[ours]):,.0f} programs an hour")
    common.finish(args, {"seconds": seconds, "ratios": ratios})


def _passes(source: str) -> bool:
    command = [sys.executable, "-c", f"{source}\n{_CHECK}\ncheck(square)\n"]
    return not subprocess.run(command, capture_output=True, timeout=30).returncode


if __name__ == "__main__":
    common.main(main)
