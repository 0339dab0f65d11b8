"""The report of runs with long texts: how long it takes, how much memory, how fast one opens.

    python -m benchmarks.report_texts             20 models × 120 questions × 80 trials, 15 KB each
    python -m benchmarks.report_texts --models 1 --questions 1 --trials 100000

Texts are random words and a formula in every line. The report is made by its command, in a process
of its own; memory is the largest sum of what that process and its children hold (PSS), looked at
ten times a second. "ms" are milliseconds by the clock of a page in a headless Chromium: to list all
attempts, to open a question, an attempt first and then the next ones.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES
from bayes_at_n.pipeline.store.outcomes import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common, synthetic
from benchmarks.report import chromium

PART_BYTES = 128 << 20  # of texts in a part, as `generate` seals them


def lines(rng: np.random.Generator, count: int) -> Any:
    """Lines of sixteen random words and a formula, about 95 bytes each."""
    words = [[rng.bytes(2).hex() for _ in range(13)] for _ in range(count)]
    numbers = rng.integers(0, 1000, (count, 3)).tolist()
    formulas = [f" so $x_{{{a}}}=\\frac{{{b}}}{{{c}}}$.\n" for a, b, c in numbers]
    return np.array([" ".join(of) + end for of, end in zip(words, formulas, strict=True)])


def make(folder: Path, name: str, args: argparse.Namespace, seed: int) -> Run:
    """A run folder as generate and grade would leave it."""
    ids = [f"q{q:03d}" for q in range(args.questions)]
    settings = [f"model.name={name}", "dataset=demo", f"sampling.trials={args.trials}"]
    asked = "What is $x$ in this problem?"
    cells = {"gold": "2", "problem": asked, "prompt": asked, "max_tokens": 32_768}
    run = synthetic.prepared(folder / name, ids, *settings, **cells)
    rng = np.random.default_rng(seed)
    pool, per_text = lines(rng, 5000), max(1, args.bytes // 95)
    keys = [(qid, trial) for qid in ids for trial in range(args.trials)]
    correct = rng.random(len(keys)) < 0.2 + 0.03 * seed
    per_part = max(shards.ROWS_PER_GROUP, PART_BYTES // args.bytes)
    for start in range(0, len(keys), per_part):
        part, right = keys[start : start + per_part], correct[start : start + per_part]
        n, drawn = len(part), rng.integers(0, pool.size, (len(part), per_text))
        answers = np.where(right, "2", "3")
        texts = [
            f"{''.join(pool[of])}</think>\\boxed{{{answer}}}"
            for of, answer in zip(drawn, answers, strict=True)
        ]
        key = {"question_id": [qid for qid, _ in part], "trial": [trial for _, trial in part]}
        when = 1.7e9 + np.arange(n)
        columns = key | {
            "seed": np.arange(n),
            "text": texts,
            "finish_reason": ["stop"] * n,
            "prompt_tokens": np.full(n, 10),
            "completion_tokens": np.full(n, args.bytes // 4),
            "started": when,
            "finished": when + 60,
        }
        table = synthetic.filled(columns, n, ATTEMPTS)
        shards.write_part(run.attempts / f"made-{start:08d}.parquet", table)
        grades = key | {"has_box": np.ones(n, bool), "box": ["boxed"] * n, "answer": answers}
        grades |= {"outcome": np.where(right, "correct", "wrong")}
        grades |= {name: ["exact"] * n for name in ("layer", "reason", "grader")}
        of_part = synthetic.filled(grades, n, GRADES)
        GRADES_TABLE.write(run.path, f"made-{start:08d}", of_part)
    return run


def measured(command: list[str]) -> tuple[float, float, float]:
    """Seconds of a command, its processor seconds, and the most MB that its processes held."""
    began, most, cpu = time.monotonic(), 0.0, 0.0
    with subprocess.Popen(command) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            held = 0
            for one in (root, *children(root)):
                try:
                    held += one.memory_full_info().pss
                except psutil.Error:
                    continue
            most = max(most, held / 1e6)
            try:
                times = root.cpu_times()
                cpu = sum(times[:4])
            except psutil.Error:
                pass
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    return time.monotonic() - began, cpu, most


def children(root: psutil.Process) -> list[psutil.Process]:
    """The processes below one, if it lives."""
    try:
        return root.children(recursive=True)
    except psutil.Error:
        return []


# Milliseconds by the page's own clock, until what an address names is drawn.
OPENED = """([part, shown]) => new Promise((done) => {
  const began = performance.now();
  new MutationObserver((_, watcher) => {
    if (!document.querySelector("#attempt")?.textContent.includes(shown)) return;
    watcher.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  }).observe(document.querySelector("#reader"), { childList: true, subtree: true });
  location.hash = part;
})"""


def opening(page: Path, name: str, trials: int) -> dict[str, float]:
    """Median milliseconds to open what was not looked at before."""
    with chromium() as browser:
        if not browser:
            return {}

        def once(part: str, shown: str) -> tuple[Any, float]:
            tab = browser.new_page()
            tab.goto(page.as_uri())
            return tab, tab.evaluate(OPENED, [part, shown])

        def median(part: str, shown: str) -> float:
            return statistics.median(once(part, shown)[1] for _ in range(5))

        found = {
            "list": median("demo/", "trial 0"),
            "question": median("demo//q000", "gold"),
        }
        tab, first = once(f"demo/{name}/q000/0", "Response")
        trial = range(7, min(77, trials), 7)
        more = [tab.evaluate(OPENED, [f"demo/{name}/q000/{t}", f"trial {t}"]) for t in trial]
        return found | {"attempt": first, "next": statistics.median(more)}


def main() -> None:
    """Make, measure, print."""
    parser = common.parser(__doc__, models=20, questions=120, trials=80)
    parser.add_argument("--bytes", type=int, default=15_000, metavar="B", help="of a text")
    args = parser.parse_args()
    with common.workdir(args) as folder:
        out, where = folder / "out", folder / "runs"
        names = [f"model-{i + 1:02d}" for i in range(args.models)]
        for i, name in enumerate(names):
            make(where / "demo", name, args, i)
        command = [sys.executable, "-m", "pipeline", "report", f"runs={where}", f"out={out}"]
        seconds, cpu, most = measured(command)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
        drawn = opening(out / "index.html", names[-1], args.trials)
    count = args.models * args.questions * args.trials
    common.out.print(
        f"{count:,} attempts: {seconds:.1f} s, {cpu:.1f} s of processors, {most:.0f} MB of memory,"
        f" {size:.0f} MB written"
    )
    common.out.print(f"ms: {', '.join(f'{what} {ms:.0f}' for what, ms in drawn.items())}")
    figures = {"seconds": seconds, "cpu_s": cpu, "megabytes": most, "written_mb": size}
    common.finish(args, figures | {"drawn_ms": drawn})


if __name__ == "__main__":
    common.main(main)
