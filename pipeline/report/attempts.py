"""Side files of the report: numbers of every attempt of a run, and its texts in small files.

`D-M.js` holds a column per number for model M of data set D; `D-M-p.js` problems and prompts;
`D-M-0.js`, `D-M-1.js`, … the texts of some attempts each, so that opening one reads little. Each is
a script of one call with one JSON value: a page from a disk may load scripts, but fetch nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base import atomic
from pipeline.base.errors import UserError
from pipeline.rubrics import signals_table
from pipeline.rubrics.rubric import Rubric
from pipeline.store import rowkeys
from pipeline.store.columns import ATTEMPTS, GRADES, KEY, VERDICTS
from pipeline.store.runfolder import Run

Ints = npt.NDArray[np.int64]
Categories = Mapping[str, tuple[Rubric, npt.NDArray[np.int8]]]
LONGEST = 2_000  # characters of an answer or a reason
_DIGITS = {"bits": 4, "ratio": 5, "seconds": 2}
_LOGS = {"log_a": "logprob_a", "log_b": "logprob_b", "log_c": "logprob_c"}
_SIGNALS = {"bits": "completion_bpt", "ratio": "token_ratio", "a": "a", "b": "b", "c": "c"}


class Keys(NamedTuple):
    """The attempts of a run that the report shows, in the order of the questions."""

    ids: pa.Array  # the M question ids
    known: Ints  # one number per attempt: question << 32 | trial, ascending

    def rows(self, table: Any) -> Ints:
        """For each attempt its row in a table of the run, or -1."""
        return rowkeys.rows_of(self.known, rowkeys.encode(table, self.ids))

    def places(self, table: Any) -> Ints:
        """For each row of a table its attempt, or -1."""
        return rowkeys.rows_of(rowkeys.encode(table, self.ids), self.known)


def index(run: Run, question_ids: list[str], texts: bool) -> tuple[Keys, dict[str, Any]]:
    """What the reader lists and filters by, and all numbers of a run's attempts.

    Args:
        run: the run folder.
        question_ids: the M questions of the comparison.
        texts: whether answers, which are written by the model, may be in it.

    Returns:
        The K attempts, and columns of K values each: `q`, `t`, numbers with None where unknown,
        texts as {values, codes} with -1 for none; `prompt_bits` (M), `notes` for the page.
    """
    ids = pa.array(question_ids, pa.string())
    graded = ["outcome", "box", "layer", "reason", *(["answer"] if texts else [])]
    grades = rowkeys.streamed(run.grades, GRADES, [*KEY, *graded], "grade")
    sampled = ["finish_reason", "completion_tokens", "started", "finished"]
    attempts = rowkeys.streamed(run.attempts, ATTEMPTS, [*KEY, *sampled], "generate")
    seen = np.concatenate([rowkeys.encode(grades, ids), rowkeys.encode(attempts, ids)])
    known = np.unique(seen[seen >= 0])
    keys = Keys(ids, known[(known & 0xFFFFFFFF) < run.cfg.sampling.trials])
    columns: dict[str, Any] = {
        "q": (keys.known >> 32).tolist(),
        "t": (keys.known & 0xFFFFFFFF).tolist(),
        "notes": [],
    }
    rows = keys.rows(grades)
    for name in graded:
        columns[name] = _coded(pc.utf8_slice_codeunits(_taken(grades[name], rows), 0, LONGEST))
    rows = keys.rows(attempts)
    cut = pc.equal(_taken(attempts["finish_reason"], rows), "length")
    columns["cut"] = pc.cast(cut, pa.int8()).to_pylist()
    columns["tokens"] = _taken(attempts["completion_tokens"], rows).to_pylist()
    seconds = pc.subtract(_taken(attempts["finished"], rows), _taken(attempts["started"], rows))
    columns["seconds"] = _numbers("seconds", seconds)
    columns |= _signals(run, keys, columns["notes"])
    verdicts = rowkeys.streamed(run.path / "verdicts", VERDICTS, [*KEY, *_LOGS.values()], "verify")
    rows = keys.rows(verdicts)
    columns |= {name: _numbers(name, _taken(verdicts[of], rows)) for name, of in _LOGS.items()}
    return keys, columns


def write(stem: Path, ending: str, value: Any) -> None:
    """Write one side file, named by both; plain ASCII, so that nothing in it ends a line.

    Raises:
        OSError: the disk is full, or may not be written.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    name = f"{stem.name}{ending}"
    atomic.write_text(stem.with_name(f"{name}.js"), f"bayesReport({json.dumps(name)},{text});\n")


def _signals(run: Run, keys: Keys, notes: list[str]) -> dict[str, Any]:
    columns: dict[str, Any] = dict.fromkeys(_SIGNALS, [None] * keys.known.size)
    columns["prompt_bits"] = [None] * len(keys.ids)
    try:
        table = signals_table.current(run)
    except UserError as error:
        notes.append(
            f"{error}".partition(";")[0] + f"; run `python -m pipeline signals {run.path}`"
        )
        return columns
    rows = keys.rows(table)
    columns |= {name: _numbers(name, _taken(table[of], rows)) for name, of in _SIGNALS.items()}
    prompt = _numbers("bits", _taken(table["prompt_bpt"], rows))
    for question, bits in zip((keys.known >> 32).tolist(), prompt, strict=True):
        columns["prompt_bits"][question] = bits
    return columns


def categories(keys: Keys, labels: Categories, place: int | None) -> list[dict[str, Any]]:
    """Per rubric: title, names and weights of its categories, and each attempt's or -1.

    Args:
        keys: the K attempts of one run.
        labels: what :func:`pipeline.cohorts.rubrics.categories` returned.
        place: which model of the categories the run is; None: it has none.
    """
    question, trial = keys.known >> 32, keys.known & 0xFFFFFFFF
    return [
        {
            "title": rubric.name,
            "names": [part.name for part in rubric.categories],
            "weights": [part.weight for part in rubric.categories],
            "codes": (
                [-1] * question.size if place is None else codes[place, question, trial].tolist()
            ),
        }
        for rubric, codes in labels.values()
    ]


def _taken(column: Any, rows: Ints) -> Any:
    taken = column.take(pa.array(rows, mask=rows < 0))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _coded(column: Any) -> dict[str, Any]:
    """Texts as a list of the different ones, and for each attempt its place there or -1."""
    coded = column.dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    codes = pc.fill_null(coded.indices, -1)
    return {"values": coded.dictionary.to_pylist(), "codes": codes.to_pylist()}


def _numbers(name: str, column: Any) -> list[float | None]:
    """Rounded numbers, None where there is none."""
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    rounded = np.round(values, _DIGITS.get(name, 4))
    known = np.isfinite(values).tolist()
    return [value if ok else None for value, ok in zip(rounded.tolist(), known, strict=True)]
