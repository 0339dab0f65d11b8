"""Second pass over Parquet: columns of any type as the columns of this project's tables."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.imports.plan import Ints, Plan
from pipeline.imports.troubles import Troubles
from pipeline.imports.values import MOST_ANSWER, MOST_NUMBER, MOST_SEED, MOST_TEXT, truth, whole
from pipeline.imports.values import text as text_of
from pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS

REPEATED = ("text", "prompt", "task", "model", "model_key", "finish_reason")
_LABELS = ("A", "B", "C")
_CTX = tuple(f"cv3b_ctx_{label}" for label in _LABELS)
_MEANS = ("prompt", "completion")
ALL = (
    *("seed", "text", "finish_reason", "num_prompt_tokens", "num_completion_tokens"),
    *("extracted_answer", "has_box", "is_correct"),
    *("completion_logprob_list", "completion_token_list"),
    *_CTX,
    *(f"{what}_{end}" for what in _MEANS for end in ("avg_logprob", "sum_logprob", "ppl")),
)
_NOT_FOUND = "NotFound"  # an extracted answer where there is no box
_GROUPS_SUM = 0.02  # how far three probabilities may be from 1 in sum

Floats = npt.NDArray[np.float64]


class QuestionIds:
    """The ids of all questions of a plan in one array, found by run and question."""

    def __init__(self, plan: Plan) -> None:
        starts: dict[str, int] = {}
        ids: list[str] = []
        for dataset, rows in plan.questions.items():
            starts[dataset] = len(ids)
            ids += [row.id for row in rows]
        self.starts = np.array([starts[run.dataset] for run in plan.runs], np.int64)
        self.ids = pa.array(ids, pa.string())

    def __call__(self, run: Ints, question: Ints) -> pa.Array:
        """One id a row; null where the row is left out."""
        at = self.starts[np.maximum(run, 0)] + question
        return self.ids.take(pa.array(at, mask=run < 0))


class Batch(NamedTuple):
    """Some records, and what the plan says of them."""

    rows: pa.RecordBatch
    runs: Ints
    plan: Plan
    at: slice
    ids: QuestionIds
    place: str

    def numbers(self, name: str) -> Floats:
        """A column as float64, NaN where it is missing or no number."""
        return _numbers(self.rows, name)

    def has(self, name: str) -> bool:
        """Whether the records have this column."""
        return name in self.rows.schema.names


def tables(batch: Batch, troubles: Troubles) -> dict[str, pa.Table]:
    """Tables with a row for every record; `trial` is null where a table has nothing for it."""
    trial = batch.plan.trial[batch.at]
    ids = batch.ids(batch.runs, batch.plan.question[batch.at])
    key = {
        "question_id": ids,
        "trial": pa.array(trial.astype(np.int32), mask=batch.runs < 0),
    }
    made = {"grades": _grades(batch, key, troubles)}
    if any(map(batch.has, ("text", "finish_reason", "num_completion_tokens"))):
        made["attempts"] = _attempts(batch, key, troubles)
        made["means"] = _means(batch, key, troubles)
    if all(map(batch.has, _CTX)):
        made["verdicts"] = _verdicts(batch, key, troubles)
    return made


def texts(column: Any, most: int) -> pa.Array:
    """As strings; null for what is no text, and for what is longer than `most` bytes.

    Dictionary-encoded columns are checked before they are unfolded: a small file can say that one
    long text stands in every row.

    >>> texts(pa.array(["abc", "abcdef", None]), 4).to_pylist()
    ['abc', None, None]
    """
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        return texts(column.dictionary, most).take(column.indices)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return pa.array([text_of(value, most) for value in column.to_pylist()], pa.string())
    fits = pc.fill_null(pc.less_equal(pc.binary_length(column), most), False)
    return pc.if_else(fits, column, None).cast(pa.string())


def python(batch: pa.RecordBatch, name: str) -> list[Any]:
    """A column of small values as Python objects; None in every row where it is not there."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch[name]
    if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
        column = texts(column, MOST_ANSWER)
    found: list[Any] = column.to_pylist()
    return found


def _numbers(rows: pa.RecordBatch, name: str) -> Floats:
    if name not in rows.schema.names:
        return np.full(rows.num_rows, np.nan)
    column = rows[name]
    try:
        return np.asarray(
            pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64
        )
    except pa.ArrowException:
        return np.full(rows.num_rows, np.nan)


def _counts(batch: Batch, name: str) -> pa.Array:
    values = batch.numbers(name)
    with np.errstate(invalid="ignore"):
        sound = (values >= 0) & (values < MOST_NUMBER)
    return pa.array(np.where(sound, values, 0).astype(np.int32), mask=~sound)


def _attempts(batch: Batch, key: dict[str, pa.Array], troubles: Troubles) -> pa.Table:
    n = batch.rows.num_rows
    text = pa.nulls(n, pa.string())
    if batch.has("text"):
        text = texts(batch.rows["text"], MOST_TEXT)
        lost = text.null_count - batch.rows["text"].null_count
        if lost > 0:
            troubles.add("texts left out, over 16 MiB or no text", batch.place, lost)
    reason = pa.nulls(n, pa.string())
    if batch.has("finish_reason"):
        reason = texts(batch.rows["finish_reason"], 100)
    columns = key | {
        "seed": pa.array([whole(x, MOST_SEED) for x in python(batch.rows, "seed")], pa.int64()),
        "text": text,
        "finish_reason": reason,
        "prompt_tokens": _counts(batch, "num_prompt_tokens"),
        "completion_tokens": _counts(batch, "num_completion_tokens"),
        "token_ids": _list(batch, "completion_token_list", pa.int32(), troubles),
        "logprobs": _list(batch, "completion_logprob_list", pa.float32(), troubles),
    }
    return _table(columns, ATTEMPTS, n)


def _list(batch: Batch, name: str, kind: pa.DataType, troubles: Troubles) -> pa.Array:
    """A column of lists; null where it is not there. Lists of token texts have no ids."""
    n = batch.rows.num_rows
    if not batch.has(name):
        return pa.nulls(n, pa.list_(kind))
    column = batch.rows[name]
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        return pa.nulls(n, pa.list_(kind))
    if pa.types.is_string(column.type.value_type):
        return pa.nulls(n, pa.list_(kind))
    try:
        return pc.cast(column, pa.list_(kind), safe=pa.types.is_integer(kind))
    except pa.ArrowException:
        troubles.add(f"lists {name} left out, not numbers", batch.place, n)
        return pa.nulls(n, pa.list_(kind))


def _grades(batch: Batch, key: dict[str, pa.Array], troubles: Troubles) -> pa.Table:
    n = batch.rows.num_rows
    correct = [truth(value) for value in python(batch.rows, "is_correct")]
    boxes = [truth(value) for value in python(batch.rows, "has_box")]
    answers = python(batch.rows, "extracted_answer")
    ends = python(batch.rows, "finish_reason")
    found: dict[str, list[Any]] = {name: [] for name in ("box", "answer", "outcome")}
    for i, told in enumerate(answers):
        right, has_box, end = correct[i], boxes[i], ends[i]
        answer = None if told == _NOT_FOUND or has_box is False else text_of(told, MOST_ANSWER)
        if answer is None and isinstance(told, list | dict):
            troubles.add("answers left out, no text and no number", f"{batch.place} + {i}")
        none = "truncated" if end == "length" else "no_box"
        found["box"].append(None if has_box is None else "boxed" if has_box else none)
        found["answer"].append(answer)
        wrong = "no_answer" if has_box is False else "wrong"
        found["outcome"].append("correct" if right else wrong)
    known = pa.array([right is not None for right in correct])
    trial = pc.if_else(known, key["trial"], pa.scalar(None, pa.int32()))
    columns = key | {"trial": trial, "has_box": pa.array(boxes, pa.bool_())}
    columns |= {name: pa.array(values, pa.string()) for name, values in found.items()}
    columns |= {"layer": pa.array(["imported"] * n), "reason": pa.array(["is_correct"] * n)}
    return _table(columns, GRADES, n)


def _means(batch: Batch, key: dict[str, pa.Array], troubles: Troubles) -> pa.Table:
    """Mean log-probs: as the record gives them, else from the sum, else from the perplexity."""
    columns = dict(key)
    infinite = 0
    for what in _MEANS:
        tokens = batch.numbers(f"num_{what}_tokens") - (what == "prompt")
        with np.errstate(all="ignore"):
            ways = (
                batch.numbers(f"{what}_avg_logprob"),
                batch.numbers(f"{what}_sum_logprob") / np.where(tokens > 0, tokens, np.nan),
                -np.log(batch.numbers(f"{what}_ppl")),
            )
        mean = ways[0]
        infinite += int(np.isinf(mean).sum())
        for other in ways[1:]:
            mean = np.where(np.isfinite(mean), mean, other)
        mean = np.where(np.isfinite(mean) & (mean <= 1e-6), mean, np.nan)  # a mean of log p <= 0
        columns[f"{what}_mean_logprob"] = pa.array(mean.astype(np.float32), mask=np.isnan(mean))
    if infinite:
        troubles.add("means of log-probs that are infinite", batch.place, infinite)
    return _table(columns, MEANS, batch.rows.num_rows)


def _verdicts(batch: Batch, key: dict[str, pa.Array], troubles: Troubles) -> pa.Table:
    values = np.stack([batch.numbers(name) for name in _CTX], axis=1)
    with np.errstate(invalid="ignore"):
        sound = (values >= 0).all(axis=1) & (abs(values.sum(axis=1) - 1) <= _GROUPS_SUM)
    given = np.isfinite(values).any(axis=1)
    if lost := int((given & ~sound & (batch.runs >= 0)).sum()):
        troubles.add("verdicts left out, no three probabilities", batch.place, lost)
    trial = pc.if_else(pa.array(sound), key["trial"], pa.scalar(None, pa.int32()))
    columns = key | {"trial": trial, "label": pa.array(np.array(_LABELS)[values.argmax(axis=1)])}
    columns |= {x.lower(): pa.array(values[:, i], pa.float32()) for i, x in enumerate(_LABELS)}
    return _table(columns, VERDICTS, batch.rows.num_rows)


def _table(columns: dict[str, pa.Array], schema: pa.Schema, rows: int) -> pa.Table:
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
