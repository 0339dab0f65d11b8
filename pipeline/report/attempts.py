"""Side files of the report: numbers of every attempt of a data set, and texts in small files.

A row is an attempt, in the order of questions, models, trials. `D-i0.js`, `D-i1.js`, … hold `ROWS`
rows each of data set D: what lists show and filter by; `D-d0.js`, … the other numbers of
the same rows. `D-M-p.js` are problems and prompts of model M; `D-M-0.js`, `D-M-1.js`, … the texts
of some attempts each. So opening one reads little. Each is a script of one call with one JSON
value: a page from a disk may load scripts, but fetch nothing.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.rubrics.rubric import Rubric
from bayes_at_n.pipeline.store import graded, rowkeys
from bayes_at_n.pipeline.store.columns import cut_off
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Ints

Categories = Mapping[str, tuple[Rubric, npt.NDArray[np.int8]]]
LONGEST = 2_000  # characters of an answer or a reason
ROWS = 4096  # of a file
_LOGS = {"log_a": "logprob_a", "log_b": "logprob_b", "log_c": "logprob_c"}
_SIGNALS = {"a": "a", "b": "b", "c": "c", "bits": "completion_bpt"}
_SIGNALS |= {"prompt_bits": "prompt_bpt", "ratio": "token_ratio"}
_LISTED = ["m", "q", "t", "outcome", "answer", "cut", "tokens", "bits", "a", "b", "c", "file"]
_MORE = ["box", "layer", "reason", "seconds", "prompt_bits", "ratio", *_LOGS]


class Indexed(NamedTuple):
    """The attempts of one run, as :func:`index` returned them, and what goes with them."""

    keys: Ints  # see `rowkeys.encode`, of the M questions that are compared; ascending
    table: pa.Table
    files: Ints | int  # of each attempt the number of the file with its text, or -1
    place: int | None  # which model of the categories the run is; None: it has none


def index(run: Run, question_ids: list[str], texts: bool) -> tuple[Ints, pa.Table, list[str]]:
    """What the reader lists and filters by, and all numbers of a run's attempts.

    `question_ids` are the M of the comparison, and `texts` says whether answers, which are written
    by the model, may be in it. Returns the keys of the K attempts, ascending (`rowkeys.encode`),
    their columns, null where unknown, and notes for the page.
    """
    ids = pa.array(question_ids, pa.string())
    named = ["outcome", "box", "layer", "reason", *(["answer"] if texts else [])]
    grades = graded.graded(run, named)
    sampled = ["finish_reason", "completion_tokens", "started", "finished"]
    attempts = rowkeys.streamed(run, "attempts", sampled)
    labels = graded.read_verdicts(run, [*_LOGS.values()], "warn").table
    known = np.union1d(rowkeys.encode(grades, ids), rowkeys.encode(attempts, ids))
    kept, (questions, trials) = rowkeys.cells(known, run.cfg.sampling.trials)
    keys = known[kept]

    def of(table: pa.Table) -> dict[str, pa.Array]:
        return rowkeys.in_order(table, rowkeys.encode(table, ids), table.column_names, keys)

    grade, attempt, verdict = map(of, (grades, attempts, labels))
    notes = []
    try:
        signal = of(signals.read(run))
    except UserError as error:
        notes.append(str(error))
        signal = dict.fromkeys(_SIGNALS.values(), pa.nulls(keys.size, pa.float64()))
    columns: dict[str, Any] = {
        "q": pa.array(questions, pa.int32()),
        "t": pa.array(trials, pa.int32()),
        "answer": pa.nulls(trials.size, pa.string()),
        **{name: pc.utf8_slice_codeunits(grade[name], 0, LONGEST) for name in named},
        "cut": pc.cast(cut_off(attempt["finish_reason"]), pa.int8()),
        "tokens": attempt["completion_tokens"],
        "seconds": pc.round(pc.subtract(attempt["finished"], attempt["started"]), 2),
        **{name: verdict[source] for name, source in _LOGS.items()},
        **{name: signal[source] for name, source in _SIGNALS.items()},
    }
    return keys, pa.table({name: _small(column) for name, column in columns.items()}), notes


def write_index(stem: Path, members: list[Indexed], labels: Categories, golds: list[str]) -> Any:
    """Write the numbers of all attempts of a data set with M questions, and their `golds`.

    `labels` are what :func:`pipeline.compare.rubrics.categories` returned. Returns `starts`, the
    first row of each question and at last how many rows there are, and `differ`: of how many
    attempts grader and verifier disagree, and how many both judged.
    """
    tables = []
    for m, (keys, table, files, place) in enumerate(members):
        own: dict[str, Any] = {"m": m, "file": files}
        trials = keys & 0xFFFFFFFF
        for number, (_, codes) in enumerate(labels.values()):
            if place is not None:  # trials that are not compared yet have no category
                last = codes.shape[2] - 1
                code = codes[place][keys >> 32, np.minimum(trials, last)]
                own[f"{number}"] = np.where(trials > last, -1, code)
            else:
                own[f"{number}"] = -1
        for name, values in own.items():
            column = pa.array(np.full(table.num_rows, values, np.int32))
            table = table.append_column(name, column)
        tables.append(table)
    rows = pa.concat_tables(tables).unify_dictionaries()
    rows = rows.take(pa.array(np.argsort(rows["q"].to_numpy(), kind="stable")))
    questions = rows["q"].to_numpy()
    for at in range(0, rows.num_rows, ROWS):
        part = rows.slice(at, ROWS).combine_chunks()
        shown = {name: _shown(part[name].chunk(0)) for name in part.column_names}
        gold = {int(q): golds[q] for q in np.unique(questions[at : at + ROWS])}
        rubrics = [
            {
                "title": rubric.name,
                "names": [category.name for category in rubric.categories],
                "weights": [category.weight for category in rubric.categories],
                "codes": shown[f"{number}"],
            }
            for number, (rubric, _) in enumerate(labels.values())
        ]
        write(stem, f"-i{at // ROWS}", {name: shown[name] for name in _LISTED} | {"gold": gold})
        more = {name: shown[name] for name in _MORE} | {"rubrics": rubrics}
        write(stem, f"-d{at // ROWS}", more)
    likeliest = pc.max_element_wise(rows["a"], rows["b"], rows["c"], skip_nulls=False)
    right = pc.equal(pc.cast(rows["outcome"], pa.string()), "correct")
    differs = pc.xor(pc.equal(rows["a"], likeliest), right)
    return {
        "starts": np.searchsorted(questions, np.arange(len(golds) + 1)).tolist(),
        "differ": [pc.sum(differs).as_py() or 0, len(differs) - differs.null_count],
    }


def write(stem: Path, ending: str, value: Any) -> None:
    """Write one side file, named by both; plain ASCII, so that nothing in it ends a line.

    What a power cut takes of it, the same command makes again: nothing waits for the disk.
    Raises OSError: the disk is full, or may not be written.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    name = f"{stem.name}{ending}"
    script = f"bayesReport({json.dumps(name)},{text});\n"
    atomic.write_text(stem.with_name(f"{name}.js"), script, sync=False)


def _small(column: pa.Array) -> pa.Array:
    """A column as it is kept until all models are there: texts once, numbers in four bytes."""
    if pa.types.is_string(column.type):
        return column.dictionary_encode()
    return pc.cast(column, pa.float32()) if pa.types.is_float64(column.type) else column


def _shown(column: pa.Array) -> Any:
    """A column for JSON: numbers, None where there is none; texts as {values, codes}, -1 for none.

    The values are those that occur.
    """
    if pa.types.is_dictionary(column.type):
        coded = column.cast(pa.string()).dictionary_encode()
        codes = pc.fill_null(coded.indices, -1)
        return {"values": coded.dictionary.to_pylist(), "codes": codes.to_pylist()}
    if not pa.types.is_floating(column.type):
        return column.to_pylist()
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return [x if math.isfinite(x) else None for x in np.round(values, 4).tolist()]
