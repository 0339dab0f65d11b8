"""One attempt a line: records of outcomes or categories, as CSV or JSON Lines."""

import csv
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.base.errors import UserError
from pipeline.config.imports import ImportConfig
from pipeline.imports import source as sources
from pipeline.imports import values
from pipeline.imports.source import Source
from pipeline.imports.troubles import Troubles, shown

MOST_TRIAL = 100_000
MOST_CATEGORIES = 100
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
_KNOWN = {name for names in _NAMES.values() for name in names}
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
    csv.field_size_limit(values.MOST_TEXT)
    header: list[str] = []
    for where, cells, damage in _records(sources.lines(source.files[0], troubles)):
        if not header:
            if damage:
                raise UserError(f"{where}: no CSV ({damage})")
            header = [name.strip() for name in cells]
            _check_names(source.path, header)
            continue
        if not damage and len(cells) != len(header):
            damage = f"{len(cells)} of {len(header)} columns"
        if damage:
            troubles.add("damaged rows skipped", f"{where} ({damage})")
            continue
        yield from _sound(
            _row(dict(zip(header, cells, strict=True)), cfg, task, model, where), where, troubles
        )


def read_jsonl(
    source: Source, cfg: ImportConfig, task: str, model: str, troubles: Troubles
) -> Iterator[Row]:
    """The objects of a JSON Lines file.

    Raises:
        UserError: no object says which question, or none what came of it.
    """
    first: list[str] | None = None
    known: set[str] = set()
    for where, found in sources.json_lines(source.files[0], troubles):
        first = list(found) if first is None else first
        known |= _KNOWN & found.keys()
        yield from _sound(_row(found, cfg, task, model, where), where, troubles)
    _check_names(source.path, sorted(known) or first or [])


def _records(lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, list[str], str]]:
    """Place of the first line, cells, and what is wrong with them, of every record of a CSV file.

    Where a record cannot be parsed its first line alone is lost: a stray quote must not swallow
    the lines that follow. They are parsed again, at most once each: whatever an open quote took in
    has no other quote that would open.
    """
    again: deque[tuple[str, bytes]] = deque()
    held: list[tuple[str, bytes]] = []  # of the record that is parsed
    size, damaged = 0, ""

    def fed() -> Iterator[str]:
        nonlocal size, damaged
        while (one := again.popleft() if again else next(lines, None)) is not None:
            held.append(one)
            size += len(one[1])
            if size > sources.MOST_LINE:
                raise csv.Error("longer than any record")
            text, damage = _decoded(one[1])
            damaged = damaged or damage
            yield text

    reader = csv.reader(fed(), strict=True)
    while True:
        held.clear()
        size, damaged = 0, ""
        try:
            cells = next(reader, None)
        except csv.Error as error:
            why = str(error).replace("unexpected end of data", "a quote that is not closed")
            yield held[0][0], [], why
            again.extendleft(reversed(held[1:]))
            reader = csv.reader(fed(), strict=True)
            continue
        if cells is None:
            return
        if cells or damaged:
            yield held[0][0], cells, damaged


def _decoded(line: bytes) -> tuple[str, str]:
    """A line of CSV as text, and what is wrong with it."""
    if b"\0" in line:
        return line.replace(b"\0", b"").decode(errors="replace"), "a NUL"
    if not line:
        return "\n", "a line that was skipped"
    try:
        return line.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return line.decode(errors="replace"), "not UTF-8"


def _check_names(path: str, names: list[str]) -> None:
    there = set(names)
    said = ", ".join(map(shown, names[:20])) or "none"
    if twice := sorted(name for name in there & _KNOWN if names.count(name) > 1):
        raise UserError(f"{path}: column {twice[0]} is there twice; drop one")
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
    number = values.named(told["question"])
    if number is None:
        return "no question"
    if not (told["task"] or task) or not (told["model"] or model):
        return "no data set or no model: name it with dataset= or model="
    task = values.text(told["task"], values.MOST_ANSWER) or task
    model = values.text(told["model"], values.MOST_ANSWER) or model
    row = Row(task, model, number, place)
    for what, most in (("trial", MOST_TRIAL), ("seed", values.MOST_SEED)):
        if told[what] is not None:
            value = values.whole(told[what], most)
            if value is None:
                return f"{what} is no number"
            setattr(row, what, value)
    if told["category"] is not None:
        row.category = _category(told["category"], cfg)
        if row.category is None:
            return _no_category(told["category"], cfg)
    if told["outcome"] is not None:
        row.outcome = _outcome(told["outcome"])
        if row.outcome is None:
            return "no such outcome"
    for what in ("answer", "text", "gold", "problem", "prompt", "finish_reason"):
        setattr(row, what, values.text(told[what], values.MOST_TEXT))
    return row


def _sound(row: Row | str, where: str, troubles: Troubles) -> Iterator[Row]:
    if isinstance(row, str):
        troubles.add("damaged rows skipped", f"{where} ({row})")
    else:
        yield row


def _outcome(value: Any) -> str | None:
    if isinstance(value, str) and value.strip().lower() in _UNDECIDED:
        return value.strip().lower()
    right = values.truth(value)
    return None if right is None else "correct" if right else "wrong"


def _category(value: Any, cfg: ImportConfig) -> int | None:
    if isinstance(value, str) and value.strip() in cfg.category_names:
        return cfg.category_names.index(value.strip())
    most = len(cfg.category_names) or len(cfg.category_weights) or MOST_CATEGORIES
    number = values.whole(value)
    return number if number is not None and number < most else None


def _no_category(value: Any, cfg: ImportConfig) -> str:
    said = shown(str(value)[:40])
    if cfg.category_names:
        return f"category {said} is none of category_names"
    return f"no category {said}: texts need category_names=[...], worst first"
