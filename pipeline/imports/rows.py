"""Records of outcomes or categories, one a row, as CSV, JSON Lines or arrays in an NPZ."""

import csv
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UserError
from pipeline.imports import columns as convert
from pipeline.imports import source as sources
from pipeline.imports.settings import ImportConfig
from pipeline.imports.source import Source
from pipeline.imports.troubles import Troubles, shown

MOST_TRIAL = 100_000
MOST_CATEGORIES = 100
_MOST_CELLS = 20_000_000  # of an NPZ
# Which names of columns stand for what; the first that is there counts.
_NAMES = {
    "task": ("dataset", "task"),
    "model": ("model", "model_key", "model_name", "run"),
    "question": ("question_id", "question", "data_id", "doc_id"),
    "trial": ("trial", "sample", "repeat"),
    "seed": ("seed",),
    "outcome": ("outcome", "is_correct", "correct", "exact_match"),
    "category": ("category", "label"),
    "answer": ("answer", "extracted_answer"),
    "text": ("text", "completion", "response"),
    "gold": ("gold", "ground_truth", "target"),
    "problem": ("problem",),
    "prompt": ("prompt",),
    "finish_reason": ("finish_reason",),
}
_UNDECIDED = ("no_answer", "unparsable", "timeout")  # outcomes beside correct and wrong


@dataclass
class Row:
    """One attempt as a record tells it; None for what it does not say."""

    task: str
    model: str
    question: int | str
    place: str
    trial: int | None = None
    seed: int | None = None
    outcome: str | None = None
    category: int | None = None
    answer: str | None = None
    text: str | None = None
    gold: str | None = None
    problem: str | None = None
    prompt: str | None = None
    finish_reason: str | None = None
    metric: str = "outcome"


def read_csv(
    source: Source, cfg: ImportConfig, task: str, model: str, troubles: Troubles
) -> Iterator[Row]:
    """The rows of a CSV file with a header.

    Raises:
        UserError: no column says which question, or what came of it.
    """
    csv.field_size_limit(convert.MOST_TEXT)
    reader = csv.reader(_decoded(source.files[0], troubles))
    place = source.files[0].name
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise UserError(f"{source.path}: no CSV ({error})") from error
    _check_names(source.path, header)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            troubles.add("damaged rows skipped", f"{place}, line {reader.line_num} ({error})")
            continue
        if cells is None:
            return
        where = f"{place}, line {reader.line_num}"
        if not cells:
            continue
        if len(cells) != len(header):
            troubles.add("damaged rows skipped", f"{where} ({len(cells)} of {len(header)} columns)")
            continue
        row = _row(dict(zip(header, cells, strict=True)), cfg, task, model, where)
        yield from _sound(row, where, troubles)


def read_jsonl(
    source: Source, cfg: ImportConfig, task: str, model: str, troubles: Troubles
) -> Iterator[Row]:
    """The objects of a JSON Lines file.

    Raises:
        UserError: the first object does not say which question, or what came of it.
    """
    checked = False
    for where, found in sources.json_lines(source.files[0], troubles):
        if not checked:
            _check_names(source.path, list(found))
            checked = True
        yield from _sound(_row(found, cfg, task, model, where), where, troubles)


def read_npz(
    source: Source, cfg: ImportConfig, task: str, models: list[str], troubles: Troubles
) -> Iterator[Row]:
    """Arrays (models, questions, trials) or (questions, trials), a key a task, -1 or NaN owed.

    Names of models are those given, else the array `models`; ids of questions the array
    `question_ids`. The `matrix.npz` of a run folder is such a file.

    Raises:
        UserError: it is no such file, holds pickled objects, or the names do not fit.
    """
    arrays = _arrays(source.files[0])
    labels = {n: [str(x) for x in arrays.pop(n).ravel()] for n in ("models", "question_ids")
              if n in arrays and arrays[n].dtype.kind in "US"}  # fmt: skip
    ids = labels.get("question_ids", [])
    words = {name: a for name, a in arrays.items() if a.dtype.kind in "US"}
    tensors = {name: a for name, a in arrays.items() if a.dtype.kind in "biuf" and a.ndim in (2, 3)}
    for name in arrays.keys() - tensors.keys() - words.keys() - {"names", "weights"}:
        troubles.add("arrays skipped, not (models, questions, trials)", name)
    if not tensors:
        raise UserError(f"{source.path}: holds no array of (models, questions, trials)")
    if sum(a.size for a in tensors.values()) > _MOST_CELLS:
        raise UserError(f"{source.path}: over {_MOST_CELLS} outcomes; split it")
    for name, array in tensors.items():
        cube = array if array.ndim == 3 else array[None]
        called = models or labels.get("models", [])
        called = called or [f"model-{i + 1:02d}" for i in range(len(cube))]
        if len(called) != len(cube) or len(set(called)) < len(called):
            raise UserError(
                f"{source.path}: {name} has {len(cube)} models and {len(called)} names; give one"
                " each with model=a,b,..."
            )
        fits = len(ids) == cube.shape[1] and len(set(ids)) == len(ids)
        own = name in ("R", "arr_0")  # names that say nothing
        yield from _cells(
            cube, task if own and task else name, called, ids if fits else [], cfg, troubles
        )


def _cells(
    cube: Any, task: str, models: list[str], ids: list[str], cfg: ImportConfig, troubles: Troubles
) -> Iterator[Row]:
    values = np.asarray(cube, np.float64)
    owed = ~np.isfinite(values) | (values < 0)
    most = len(cfg.category_names) or len(cfg.category_weights) or MOST_CATEGORIES
    as_category = bool(cfg.category_names or cfg.category_weights or (values[~owed] > 1).any())
    for at in zip(*np.nonzero(~owed), strict=True):
        model, question, trial = map(int, at)
        value = float(values[at])
        place = f"{task}[{model}, {question}, {trial}]"
        if not value.is_integer() or value >= most:
            troubles.add("values skipped, no outcome and no category", f"{place} = {value:g}")
            continue
        number: int | str = ids[question] if ids else question
        row = Row(task, models[model], number, place, trial=trial, metric=task)
        if as_category:
            row.category = int(value)
        else:
            row.outcome = "correct" if value else "wrong"
        yield row


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as file:
            size = sum(one.file_size for one in file.infolist())
        if size > 8 * _MOST_CELLS + (1 << 20):
            raise UserError(f"{path}: unpacks to {size} bytes; split it")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError, MemoryError) as error:
        why = " ".join(str(error).split())[:120]
        pickled = "allow_pickle" in why
        remedy = "save plain arrays: pickled objects are never loaded" if pickled else why
        raise UserError(f"{path}: no NPZ that can be read: {remedy}") from error


def _decoded(path: Path, troubles: Troubles) -> Iterator[str]:
    for place, line in sources.lines(path, troubles):
        if b"\0" in line:
            troubles.add("damaged rows skipped", f"{place} (a NUL)")
            continue
        try:
            yield line.decode("utf-8-sig")
        except UnicodeDecodeError:
            troubles.add("damaged rows skipped", f"{place} (not UTF-8)")


def _check_names(path: str, names: list[str]) -> None:
    there = set(names)
    said = ", ".join(map(shown, names[:20])) or "none"
    for what, wanted in (
        ("a question", _NAMES["question"]),
        ("an outcome", (*_NAMES["outcome"], *_NAMES["category"])),
    ):
        if not there & set(wanted):
            raise UserError(
                f"{path}: no column for {what} ({', '.join(wanted)}); it has {said}. Rename yours"
            )


def _row(
    found: Mapping[str, Any], cfg: ImportConfig, task: str, model: str, place: str
) -> Row | str:
    """A record as a row, or in words what is wrong with it."""
    told = {what: next((found[n] for n in ns if n in found), None) for what, ns in _NAMES.items()}
    told = {what: None if value == "" else value for what, value in told.items()}
    number = convert.named(told["question"])
    if number is None:
        return "no question"
    if not (told["task"] or task) or not (told["model"] or model):
        return "no data set or no model: name it with dataset= or model="
    row = Row(str(told["task"] or task), str(told["model"] or model), number, place)
    for what in ("trial", "seed"):
        if told[what] is not None:
            value = convert.whole(told[what])
            if value is None or (what == "trial" and value >= MOST_TRIAL):
                return f"{what} is no number"
            setattr(row, what, value)
    if told["category"] is not None:
        row.category = _category(told["category"], cfg)
        if row.category is None:
            return "no such category"
    if told["outcome"] is not None:
        row.outcome = _outcome(told["outcome"])
        if row.outcome is None:
            return "no such outcome"
    for what in ("answer", "text", "gold", "problem", "prompt", "finish_reason"):
        value = told[what]
        if isinstance(value, str) and len(value) <= convert.MOST_TEXT and _storable(value):
            setattr(row, what, value)
    return row


def _sound(row: Row | str, place: str, troubles: Troubles) -> Iterator[Row]:
    if isinstance(row, str):
        troubles.add("damaged rows skipped", f"{place} ({row})")
    else:
        yield row


def _outcome(value: Any) -> str | None:
    if isinstance(value, str) and value.strip().lower() in _UNDECIDED:
        return value.strip().lower()
    right = convert.truth(value)
    return None if right is None else "correct" if right else "wrong"


def _category(value: Any, cfg: ImportConfig) -> int | None:
    if isinstance(value, str) and value.strip() in cfg.category_names:
        return cfg.category_names.index(value.strip())
    most = len(cfg.category_names) or len(cfg.category_weights) or MOST_CATEGORIES
    number = convert.whole(value)
    return number if number is not None and number < most else None


def _storable(text: str) -> bool:
    """Half a surrogate pair, which JSON can hold, cannot be stored."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
