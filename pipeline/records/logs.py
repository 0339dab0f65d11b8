"""Read the rows of other programs, whose fields are ours by other names."""

import contextlib
import functools
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.columns import MOST_TRIAL, UNDECIDED, chat_text, truth
from bayes_at_n.pipeline.records.source import (
    ONE_VALUE,
    Format,
    LeftOut,
    Records,
    Run,
    Source,
    printable,
)

_MODEL = (None, "assistant")  # roles of the turns of a chat that the model wrote
_ENDS = {"max_tokens": "length", "model_length": "length", "unknown": None}
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_WORDS: dict[str, Any] = {word: word for word in UNDECIDED}
_WORDS |= {"C": True, "I": False, "N": "no_answer"}  # of inspect_ai; P, partial, is neither


def looks(form: Format, path: Path, head: bytes) -> bool:
    """Return whether a file with this head has records of a kind, or is a zip of one that may."""
    if form.looks is not None or not any(map(path.match, form.pattern.split())):
        return bool(form.looks and form.looks(path, head))
    if head[:4] == b"PK\x03\x04":
        return head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".json")
    keys = ([f'"{key}":'.encode() for key in one.split("|")] for one in form.keys.split())
    return all(any(key in head for key in one) for one in keys)


def read(source: Source) -> Records:
    """Yield the attempts of all files; of files with equal runs the last counts.

    Raises UserError: a row lacks the metric.
    """
    form, runs, kept = source.form, dict[Path, Run](), dict[Hashable, Path]()
    for path in sorted(source.files):
        with _damage(source, path):
            if (run := form.run(path)) is not None:
                runs[path] = {"task": "", "model": "", "path": str(path)} | run
    if not runs and not source.skipped.counts:
        raise UserError(f"{source.path}: predictions only; import reviews/ beside them, too")
    for path in sorted(runs, key=lambda path: runs[path].pop("order", ())):
        if older := kept.get(tuple(runs[path].values())):
            pair = source.skipped.file(older), source.skipped.file(path)
            note("import: {} is older than {} and skipped".format(*pair))
        kept[tuple(runs[path].values())] = path
    for path in kept.values():
        run = runs[path] | {"metric": source.cfg.source.metric}
        with _damage(source, path):
            for place, row in form.rows(source, path):
                try:
                    attempt = _attempt(source, run, place, row)
                except UserError:
                    raise
                except LeftOut as error:
                    source.skipped.add(str(error), place)
                except Exception as error:  # foreign records have any shape
                    source.skipped.damaged(place, one_line(error))
                else:
                    yield place, attempt


@contextlib.contextmanager
def _damage(source: Source, path: Path) -> Iterator[None]:
    """Count a file of which the rest cannot be read, as it is hostile or lacks one beside it."""
    try:
        yield
    except (UserError, GeneratorExit):
        raise
    except Exception as error:  # parsers may raise anything on hostile bytes
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        place = f"{source.skipped.file(path)} ({one_line(error)})"
        source.skipped.add("damaged files, of which the rest is skipped", place)


def _attempt(source: Source, run: Run, place: str, row: Any) -> dict[str, Any]:
    form, model, metric = source.form, source.model_of(run["model"]), run["metric"]
    values = form.values(run, row)
    fields = (field.split("=") for field in form.fields.split())
    attempt: dict[str, Any] = {ours: value_at(row, theirs) for ours, theirs in fields}
    attempt |= form.more(run | {"model": model}, row)
    attempt["prompt"], text = chat_text(attempt.get("prompt")), attempt.get("text")
    if isinstance(text, list):  # of a chat, what the model wrote
        text = [t for t in text if not isinstance(t, Mapping) or t.get("role") in _MODEL] or None
    end = reasoning_end(str(model or attempt.get("model") or ""))
    text, thoughts = chat_text(text, end), attempt.pop("reasoning", None)
    if isinstance(text, list) and isinstance(thoughts, list):
        pairs = zip(thoughts, text, strict=True)
        text = [chat_text({"reasoning": thought, "content": one}, end) for thought, one in pairs]
    elif isinstance(text, str) and isinstance(thoughts, str):
        text = chat_text({"reasoning": thoughts, "content": text}, end)
    attempt["text"] = text
    if attempt.get("question") is None and not attempt.get("problem"):
        attempt["problem"] = attempt["prompt"]
    if metric is not None and metric in row:
        values = {metric: row[metric]} | values
    repeats = len(text) if isinstance(text, list) else 1
    attempt["reason"], outcomes = _outcomes(source, place, values, repeats)
    attempt["outcome"] = outcomes if isinstance(text, list) else outcomes[0]
    return attempt | {key: name for key in ("task", "model") if (name := run[key])}


def value_at(row: Any, path: str) -> Any:
    """Return the value at the first of several paths that has one.

    >>> value_at({"a": {"b": [1, 2]}}, "x|a.b.-1"), value_at({"a": [1]}, "a.b")
    (2, None)
    """
    for one in path.split("|"):
        value = row
        for key in one.split("."):
            if isinstance(value, list) and key.lstrip("-").isdecimal():
                value = [*value[int(key) :], None][0]
            else:
                value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _outcomes(
    source: Source, place: str, values: Mapping[str, Any], repeats: int
) -> tuple[str, list[Any]]:
    """Return the metric, if not named the first, and by it the outcome of every repeat.

    A single value for several repeats belongs to none of them. Raises UserError: there are values,
    but none of that metric. ValueError: over MOST_TRIAL repeats.
    """
    if repeats > MOST_TRIAL:
        raise ValueError(f"{repeats} answers; at most {MOST_TRIAL} are read")
    metric = source.cfg.source.metric
    if metric is not None and values and metric not in values:
        others = ", ".join(map(printable, values))
        what = f"metric={printable(metric)}: {printable(place)} has no such value"
        raise UserError(f"{what}, but {others}")
    name = metric or next(iter(values), "no metric")
    if metric is None and len(values) > 1:
        others = ", ".join(map(printable, [*values][1:10]))
        source.skipped.add(f"values of {others} left out: {printable(name)} counts, or metric=NAME")
    value = values.get(name)
    each = value if isinstance(value, list) else [value]
    if len(each) != repeats:
        if value is not None:
            source.skipped.add(ONE_VALUE, place)
        each = [None] * repeats
    known = [_WORDS.get(one, truth(one)) if isinstance(one, str) else truth(one) for one in each]
    if any(a is None and b is not None for a, b in zip(known, each, strict=True)):
        source.skipped.add("values other than 0 and 1: not graded", place)
    return name, known


def answered(output: Mapping[str, Any], run: Mapping[str, str]) -> dict[str, Any]:
    """Return the first choice of an output in the layout of OpenAI, inspect_ai and evalscope.

    Raises LookupError, ValueError or AttributeError: it has no text, or another layout.
    """
    if not output.get("choices"):
        return {}
    choice, usage = output["choices"][0], output.get("usage") or {}
    message = choice.get("message") or {"content": choice["text"]}
    sampled = usage.get("output_tokens", usage.get("completion_tokens"))
    prompt = (usage.get("total_tokens") or 0) - (sampled or 0)  # including cached ones
    known = usage.get("input_tokens", usage.get("prompt_tokens")) or 0
    end = choice.get("finish_reason") or choice.get("stop_reason")  # vLLM's latter is a token
    return {
        "text": chat_text(message, reasoning_end(run["model"], run.get("level"))),
        "finish_reason": _ENDS.get(end, end),
        "num_prompt_tokens": max(prompt, known) or None,
        "num_completion_tokens": sampled,
    }


def problem(row: Any) -> str | None:
    """Return the problem in a dataset's row, under usual names; None if it has none."""
    texts = (row.get(name) for name in _PROBLEM) if isinstance(row, dict) else ()
    return next((text for text in texts if isinstance(text, str)), None)


@functools.cache
def reasoning_end(model: str, level: str | None = None) -> str:
    """Return what ends the reasoning of a model, by its name in records."""
    name = names.model_name(model, level=level)
    return names.run_config("imported", name, model).model.reasoning_end or "</think>"
