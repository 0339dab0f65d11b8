"""Signals and categories of 192,000 attempts: how fast evidence becomes rubrics.

    python -m benchmarks.categorize                   2,400 questions x 80 trials, 2,000 tokens each
    python -m benchmarks.categorize --tokens 15000    as long as reasoning models write

A synthetic run folder with attempts (random log-probs, which compress badly; texts and token ids,
which no stage here reads, are left empty), grades and verdicts. Measured are thresholds and the
twelve rubrics, from the signals to files on the disk.
"""

import contextlib
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base import console
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.outcomes import GRADES_TABLE, VERDICTS_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common, synthetic

MOST_S = 5.0  # the target for categorize
TRIALS, PART = 80, 2000


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, attempts=192_000, tokens=2000)
    common.add_rounds(parser, default=3)
    args = parser.parse_args()
    seconds = []
    with common.workdir(args) as folder:
        run = make(folder / "run", args.attempts // TRIALS, args.tokens)
        with quiet():
            signals.make(run)
        for _ in range(args.rounds):
            (run.path / "thresholds.json").unlink(missing_ok=True)
            with quiet():
                began = time.perf_counter()
                categories.categorize(run)
                seconds.append(time.perf_counter() - began)
    met = "met" if min(seconds) < MOST_S else "NOT met"
    common.out.print(f"12 rubrics in {min(seconds):.2f} s; target under {MOST_S:g} s: {met}")
    common.finish(args, {"seconds": seconds, "attempts": args.attempts, "tokens": args.tokens})


def make(folder: Path, questions: int, tokens: int, characters: int = 0) -> Run:
    """A run folder as generate, grade and verify would leave it.

    Attempts have log-probs and no texts; with `characters` texts of so many, and no log-probs.
    """
    ids, rng = [f"question-{q:05d}" for q in range(questions)], np.random.default_rng(0)
    settings = ["model=demo", "dataset=demo", f"sampling.trials={TRIALS}"]
    run = synthetic.prepared(folder, ids, *settings)
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
        table = synthetic.filled(columns, n, of.columns)
        for start in range(0, n, PART):
            of.write(folder, f"part-{start:08d}", table.slice(start, PART))
    return run


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
