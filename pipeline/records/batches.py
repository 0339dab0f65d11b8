"""Batches of records, with a typed column for each of `columns.COLUMNS`.

Rows of Parquet come as Arrow arrays, in which numbers, texts and lists are checked all at once and
each distinct other value once. Other formats yield mappings, whose values are checked one by one.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.config.records import ImportConfig
from bayes_at_n.pipeline.records import columns as spec
from bayes_at_n.pipeline.records.source import ONE_VALUE, Records, Skipped, Source
from bayes_at_n.pipeline.store.columns import CUT
from bayes_at_n.verifiers.maths.boxed import extract

_ROWS, _BYTES = 1000, 16 << 20  # of a batch of mappings, at most and about
_NO_BOX = pa.array(["NotFound", "None"])  # an extracted answer that means that there is no box
_SUM = 0.02  # tolerance of the sum of three probabilities, which is 1


class Batch(NamedTuple):
    """Records read together."""

    columns: dict[str, Any]  # Arrow arrays by keys of COLUMNS, of their TYPES; some may be absent
    sound: Any  # bool array: which records can be used
    place: Callable[[int], str]  # returns the location of a record in the source

    def column(self, name: str) -> Any:
        """Return a column, of nulls if it is absent."""
        return self.columns.get(name, pa.nulls(self.sound.size, spec.TYPES[name]))

    def has(self, name: str) -> Any:
        """Return which records have a value in a column."""
        return self.column(name).is_valid().to_numpy(zero_copy_only=False)


def of_records(source: Source, records: Records) -> Iterator[Batch]:
    """Yield mappings as batches; None is a damaged record."""
    located, size = list[tuple[str, Mapping[str, Any] | None]](), 0
    for place, record in records:
        made: list[Any] = [record]
        if record is not None:
            try:
                made = spec.samples(record)
            except ValueError as error:
                source.skipped.damaged(place, str(error))
                made = [None]
            if made[0] is not None and spec.OUTCOMES & (record.keys() - made[0].keys()):
                source.skipped.add(ONE_VALUE, place)
        located += [(place, one) for one in made]
        size += sum(len(v) for v in (record or {}).values() if isinstance(v, str | list))
        if len(located) >= _ROWS or size > _BYTES:
            yield _of_mappings(source, located)
            located, size = [], 0
    if located:
        yield _of_mappings(source, located)


def _of_mappings(source: Source, located: list[tuple[str, Mapping[str, Any] | None]]) -> Batch:
    records = [spec.with_problem(record or {}) for _, record in located]
    names = [_present(source, record) for record in records]
    source.skipped.columns.update(*records)
    source.skipped.used.update(name for named in names for name in named.values())
    values = {
        key: [record.get(named.get(key, "")) for record, named in zip(records, names, strict=True)]
        for key in {key for named in names for key in named}
    }
    sound = np.array([record is not None for _, record in located])
    places = [place for place, _ in located]
    return _checked(source, values, names.__getitem__, Batch({}, sound, places.__getitem__))


def _present(source: Source, record: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that a record has, by keys, as the user's settings read them."""
    cfg = source.cfg.source
    names = spec.KNOWN.intersection(record)
    names |= {name for name in (cfg.gold, cfg.cluster) if name and name in record}
    named = spec.present(names, cfg.gold, bool(cfg.category_names or cfg.category_weights))
    return named | ({"cluster": cfg.cluster} if cfg.cluster and cfg.cluster in record else {})


def of_arrays(source: Source, arrays: dict[str, Any], place: Callable[[int], str]) -> Batch:
    """Return a batch of equally long arrays of foreign values, by the names of their columns."""
    source.skipped.columns.update(arrays)
    names = _present(source, arrays)
    values = {key: arrays[name] for key, name in names.items()}
    sound = np.ones(len(next(iter(arrays.values()))), bool)
    return _checked(source, values, lambda _: names, Batch({}, sound, place))


def _checked(
    source: Source, values: dict[str, Any], names: Callable[[int], dict[str, str]], batch: Batch
) -> Batch:
    """Check the values of every column; `names(i)` maps keys to record i's own names."""
    cfg, skipped, sound, damaged = source.cfg, source.skipped, batch.sound, dict[int, str]()
    for key in (key for key in spec.COLUMNS if key in values):
        batch.columns[key], unusable = _read(key, values[key], cfg.source)
        for i, why in unusable.items():
            if key in spec.NEEDED and names(i)[key] not in spec.PARTIAL:
                damaged.setdefault(i, f"{key}: {why}")
                skipped.misread[names(i)[key]] += key == "outcome"
            else:
                skipped.add(f"values of {names(i)[key]} left out", f"{batch.place(i)} ({why})")
    outcomes = pa.array([names(i).get("outcome") for i in range(sound.size)], pa.string())
    for key, other in (  # defaults of records without a value
        ("task", [*cfg.dataset, None][0]),
        ("model", [*cfg.model, None][0]),
        ("question", batch.column("number")),
        ("question", pc.if_else(pa.array(~batch.has("problem")), batch.column("id"), None)),
        ("reason", outcomes),
    ):
        other = other if isinstance(other, pa.Array) else pa.scalar(other, pa.string())
        batch.columns[key] = pc.coalesce(batch.column(key), other)
    identified = batch.has("question") | batch.has("problem")
    named = {"dataset": batch.has("task"), "model": batch.has("model") | batch.has("model_key")}
    for i in np.flatnonzero(sound & ~identified).tolist():
        damaged.setdefault(i, "no question")
    for i, why in sorted(damaged.items()):
        skipped.damaged(batch.place(i), why)
    sound[[*damaged]] = False
    for i in np.flatnonzero(sound & ~(named["dataset"] & named["model"])).tolist():
        settings = " ".join(f"{key}=NAME" for key, has in named.items() if not has[i])
        skipped.add(f"rows without a name skipped, give {settings}", batch.place(i))
        sound[i] = False
    return batch


def answer_is_gold(batch: Batch) -> bool:
    """Return whether `answer` is the same in all attempts on a question whose boxes differ."""
    answers, boxes = defaultdict[Any, set[Any]](set), defaultdict[Any, set[Any]](set)
    names = ("task", "question", "problem", "answer", "text")
    for *key, answer, text in zip(*(batch.column(n).to_pylist() for n in names), strict=True):
        answers[*key].add(answer)
        boxes[*key] |= {extract(text, truncated=False).answer} if text else set()
    constant = all(len(one) == 1 for one in answers.values())
    return constant and any(len(one - {None}) > 1 for one in boxes.values())


def _read(key: str, values: Any, cfg: ImportConfig) -> tuple[Any, dict[int, str]]:
    """Convert foreign values to a column's type; return also why values cannot be used, by row."""
    want: Any = spec.TYPES[key]
    if isinstance(values, list):
        read = [spec.value_of(key, value, cfg) for value in values]
        unusable = {i: why for i, (_, why) in enumerate(read) if why}
        return pa.array([value for value, _ in read], want), unusable
    kind, reader = values.type, spec.COLUMNS[key].read
    if want == pa.float64() and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        numbers = values.cast(want, safe=False)
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, want), numbers), {}
    if pa.types.is_list(want) and are_lists(kind) and not values.flatten().null_count:
        with contextlib.suppress(pa.ArrowException):  # a list may hold other numbers
            return values.cast(want, safe=pa.types.is_integer(want.value_type)), {}
    if getattr(reader, "func", reader) is spec.text and _are_sound(values):  # taken as they are
        most = getattr(reader, "keywords", {}).get("most", spec.MOST_ANSWER)
        sizes = pc.binary_length(values).fill_null(0).to_numpy()
        long = {i: spec.value_of(key, _value(values[i]), cfg) for i in np.flatnonzero(sizes > most)}
        unusable = {int(i): why for i, (_, why) in long.items() if why}
        known = sizes > 0
        known[[*unusable]] = False
        texts = values.cast(want)
        if not known.all():
            texts = pc.if_else(pa.array(known), texts, pa.scalar(None, want))
        return texts, unusable
    try:
        folded = values.dictionary_encode()
    except pa.ArrowException:  # which compares none of these
        every = pa.array(np.arange(len(values), dtype=np.int32))
        folded = pa.DictionaryArray.from_arrays(every, values)
    read = [spec.value_of(key, _value(value), cfg) for value in folded.dictionary]
    column = pa.array([value for value, _ in read], want).take(folded.indices)
    codes = folded.indices.fill_null(-1).to_numpy()
    wrong = np.flatnonzero(np.isin(codes, [code for code, (_, why) in enumerate(read) if why]))
    return column, {i: read[codes[i]][1] for i in wrong.tolist()}


def are_lists(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are lists of any length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _are_sound(texts: Any) -> bool:
    """Return whether an array holds texts in valid UTF-8, which Parquet does not guarantee."""
    with contextlib.suppress(pa.ArrowException):
        texts.validate(full=True)
        return bool(pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type))
    return False


def _value(value: Any) -> Any:
    """Return an Arrow value as a Python object; the error, if it is invalid UTF-8."""
    if are_lists(value.type):
        return value.values
    try:
        return value.as_py()
    except UnicodeError as error:
        return error


def derive(columns: dict[str, Any], place: Callable[[int], str], skipped: Skipped) -> None:
    """Add the columns of our tables that are derived from records' columns."""
    number = len(columns["trial"])

    def column(name: str) -> Any:
        return columns.get(name, pa.nulls(number, spec.TYPES[name]))

    def numbers(name: str) -> Any:
        return column(name).to_numpy(zero_copy_only=False).astype(float)

    columns["layer"] = columns["grader"] = pa.array(["imported"] * number)
    no_box = pc.equal(column("has_box"), False)
    cut = pc.is_in(column("finish_reason"), value_set=pa.array(CUT))
    columns["box"] = pc.if_else(no_box, pc.if_else(cut, "truncated", "no_box"), "boxed")
    none = pc.or_kleene(no_box, pc.is_in(column("answer"), _NO_BOX)).fill_null(False)
    columns["answer"] = pc.if_else(none, pa.scalar(None, pa.string()), column("answer"))
    silent = pc.and_kleene(no_box, pc.equal(column("outcome"), "wrong")).fill_null(False)
    columns["outcome"] = pc.if_else(silent, "no_answer", column("outcome"))
    abc = np.stack([numbers(name) for name in "abc"], axis=1)
    good = (abc >= 0).all(axis=1) & (np.abs(abc.sum(axis=1) - 1) <= _SUM)
    largest = np.nan_to_num(abc, nan=-1).argmax(axis=1)
    columns["label"] = pa.array(np.array(list("ABC"))[largest], mask=~good)
    for i in np.flatnonzero(~good & ~np.isnan(abc).all(axis=1)).tolist():
        skipped.add("verdicts left out, not three probabilities", place(i))
    for what in ("prompt", "completion"):
        mean = numbers(f"{what}_avg")
        for i in np.flatnonzero(np.isinf(mean)).tolist():
            skipped.add("means of log-probs that are infinite", place(i))
        good = np.isfinite(mean) & (mean <= 1e-6)
        columns[f"{what}_mean_logprob"] = pa.array(mean, mask=~good)
