"""Side files of the report: numbers of every attempt of a run, and its texts in small files.

`D-M.js` holds a column per number for model M of data set D; `D-M-p.js` problems and prompts;
`D-M-0.js`, `D-M-1.js`, … the texts of some attempts each, so that opening one reads little. Each is
a script of one call with one JSON value: a page from a disk may load scripts, but fetch nothing.
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

from pipeline.base import atomic
from pipeline.base.errors import UserError
from pipeline.base.program import PROGRAM
from pipeline.rubrics import signals_table
from pipeline.rubrics.rubric import Rubric
from pipeline.store import judged, rowkeys
from pipeline.store.columns import cut_off
from pipeline.store.runfolder import Run
from scoring.numerics.inputs import Ints

Categories = Mapping[str, tuple[Rubric, npt.NDArray[np.int8]]]
LONGEST = 2_000  # characters of an answer or a reason
_LOGS = {"log_a": "logprob_a", "log_b": "logprob_b", "log_c": "logprob_c"}
_SIGNALS = {"bits": "completion_bpt", "ratio": "token_ratio", "a": "a", "b": "b", "c": "c"}


class Keys(NamedTuple):
    """The attempts of a run that the report shows, in the order of the questions."""

    ids: pa.Array  # the M question ids
    known: Ints  # one number per attempt: question << 32 | trial, ascending

    @property
    def cells(self) -> tuple[Ints, Ints]:
        """The number of the question and the trial of each attempt."""
        return self.known >> 32, self.known & 0xFFFFFFFF

    def columns(self, table: pa.Table) -> dict[str, pa.Array]:
        """The columns of a table of the run, one value an attempt; null where it has no row."""
        rows = rowkeys.rows_of(self.known, rowkeys.encode(table, self.ids))
        places = pa.array(rows, mask=rows < 0)
        return {name: table[name].take(places).combine_chunks() for name in table.column_names}

    def places(self, table: pa.RecordBatch) -> Ints:
        """For each row of a table its attempt, or -1."""
        return rowkeys.rows_of(rowkeys.encode(table, self.ids), self.known)


def index(run: Run, question_ids: list[str], texts: bool) -> tuple[Keys, dict[str, Any]]:
    """What the reader lists and filters by, and all numbers of a run's attempts.

    `question_ids` are the M of the comparison, and `texts` says whether answers, which are written
    by the model, may be in it. Returns the K attempts, and columns of K values each: `q`, `t`,
    numbers with None where unknown, texts as {values, codes} with -1 for none; `prompt_bits` (M),
    `notes` for the page.
    """
    ids = pa.array(question_ids, pa.string())
    graded = ["outcome", "box", "layer", "reason", *(["answer"] if texts else [])]
    grades = judged.graded(run, graded)
    sampled = ["finish_reason", "completion_tokens", "started", "finished"]
    attempts = rowkeys.streamed(run, "attempts", sampled)
    verdicts = rowkeys.streamed(run, "verdicts", list(_LOGS.values()))
    known = np.union1d(rowkeys.encode(grades, ids), rowkeys.encode(attempts, ids))
    keys = Keys(ids, known[rowkeys.cells(known, run.cfg.sampling.trials)[0]])
    questions, trials = keys.cells
    grade, attempt, verdict = (keys.columns(table) for table in (grades, attempts, verdicts))
    columns: dict[str, Any] = {
        "q": questions.tolist(),
        "t": trials.tolist(),
        **{name: _coded(pc.utf8_slice_codeunits(grade[name], 0, LONGEST)) for name in graded},
        "cut": pc.cast(cut_off(attempt["finish_reason"]), pa.int8()).to_pylist(),
        "tokens": attempt["completion_tokens"].to_pylist(),
        "seconds": _numbers(pc.subtract(attempt["finished"], attempt["started"]), 2),
        **{name: _numbers(verdict[source]) for name, source in _LOGS.items()},
    }
    return keys, columns | _signals(run, keys)


def write(stem: Path, ending: str, value: Any) -> None:
    """Write one side file, named by both; plain ASCII, so that nothing in it ends a line.

    What a power cut takes of it, the same command makes again: nothing waits for the disk.
    Raises OSError: the disk is full, or may not be written.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    name = f"{stem.name}{ending}"
    script = f"bayesReport({json.dumps(name)},{text});\n"
    atomic.write_text(stem.with_name(f"{name}.js"), script, sync=False)


def _signals(run: Run, keys: Keys) -> dict[str, Any]:
    """Columns of signals, without values and with a note where the run has no current ones."""
    columns: dict[str, Any] = dict.fromkeys(_SIGNALS, [None] * keys.known.size)
    prompt_bits: list[float | None] = [None] * len(keys.ids)
    try:
        signals = keys.columns(signals_table.current(run))
    except UserError as error:
        reason = f"{error}".partition(";")[0]
        note = f"{reason}; run `{PROGRAM} signals {run.path}`"
        return {**columns, "prompt_bits": prompt_bits, "notes": [note]}
    columns = {name: _numbers(signals[source]) for name, source in _SIGNALS.items()}
    columns["ratio"] = _numbers(signals["token_ratio"], 5)
    for question, bits in zip(keys.cells[0], _numbers(signals["prompt_bpt"]), strict=True):
        prompt_bits[question] = bits
    return {**columns, "prompt_bits": prompt_bits, "notes": []}


def categories(keys: Keys, labels: Categories, place: int | None) -> list[dict[str, Any]]:
    """Per rubric: title, names and weights of its categories, and each attempt's or -1.

    `labels` are what :func:`pipeline.cohorts.rubrics.categories` returned, and `place` which model
    there the run is; None: it has none.
    """
    none = [-1] * keys.known.size
    return [
        {
            "title": rubric.name,
            "names": [category.name for category in rubric.categories],
            "weights": [category.weight for category in rubric.categories],
            "codes": none if place is None else codes[place][keys.cells].tolist(),
        }
        for rubric, codes in labels.values()
    ]


def _coded(column: pa.Array) -> dict[str, Any]:
    """Texts as a list of the different ones, and for each attempt its place there or -1."""
    coded = column.dictionary_encode()
    codes = pc.fill_null(coded.indices, -1)
    return {"values": coded.dictionary.to_pylist(), "codes": codes.to_pylist()}


def _numbers(column: pa.Array, digits: int = 4) -> list[float | None]:
    """Rounded numbers, None where there is none."""
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return [x if math.isfinite(x) else None for x in np.round(values, digits).tolist()]
