"""Records that are handled together, as a column for each of `row.COLUMNS`.

Rows of Parquet come as columns: numbers and texts are checked all at once, and of everything else
each distinct value is read once. A record with a value that cannot be used is parsed as any other.
"""

import contextlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.config.records import ImportConfig
from bayes_at_n.pipeline.records import row as rows
from bayes_at_n.pipeline.records.source import Records, Troubles
from bayes_at_n.pipeline.store.columns import CUT

_ROWS, _BYTES = 1000, 16 << 20  # of records that are made one batch, at most and about
_LONG = ("problem", "prompt", "text", "token_ids", "logprobs")  # columns that make rows large
_ALWAYS = dict.fromkeys(("task", "model", "question", "reason"))  # what `row.parse` may add
_NO_BOX = pa.array(["NotFound", "None"])  # an extracted answer where there is no box
_SUM = 0.02  # how far three probabilities may be from 1 in sum
_SCORES = ("understanding", "reasoning", "conclusion")


class Batch(NamedTuple):
    """Records that were read together."""

    # Arrow arrays by names of COLUMNS, of their TYPES; texts may be folded (dictionary-encoded). A
    # column that no record has may be absent.
    columns: dict[str, Any]
    sound: Any  # bool array: which of the records can be used
    place: Callable[[int], str]  # where each is

    def has(self, name: str) -> Any:
        """Which records have a value in a column."""
        column = self.columns.get(name, pa.nulls(self.sound.size))
        return column.is_valid().to_numpy(zero_copy_only=False)

    def coded(self, name: str) -> tuple[Any, Any]:
        """A column of texts as numbers of an array of distinct ones; -1 where there is none."""
        folded = _folded(self.columns.get(name, pa.nulls(self.sound.size, pa.string())))
        return folded.indices.fill_null(-1).to_numpy().astype(np.int64), folded.dictionary


def of_records(
    records: Records, cfg: ImportConfig, run: tuple[str, str], troubles: Troubles
) -> Iterator[Batch]:
    """Mappings as batches; for `cfg` and `run` see `row.parse`."""
    found, places, seen, size = list[rows.Row | None](), list[str](), set[str](), 0
    for place, record in chain(records, [("", None)]):
        if len(found) == _ROWS or size > _BYTES or not place:
            columns = {
                key: pa.array([row and row[key] for row in found], rows.TYPES[key])
                for key in rows.present(rows.KNOWN.intersection(seen)) | _ALWAYS
            }
            yield Batch(columns, np.array([row is not None for row in found]), places.__getitem__)
            troubles.columns |= seen
            found, places, seen, size = [], [], set(), 0
        row = None if record is None else rows.parse(record, place, cfg, run, troubles)
        if row is not None:
            seen.update(record or ())
            size += sum(len(row[key]) for key in _LONG if row[key] is not None)
        found.append(row)
        places.append(place)


def of_arrays(
    arrays: dict[str, Any],
    place: Callable[[int], str],
    cfg: ImportConfig,
    run: tuple[str, str],
    troubles: Troubles,
) -> Batch:
    """Arrays of foreign values, as many each, by the names of their columns; see `of_records`."""
    number = len(next(iter(arrays.values())))
    troubles.columns |= arrays.keys()
    columns: dict[str, Any] = {}
    odd = np.zeros(number, bool)
    names = rows.present(frozenset(arrays))
    for key, name in names.items():
        columns[key], wrong = _read(key, arrays[name], cfg)
        odd |= wrong
    if "number" in columns:
        columns.setdefault("question", columns["number"])
    for key, text in (("task", run[0]), ("model", run[1]), ("reason", names.get("outcome"))):
        own = columns.get(key, pa.nulls(number)).cast(pa.string())
        columns[key] = pc.coalesce(own, text or pa.scalar(None, pa.string()))
    batch = Batch(columns, np.ones(number, bool), place)
    named = batch.has("task") & (batch.has("model") | batch.has("model_key"))
    for i in np.flatnonzero(odd | ~(named & batch.has("question"))).tolist():
        record = {name: _value(array[i]) for name, array in arrays.items()}
        batch.sound[i] = rows.parse(record, place(i), cfg, run, troubles) is not None
    return batch


def _read(key: str, array: Any, cfg: ImportConfig) -> tuple[Any, Any]:
    """Foreign values as those of a column; and which of them cannot be used."""
    want: Any = rows.TYPES[key]
    kind, reader, good = array.type, rows.COLUMNS[key].read, np.zeros(len(array), bool)
    given = getattr(reader, "keywords", {})
    if want == pa.float64() and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        numbers = array.cast(want, safe=False)
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, want), numbers), good
    if pa.types.is_list(want) and _are_lists(kind) and not array.flatten().null_count:
        with contextlib.suppress(pa.ArrowException):  # one of them may be of other numbers
            return array.cast(want, safe=pa.types.is_integer(want.value_type)), good
    folded = _folded(array)
    texts, codes = folded.dictionary, folded.indices.fill_null(-1).to_numpy()
    used = read = np.unique(codes[codes >= 0])
    kept = None
    if getattr(reader, "func", reader) is rows.text and _are_sound(texts):  # taken as they are
        most = min(given.get("most", rows.MOST_ANSWER), 4 * rows.MOST_TEXT)
        sizes = pc.binary_length(texts).to_numpy()[used]
        read, kept = used[(sizes == 0) | (sizes > most)], texts
    values = {code: rows.value_of(key, _value(texts[code]), cfg) for code in read.tolist()}
    new = np.arange(len(texts) + 1, dtype=np.int32)  # the last for those that have none
    new[[-1, *(code for code, (value, _) in values.items() if value is None)]] = -1
    if kept is None:
        new[used] = np.where(new[used] < 0, -1, np.arange(used.size))
        kept = pa.array([value for value, _ in values.values()], want)
    wrong = np.isin(codes, [code for code, (_, why) in values.items() if why])
    indices = pa.array(new[codes], mask=new[codes] < 0)
    if want == pa.string():
        return pa.DictionaryArray.from_arrays(indices, kept), wrong
    return kept.take(indices), wrong


def _are_lists(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _folded(array: Any) -> Any:
    """Distinct values, and the number of each; all of them where Arrow compares none."""
    if pa.types.is_dictionary(array.type):
        return array
    with contextlib.suppress(pa.ArrowException):
        return array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(array), dtype=np.int32)), array)


def _are_sound(texts: Any) -> bool:
    """Whether they are texts, and in UTF-8, which Parquet does not promise."""
    with contextlib.suppress(pa.ArrowException):
        texts.validate(full=True)
        return bool(pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type))
    return False


def _value(value: Any) -> Any:
    """A foreign value as Python's, or why it is none."""
    value = value.value if pa.types.is_dictionary(value.type) and value.is_valid else value
    if _are_lists(value.type):
        return value.values
    size = value.as_buffer().size if value.is_valid and hasattr(value, "as_buffer") else 0
    if size > 4 * rows.MOST_TEXT:
        return rows.Unread(f"{size} bytes long")  # in UTF-8; what nobody will read is not made
    try:
        return value.as_py()
    except ValueError:
        return rows.Unread("not UTF-8")


def derive(columns: dict[str, Any], place: Callable[[int], str], troubles: Troubles) -> None:
    """Add the columns of our tables that follow from what records say; no text is folded."""
    number = len(columns["trial"])

    def known(name: str) -> Any:
        return columns.get(name, pa.nulls(number, rows.TYPES[name]))

    def numbers(name: str) -> Any:
        return known(name).to_numpy(zero_copy_only=False).astype(float)

    columns["layer"] = columns["grader"] = pa.array(["imported"] * number)
    no_box = pc.equal(known("has_box"), False)
    cut = pc.is_in(known("finish_reason"), value_set=pa.array(CUT))
    columns["box"] = pc.if_else(no_box, pc.if_else(cut, "truncated", "no_box"), "boxed")
    none = pc.or_kleene(no_box, pc.is_in(known("answer"), _NO_BOX)).fill_null(False)
    columns["answer"] = pc.if_else(none, pa.scalar(None, pa.string()), known("answer"))
    silent = pc.and_kleene(no_box, pc.equal(known("outcome"), "wrong")).fill_null(False)
    columns["outcome"] = pc.if_else(silent, "no_answer", known("outcome"))
    if not any(known(name).null_count < number for name in "abc"):
        score = (np.mean([numbers(name) for name in _SCORES], axis=0) - 1) / 19
        columns |= {"a": pa.array(score), "b": pa.array(1 - score), "c": pa.array(0 * score)}
    abc = np.stack([numbers(name) for name in "abc"], axis=1)
    good = (abc >= 0).all(axis=1) & (np.abs(abc.sum(axis=1) - 1) <= _SUM)
    largest = np.nan_to_num(abc, nan=-1).argmax(axis=1)
    columns["label"] = pa.array(np.array(list("ABC"))[largest], mask=~good)
    for i in np.flatnonzero(~good & ~np.isnan(abc).all(axis=1)).tolist():
        troubles.add("verdicts left out, no three probabilities", place(i))
    for what, unscored in (("prompt", 1), ("completion", 0)):  # the first token has no log-prob
        mean, total, perplexity, tokens = (
            numbers(f"{what}_{end}") for end in ("avg", "sum", "ppl", "tokens")
        )
        for i in np.flatnonzero(np.isinf(mean)).tolist():
            troubles.add("means of log-probs that are infinite", place(i))
        with np.errstate(all="ignore"):
            tokens = np.where(tokens > unscored, tokens - unscored, np.nan)
            for way in (total / tokens, -np.log(np.where(perplexity > 0, perplexity, np.nan))):
                mean = np.where(np.isfinite(mean), mean, way)
            good = np.isfinite(mean) & (mean <= 1e-6)
        columns[f"{what}_mean_logprob"] = pa.array(mean, mask=~good)
