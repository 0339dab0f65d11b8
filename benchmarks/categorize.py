"""Signals and categories of 192,000 attempts: how fast evidence becomes rubrics.

    python -m benchmarks.categorize                   2,400 questions x 80 trials, 2,000 tokens each
    python -m benchmarks.categorize --tokens 15000    as long as reasoning models write

A synthetic run folder with attempts (random log-probs, which compress badly; texts and token ids,
which no stage here reads, are left empty), grades and verdicts.

  signals        the stage from nothing; MB/s counts the log-probs as float32
  pyarrow alone  the same columns of the same parts, decoded and thrown away
  joined         the stage again after grades have changed: no log-probs are read
  categorize     thresholds and the twelve rubrics, from the signals to files on the disk
  conditions     of that only the twelve rubrics' conditions, tried on arrays
  row by row     the same conditions compiled by Python and tried attempt by attempt, on every K-th
                 attempt and scaled up
  scores         Bayes@N of every rubric and the share of every category
"""

import argparse
import contextlib
import io
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import console
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.pipeline.rubrics import rubric as rubric_of
from bayes_at_n.pipeline.store import provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.outcomes import GRADES_TABLE, VERDICTS_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common, synthetic

MOST_S = 5.0  # the target for categorize
TRIALS, PART = 80, 2000


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_rounds(parser, default=3)
    parser.add_argument("--attempts", type=int, default=192_000, metavar="N")
    parser.add_argument("--tokens", type=int, default=2000, metavar="T", help="default %(default)s")
    parser.add_argument("--every", type=int, default=50, metavar="K", help="default %(default)s")
    args = parser.parse_args()
    with common.workdir(args) as folder:
        run = make(folder / "run", args.attempts // TRIALS, args.tokens)
        record = measure(run, args)
    report(record, args)
    common.finish(args, record)


def measure(run: Run, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of everything, round by round, and the peak of this process in MiB."""
    found: dict[str, list[float]] = {}

    def timed(name: str, function: Callable[[], object]) -> None:
        with quiet():
            began = time.perf_counter()
            function()
            found.setdefault(name, []).append(time.perf_counter() - began)
        common.out.print(f"{name:<14} {found[name][-1]:8.3f} s")

    for _ in range(args.rounds):
        shutil.rmtree(run.path / "signals", ignore_errors=True)
        (run.path / "thresholds.json").unlink(missing_ok=True)
        timed("pyarrow alone", lambda: decode(run))
        timed("signals", lambda: signals.make(run))
        timed("joined", lambda: signals.read(run))
        timed("categorize", lambda: categories.categorize(run))
        timed("scores", lambda: categories.rubric_scores(run, categories.current(run)))
    with quiet():
        compared = conditions(run, args.every, args.rounds)
    found |= compared
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": found, "peak_mib": peak, "attempts": args.attempts, "tokens": args.tokens}


def report(record: dict[str, Any], args: argparse.Namespace) -> None:
    """The figures, and whether the target is met."""
    best = {name: min(values) for name, values in record["seconds"].items()}
    megabytes = 4e-6 * args.attempts * args.tokens
    rows = [[name, value, args.attempts / value] for name, value in best.items()]
    common.table(f"{args.attempts} attempts, best of {args.rounds}", ["", "s", "attempts/s"], rows)
    rate = megabytes / best["signals"]
    common.out.print(f"signals: {rate:.0f} MB/s of log-probs, {megabytes:.0f} MB in all")
    above = best["pyarrow alone"] / best["signals"]
    common.out.print(f"signals run at {above:.2f} times the speed of decoding alone")
    met = "met" if best["categorize"] < MOST_S else "NOT met"
    common.out.print(
        f"categorize: 12 rubrics in {best['categorize']:.2f} s; target under {MOST_S:g} s: {met}"
    )
    ratio = best["row by row"] / best["conditions"]
    common.out.print(f"conditions on arrays are {ratio:.0f} times as fast as row by row")
    common.out.print(
        f"peak memory of this process, making the run included: {record['peak_mib']:.0f} MiB"
    )


def make(folder: Path, questions: int, tokens: int, characters: int = 0) -> Run:
    """A run folder as generate, grade and verify would leave it.

    Attempts have log-probs and no texts; with `characters` texts of so many, and no log-probs.
    """
    settings = ["model=demo", "dataset=demo", f"sampling.trials={TRIALS}", f"run_dir={folder}"]
    run = Run(compose.load(settings))
    folder.mkdir(parents=True)
    runfolder.save_config(run)
    runfolder.claim(run, provenance.identity(run.cfg))
    rng = np.random.default_rng(0)
    ids = [f"question-{q:05d}" for q in range(questions)]
    asked = [
        {
            **dict.fromkeys(QUESTIONS.names),
            "question_id": qid,
            **{name: f"The {name} of {qid}." for name in ("problem", "gold", "prompt")},
            "question_hash": provenance.short_hash(qid),
            "prompt_logprobs": [float("nan"), *(-rng.exponential(1.0, 99))],
        }
        for qid in ids
    ]
    shards.write_part(folder / "questions.parquet", pa.Table.from_pylist(asked, QUESTIONS))
    keys = [(qid, trial) for trial in range(TRIALS) for qid in ids]
    for start in range(0, len(keys), PART):
        part = keys[start : start + PART]
        table = synthetic.attempts(rng, part, 1 if characters else tokens)
        columns: dict[str, Any] = dict.fromkeys(("text", "token_ids"))
        if characters:
            columns = {"text": synthetic.texts(rng, len(part), characters)}
            columns |= {"completion_tokens": [tokens] * len(part)}
            columns |= dict.fromkeys(("token_ids", "logprobs"))
        for name, values in columns.items():
            at, field = table.schema.get_field_index(name), table.schema.field(name)
            column = pa.array(values or [None] * len(part), field.type)
            table = table.set_column(at, field, column)
        shards.write_part(run.attempts / f"part-{start:08d}.parquet", table)
    n = len(keys)
    key = {"question_id": [qid for qid, _ in keys], "trial": [trial for _, trial in keys]}
    words = np.array(["correct", "wrong"])[rng.integers(0, 2, n)]
    abc = rng.dirichlet([0.5, 0.5, 0.2], n)
    grades = key | {"has_box": rng.random(n) < 0.9, "outcome": words}
    verdicts = key | {name: abc[:, i] for i, name in enumerate("abc")}
    for of, columns in ((GRADES_TABLE, grades), (VERDICTS_TABLE, verdicts)):
        table = filled(columns, n, of.columns)
        for start in range(0, n, PART):
            of.write(folder, f"part-{start:08d}", table.slice(start, PART))
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


def decode(run: Run) -> None:
    """What signals needs of the attempts, read and thrown away."""
    columns = ["question_id", "trial", "finish_reason", "completion_tokens", "logprobs"]
    for path in sorted(run.attempts.glob("*.parquet")):
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            file.read_row_group(group, columns=columns)


def conditions(run: Run, every: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of trying all conditions, by our way and by the plain one, round by round."""
    found = categories.scored(run).signals
    values = rubric_of.variables(found, rubric_of.thresholds([found]))
    numbers = {name: value for name, value in values.items() if np.ndim(value) == 0}
    arrays = {name: value for name, value in values.items() if np.ndim(value)}
    n = len(arrays["correct"])
    rows = [{name: array[i] for name, array in arrays.items()} for i in range(0, n, every)]
    loaded = rubric_of.load(run.cfg).values()
    plain = [
        [(c.index, compile(c.when.text, c.name, "eval")) for c in ordered(rubric)]
        for rubric in loaded
    ]
    seconds: dict[str, list[float]] = {"conditions": [], "row by row": []}
    for _ in range(rounds):
        began = time.perf_counter()
        ours = [rubric_of.assign(rubric, values) for rubric in loaded]
        seconds["conditions"].append(time.perf_counter() - began)
        began = time.perf_counter()
        theirs = [
            [next(k for k, condition in tried if eval(condition, numbers, row)) for row in rows]
            for tried in plain
        ]
        seconds["row by row"].append((time.perf_counter() - began) * n / len(rows))
        assert all(o[::every].tolist() == t for o, t in zip(ours, theirs, strict=True))
    return seconds


def ordered(rubric: Any) -> list[Any]:
    """The categories as they are tried."""
    first = [c for name in rubric.order for c in rubric.categories if c.name == name]
    return [*first, *(c for c in rubric.categories if c not in first)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the stages say is no part of the report."""
    kept = console.console.file, console.results.file
    console.console.file = console.results.file = io.StringIO()
    try:
        yield
    finally:
        console.console.file, console.results.file = kept


if __name__ == "__main__":
    common.main(main)
