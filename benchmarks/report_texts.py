"""The report of runs with long texts: how long it takes, how much memory, how fast one opens.

    python -m benchmarks.report_texts             20 models × 120 questions × 80 trials, 15 KB each
    python -m benchmarks.report_texts --tokens    with token ids and log-probs
    python -m benchmarks.report_texts --models 1 --questions 1 --trials 100000
    python -m benchmarks.report_texts --keep DIR  and leave the report there

Texts are words and a formula in every line, no two alike. The report is made by its command, in a
process of its own; memory is the largest sum of what that process and its children hold (PSS),
looked at ten times a second. "read" is the same texts decoded and thrown away by one process, and
"ms" are milliseconds by the clock of a page in a headless Chromium: to list all attempts, to open a
question, an attempt first and then the next ones, and a frame while its text is scrolled through.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, QUESTIONS
from bayes_at_n.pipeline.store.outcomes import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common
from benchmarks.report import BROWSERS

PART_BYTES = 128 << 20  # of texts and token lists in a part, as `generate` seals them
LINE = 24  # tokens of a line, the last eight of them a formula
BYTES_A_LINE = 95  # about


def vocabulary() -> list[str]:
    """Pieces of text: 26³ words, 1,000 numbers, and what formulas are made of."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f" {a}{b}{c}" for a in letters for b in letters for c in letters]
    return [*words, *map(str, range(1000)), " so $x_{", "}=", "\\frac{", "}{", "}$.\n"]


PIECES = vocabulary()
BOXES = ["</think>\\boxed{2}", "</think>\\boxed{3}"]


def token_ids(rng: np.random.Generator, attempts: int, lines: int) -> Any:
    """Ids of the tokens of made-up texts, shape (attempts, lines * LINE)."""
    words, numbers = 26**3, 1000
    begin, equals, frac, between, end = range(words + numbers, words + numbers + 5)
    ids = rng.integers(0, words, (attempts, lines, LINE), dtype=np.int32)
    for place, token in ((-8, begin), (-6, equals), (-5, frac), (-3, between), (-1, end)):
        ids[..., place] = token
    for place in (-7, -4, -2):
        ids[..., place] = rng.integers(words, words + numbers, (attempts, lines))
    return ids.reshape(attempts, -1)


def make(folder: Path, name: str, args: argparse.Namespace, seed: int) -> Run:
    """A run folder as generate and grade would leave it."""
    settings = ["model=custom", f"model.name={name}", f"model.id={args.tokenizer}", "dataset=demo"]
    settings += [f"run_dir={folder / name}", f"sampling.trials={args.trials}"]
    run = Run(compose.load(settings))
    run.path.mkdir(parents=True)
    runfolder.save_config(run)
    ids = [f"q{q:03d}" for q in range(args.questions)]
    asked = [
        {
            **dict.fromkeys(QUESTIONS.names),
            "question_id": qid,
            "problem": f"What is $x$ in problem {qid}?",
            "gold": "2",
            "question_hash": provenance.short_hash(qid),
            "prompt": f"What is $x$ in problem {qid}?",
            "max_tokens": 32_768,
        }
        for qid in ids
    ]
    identity = provenance.identity(run.cfg)
    identity |= {"questions": {row["question_id"]: row["question_hash"] for row in asked}}
    runfolder.claim(run, identity)
    shards.write_part(run.path / "questions.parquet", pa.Table.from_pylist(asked, QUESTIONS))
    rng = np.random.default_rng(seed)
    cells = np.stack(np.divmod(np.arange(args.questions * args.trials), args.trials), axis=1)
    lines = max(1, args.bytes // BYTES_A_LINE)
    size = args.bytes + (8 * lines * LINE if args.tokens else 0)
    correct = rng.random(len(cells)) < 0.2 + 0.03 * seed
    per_part = max(shards.ROWS_PER_GROUP, PART_BYTES // size)
    for start in range(0, len(cells), per_part):
        part = cells[start : start + per_part]
        key = {"question_id": pa.array(ids).take(part[:, 0]), "trial": part[:, 1]}
        right = correct[start : start + per_part]
        table = attempts(rng, key, token_ids(rng, len(part), lines), right, args.tokens)
        shards.write_part(run.attempts / f"made-{start:08d}.parquet", table)
        answers = np.where(right, "2", "3")
        grades = {"has_box": pa.array([True] * len(part)), "box": ["boxed"] * len(part)}
        grades |= {"answer": answers, "outcome": np.where(right, "correct", "wrong")}
        grades |= {name: ["exact"] * len(part) for name in ("layer", "reason", "grader")}
        GRADES_TABLE.write(run.path, f"made-{start:08d}", full(key | grades, GRADES))
    if args.tokens:
        signals.make(run)
    return run


def attempts(rng: np.random.Generator, key: Any, ids: Any, right: Any, tokens: bool) -> pa.Table:
    """Attempts of a part: the texts of their tokens, and the final box."""
    n, length = ids.shape
    pieces = pa.array([*PIECES, *BOXES])
    boxes = np.where(right, len(PIECES), len(PIECES) + 1).astype(np.int32)
    ids = np.concatenate([ids, boxes[:, None]], axis=1)
    taken = pieces.take(pa.array(ids.ravel()))
    ends = np.frombuffer(taken.buffers()[1], np.int32)[:: length + 1]
    texts = pa.StringArray.from_buffers(n, pa.py_buffer(ends.tobytes()), taken.buffers()[2])
    when = 1.7e9 + np.arange(n)
    columns = key | {
        "seed": pa.array(np.arange(n)),
        "text": texts,
        "finish_reason": ["stop"] * n,
        "prompt_tokens": pa.array(np.full(n, 10), pa.int32()),
        "completion_tokens": pa.array(np.full(n, length + 1), pa.int32()),
        "started": when,
        "finished": when + 60,
    }
    if tokens:
        offsets = pa.array(np.arange(n + 1, dtype=np.int32) * (length + 1))
        logprobs = -rng.exponential(0.3, ids.size).astype(np.float32)
        columns["token_ids"] = pa.ListArray.from_arrays(offsets, pa.array(ids.ravel()))
        columns["logprobs"] = pa.ListArray.from_arrays(offsets, pa.array(logprobs))
    return full(columns, ATTEMPTS)


def full(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """A table of these columns, null in the others."""
    n = len(columns["trial"])
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns and not isinstance(columns[field.name], pa.Array)
        else columns.get(field.name, pa.nulls(n, field.type))
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def save_tokenizer(folder: Path) -> Path:
    """A tokenizer.json whose tokens are the pieces."""
    folder.mkdir()
    known = {piece: i for i, piece in enumerate([*PIECES, *BOXES, "?"])}
    made = Tokenizer(models.WordLevel(known, unk_token="?"))
    made.decoder = decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
    return folder


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


def read(runs: list[Run], tokens: bool) -> float:
    """Seconds in which one process decodes what the report is made of, and throws it away."""
    columns = ["question_id", "trial", "text", *(["token_ids", "logprobs"] if tokens else [])]
    began = time.monotonic()
    for run in runs:
        for path in run.attempts.glob("*.parquet"):
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    file.read_row_group(group, columns=columns)
    return time.monotonic() - began


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
# Of each frame, while all of a response is scrolled through, 800 pixels a frame.
SCROLLED = """() => new Promise((done) => {
  document.querySelector("details.reasoning")?.setAttribute("open", "");
  const times = [];
  let last = performance.now();
  const step = () => {
    const [now, before] = [performance.now(), scrollY];
    times.push(now - last);
    last = now;
    scrollBy({ top: 800, behavior: "instant" });
    if (scrollY === before) done(times.slice(1));
    else requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def opening(page: Path, name: str, trials: int) -> dict[str, float]:
    """Median milliseconds to open what was not looked at before, and of frames."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return {}
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=arguments)

        def once(part: str, shown: str) -> tuple[Any, float]:
            tab = chromium.new_page()
            tab.goto(page.as_uri())
            return tab, tab.evaluate(OPENED, [part, shown])

        def median(part: str, shown: str) -> float:
            return statistics.median(once(part, shown)[1] for _ in range(5))

        found = {
            "list": median("demo/", "No attempt is open"),
            "question": median("demo//q000", "gold"),
        }
        tab, first = once(f"demo/{name}/q000/0", "Response")
        trial = range(7, min(77, trials), 7)
        more = [tab.evaluate(OPENED, [f"demo/{name}/q000/{t}", f"trial {t}"]) for t in trial]
        found |= {"attempt": first, "next": statistics.median(more)}
        frames = tab.evaluate(SCROLLED)
        found |= {"frame": statistics.median(frames), "worst_frame": max(frames)}
        chromium.close()
    return found


def main() -> None:
    """Make, measure, print."""
    parser = common.parser(__doc__)
    parser.add_argument("--models", type=int, default=20, metavar="L")
    parser.add_argument("--questions", type=int, default=120, metavar="M")
    parser.add_argument("--trials", type=int, default=80, metavar="N")
    parser.add_argument("--bytes", type=int, default=15_000, metavar="B", help="of a text")
    parser.add_argument("--tokens", action="store_true", help="with token ids and log-probs")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the report there")
    parser.add_argument(
        "--runs", type=Path, metavar="DIR", help="leave the runs there, or take them"
    )
    args = parser.parse_args()
    with common.workdir(args) as folder:
        out = args.keep or folder / "out"
        where = args.runs or folder / "runs"
        names = [f"model-{i + 1:02d}" for i in range(args.models)]
        if where.is_dir():
            runs = [Run(load_folder(where / "demo" / name, [])) for name in names]
        else:
            where.mkdir(parents=True)
            args.tokenizer = save_tokenizer(where / "_tokenizer")
            runs = [make(where / "demo", name, args, i) for i, name in enumerate(names)]
        command = [sys.executable, "-m", "pipeline", "report", f"runs={where}", f"out={out}"]
        seconds, cpu, most = measured(command)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
        alone = read(runs, args.tokens)
        drawn = opening(out / "index.html", names[-1], args.trials)
    count = args.models * args.questions * args.trials
    common.out.print(
        f"{count:,} attempts: {seconds:.1f} s, {cpu:.1f} s of processors, {most:.0f} MB of memory,"
        f" {size:.0f} MB written; read alone {alone:.1f} s"
    )
    common.out.print(f"ms: {', '.join(f'{what} {ms:.0f}' for what, ms in drawn.items())}")
    figures = {"seconds": seconds, "cpu_s": cpu, "megabytes": most, "written_mb": size}
    common.finish(args, figures | {"read_s": alone, "drawn_ms": drawn})


if __name__ == "__main__":
    common.main(main)
