"""Side files of the report: numbers of every attempt of a dataset, and texts in small files.

`D-q0.js`, `D-q1.js`, … hold the attempts on some questions each of dataset D, about `ROWS` of them,
in the order of questions, models, trials. `D-M-p.js` has problems and prompts of model M;
`D-M-0.js`, `D-M-1.js`, … the texts of some attempts each, so that opening one attempt reads little.
Each file is a script with one call with a JSON value: a page opened from disk may load scripts, but
fetch nothing.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.rubrics import ByRubric
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import outcomes, tables
from bayes_at_n.pipeline.store.columns import cut_off
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Ints

LONGEST = 2_000  # characters of an answer or a reason
ROWS = 4096  # attempts per file, or those on one question if these are more
_LOGS = {"log_a": "logprob_a", "log_b": "logprob_b", "log_c": "logprob_c"}
_SIGNALS = {"bits": "completion_bpt", "prompt_bits": "prompt_bpt"}


class Indexed(NamedTuple):
    """The attempts of one run."""

    keys: Ints  # of `tables.encode` for the M questions compared; ascending
    table: pa.Table  # a row per key, without the number of its `file`
    without: str | None  # why there are no texts; None: there are


def index(
    run: Run, question_ids: list[str], texts: bool, model: int = 0, codes: Sequence[Any] = ()
) -> Indexed:
    """Read all numbers of a run's attempts, by which the page lists and filters them.

    `question_ids` are the M of the comparison, in which the run is number `model`; `texts`: whether
    to include answers, which the model has written; `codes` are the attempts' categories under each
    rubric, (M, N) each, -1 for none. Attempts newer than the comparison have none, either. Unknown
    values are null.
    """
    ids = pa.array(question_ids, pa.string())
    names = ["outcome", "box", "layer", "reason", *(["answer"] if texts else [])]
    grades = outcomes.graded(run, names)
    sampled = ["finish_reason", "completion_tokens", "started", "finished"]
    attempts = tables.streamed(run, "attempts", sampled)
    labels = outcomes.read_verdicts(run, [*_LOGS.values()], "warn").table
    known = np.union1d(tables.encode(grades, ids), tables.encode(attempts, ids))
    kept, (questions, trials) = tables.cells(known, run.cfg.sampling.trials)
    keys = known[kept]

    def align(table: pa.Table) -> dict[str, pa.Array]:
        return tables.in_order(table, tables.encode(table, ids), table.column_names, keys)

    grade, attempt, verdict = map(align, (grades, attempts, labels))
    try:
        signal = align(signals.read(run))
    except UserError:  # nothing was measured yet
        signal = dict.fromkeys([*_SIGNALS.values(), *"abc"], pa.nulls(keys.size, pa.float32()))
    assigned = np.full((keys.size, len(codes)), -1, np.int8)
    for column, code in zip(assigned.T, codes, strict=True):
        compared = trials < code.shape[1]
        column[compared] = code[questions[compared], trials[compared]]
    columns = {
        "m": pa.array(np.full(keys.size, model, np.int32)),
        "q": pa.array(questions, pa.int32()),
        "t": pa.array(trials, pa.int32()),
        "categories": pa.array([*assigned], pa.list_(pa.int8())),
        "answer": pa.nulls(trials.size, pa.string()),
        **{name: pc.utf8_slice_codeunits(grade[name], 0, LONGEST) for name in names},
        "cut": pc.cast(cut_off(attempt["finish_reason"]), pa.int8()),
        "tokens": attempt["completion_tokens"],
        "seconds": pc.round(pc.subtract(attempt["finished"], attempt["started"]), 2),
        **{name: verdict[source] for name, source in _LOGS.items()},
        **{name: signal[source] for name, source in _SIGNALS.items()},
        **{label: signal[label] for label in "abc"},
    }
    without = None if texts else "The report was made without texts (report.texts=false)."
    if texts and not any(run.attempts.glob("*")):
        without = "This run was imported without texts."
    return Indexed(keys, pa.table(columns), without)


def write_numbers(stem: Path, tables: list[pa.Table], rubrics: ByRubric, golds: list[str]) -> Any:
    """Write the numbers of all attempts of a dataset with M questions, and their `golds`.

    `tables` are those of the models, with the number of each attempt's `file`. Returns `per_file`,
    the number of questions per file, `rubrics` with names and weights of categories, and `differ`:
    the number of attempts on which grader and verifier disagree, and of those that both judged.
    """
    rows = pa.concat_tables(tables)
    rows = rows.take(pa.array(np.argsort(rows["q"].to_numpy(), kind="stable")))
    rows = rows.append_column("gold", pa.array(golds, pa.string()).take(rows["q"].combine_chunks()))
    per_file = max(1, ROWS * len(golds) // max(rows.num_rows, 1))
    ends = np.searchsorted(rows["q"].to_numpy(), np.arange(0, len(golds) + per_file, per_file))
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        part = rows.slice(start, end - start)
        write(stem, f"-q{number}", {name: _plain(part[name]) for name in part.column_names})
    largest = pc.max_element_wise(rows["a"], rows["b"], rows["c"], skip_nulls=False)
    right = pc.equal(rows["outcome"], "correct")
    differs = pc.xor(pc.equal(rows["a"], largest), right)
    return {
        "per_file": per_file,
        "rubrics": [
            {"title": rubric.name, "categories": [(c.name, c.weight) for c in rubric.categories]}
            for rubric, _ in rubrics.values()
        ],
        "differ": [pc.sum(differs).as_py() or 0, len(differs) - differs.null_count],
    }


def write(stem: Path, ending: str, value: Any) -> None:
    """Write the side file STEM + ENDING.js, in ASCII, so that no character in it ends a line.

    It is not synced to disk: after a power cut the same command writes it again.
    Raises OSError: the disk is full, or not writable.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    name = f"{stem.name}{ending}"
    script = f"bayesReport({json.dumps(name)},{text});\n"
    atomic.write_text(stem.with_name(f"{name}.js"), script, sync=False)


def _plain(column: Any) -> Any:
    """Convert a column for JSON, with None for missing and infinite values; None if it is empty.

    Texts become {values, codes}, code -1 for none, which a browser reads twice as fast.
    """
    if pa.types.is_floating(column.type):
        column = pc.round(pc.cast(column, pa.float64()), 4)
        column = pc.if_else(pc.is_finite(column), column, None)
    if column.null_count == len(column):
        return None
    if not pa.types.is_string(column.type):
        return column.to_pylist()
    coded = column.combine_chunks().dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_pylist()
    return {"values": coded.dictionary.to_pylist(), "codes": codes}
