"""Shared by the readers of other harnesses' logs: names of runs, metric values, answers."""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.columns import MOST_TRIAL, UNDECIDED, said, truth
from bayes_at_n.pipeline.records.source import ONE_VALUE, LeftOut, Records, Source, printable

_ENDS = {"max_tokens": "length", "model_length": "length", "unknown": None}
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_DAMAGE = (  # of hostile files, or where one beside them is missing
    *(ValueError, LookupError, TypeError, AttributeError, MemoryError, RecursionError),
    *(FileNotFoundError, pa.ArrowException),
)
_WORDS: dict[str, Any] = {word: word for word in UNDECIDED}
_WORDS |= {"C": True, "I": False, "N": "no_answer"}  # of inspect_ai; P, partial, is neither


# The outcome of every repeat of a sample, from its values by name of metric.
Outcomes = Callable[..., list[dict[str, Any]]]
Run = dict[str, Any]  # a log's names of task and model, and what else identifies it


def read(
    source: Source,
    runs: dict[Path, Run],
    records: Callable[[Path], Iterable[tuple[str, Any]]],
    convert: Callable[[Run, Any, Outcomes], Iterable[dict[str, Any]]],
) -> Records:
    """Yield the attempts that `convert` makes of every file's `records`, with their run's names.

    Of files with equal runs the last counts; others are named. Raises UserError: there is no such
    metric.
    """
    kept: dict[Hashable, Path] = {}
    for path, run in runs.items():
        if older := kept.get(tuple(run.values())):
            pair = source.skipped.file(older), source.skipped.file(path)
            note("import: {} is older than {} and skipped".format(*pair))
        kept[tuple(run.values())] = path
    for path in kept.values():
        names = {key: runs[path][key] for key in ("task", "model")}
        run = runs[path] | {"model": source.model_of(names["model"])}
        try:
            for place, record in records(path):
                scored = functools.partial(outcomes, source, place)
                try:
                    attempts = [*convert(run, record, scored)]
                except UserError:
                    raise
                except LeftOut as error:
                    source.skipped.add(str(error), place)
                except Exception as error:  # foreign records have any shape
                    source.skipped.damaged(place, printable(one_line(error)))
                else:
                    yield from ((place, names | attempt) for attempt in attempts)
        except _DAMAGE as error:
            place = f"{source.skipped.file(path)} ({printable(one_line(error))})"
            source.skipped.add("damaged files, of which the rest is skipped", place)


def outcomes(
    source: Source, place: str, values: Mapping[str, Any], repeats: int = 1
) -> list[dict[str, Any]]:
    """Return the outcome of every repeat of a sample: by the metric, if named, else by the first.

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
    return [{"outcome": one, "reason": name} for one in known]


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
        "text": said(message, reasoning_end(run["model"], run.get("level"))),
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
