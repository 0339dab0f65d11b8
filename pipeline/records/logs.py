"""What the readers of other harnesses' logs share: names of runs, values that count, answers."""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.columns import truth
from bayes_at_n.pipeline.records.source import Records, Source, printable

_ENDS = {"max_tokens": "length", "model_length": "length", "unknown": None}
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_WORDS = {"C": True, "I": False, "N": "no_answer"}  # inspect_ai's; P, a part of it, is neither


# The outcome of every repeat of a sample, from its values by name of metric.
Outcomes = Callable[..., list[dict[str, Any]]]
Run = dict[str, Any]  # what a log calls its task and model, and what tells it from others


class LeftOut(Exception):
    """A record that is no attempt; what such records are counted as."""


def read(
    source: Source,
    runs: dict[Path, Run],
    records: Callable[[Path], Iterable[tuple[str, Any]]],
    convert: Callable[[Run, Any, Outcomes], Iterable[dict[str, Any]]],
) -> Records:
    """Yield the attempts that `convert` makes of every file's `records`, with their run's names.

    Of files whose runs are the same the last counts; others are named. Raises UserError:
    `dataset=` or `model=` is to name several; there is no such metric.
    """
    kept: dict[Hashable, Path] = {}
    for path, run in runs.items():
        if source.first and (older := kept.get(tuple(run.values()))):
            pair = source.skipped.file(older), source.skipped.file(path)
            note("import: {} is older than {} and left out".format(*pair))
        kept[tuple(run.values())] = path
    rename(source, [runs[path] for path in kept.values()])
    for path in kept.values():
        try:
            for place, record in records(path):
                scored = functools.partial(outcomes, source, place)
                try:
                    attempts = [*convert(runs[path], record, scored)]
                except UserError:
                    raise
                except LeftOut as error:
                    source.skipped.add(str(error), place)
                except Exception as error:  # what is foreign is of any shape
                    source.skipped.damaged(place, printable(one_line(error)))
                else:
                    yield from ((place, runs[path] | attempt) for attempt in attempts)
        except (ValueError, LookupError, MemoryError, RecursionError, pa.ArrowException) as error:
            place = f"{source.skipped.file(path)} ({printable(one_line(error))})"
            source.skipped.add("damaged files, of which the rest is skipped", place)


def rename(source: Source, runs: Iterable[Run]) -> None:
    """Give the runs of a source the user's names of data set and model.

    Raises UserError: `dataset=` or `model=` is to name several.
    """
    cfg, runs = source.cfg, list(runs)
    for key, given, what in (("dataset", cfg.dataset, "task"), ("model", cfg.model, "model")):
        found = sorted({run[what] for run in runs})
        if given and len(found) > 1:
            raise UserError(
                f"{key}={printable(given[0])}: is one name, and {source.path} holds"
                f" {', '.join(map(printable, found[:10]))}; leave it out, or import one of them"
            )
        for run in runs:
            run[what] = [*given, run[what]][0]


def outcomes(
    source: Source, place: str, values: Mapping[str, Any], repeats: int = 1
) -> list[dict[str, Any]]:
    """Return the outcome of every repeat of a sample: by the metric, if named, else by the first.

    A single value for several repeats is of none of them in particular. Raises UserError: there are
    values, and none of that metric.
    """
    metric = source.cfg.source.metric
    if metric is not None and values and metric not in values:
        there = ", ".join(map(printable, values))
        what = f"metric={printable(metric)}: {printable(place)} has no such value"
        raise UserError(f"{what}, but {there}")
    name = metric or next(iter(values), "no metric")
    if metric is None and len(values) > 1:
        others = ", ".join(map(printable, [*values][1:10]))
        source.skipped.add(f"values of {others} left out: {printable(name)} counts, or metric=NAME")
    value = values.get(name)
    each = value if isinstance(value, list) else [value]
    if len(each) != repeats:
        if value is not None:
            source.skipped.add("samples of several answers with one value: `grade` decides", place)
        each = [None] * repeats
    known = [_WORDS.get(one, truth(one)) if isinstance(one, str) else truth(one) for one in each]
    if any(of is None and one is not None for of, one in zip(known, each, strict=True)):
        source.skipped.add("values other than 0 and 1: not graded", place)
    return [{"outcome": one, "reason": name} for one in known]


def answered(output: Mapping[str, Any], run: Mapping[str, str]) -> dict[str, Any]:
    """Return the first choice of an output in the layout that inspect_ai and evalscope share."""
    if not output.get("choices"):
        return {}
    choice, usage = output["choices"][0], output.get("usage") or {}
    message = choice["message"]
    parts = () if isinstance(message["content"], str) else message["content"]
    of = (part.get("summary" if part.get("redacted") else "reasoning") for part in parts)
    thought = "".join(filter(None, of))
    made = usage.get("output_tokens", usage.get("completion_tokens"))
    sent = usage.get("total_tokens", 0) - (made or 0)  # with those of a cache
    end = choice.get("stop_reason", choice.get("finish_reason"))
    return {
        "text": joined(thought, words(message), run["model"], run.get("level")),
        "finish_reason": _ENDS.get(end, end),
        "num_prompt_tokens": max(sent, usage.get("input_tokens", 0)) or None,
        "num_completion_tokens": made,
    }


def words(message: Any) -> Any:
    """Return the text of a message, or of a plain prompt; of several parts those that are text."""
    content = message.get("content") if isinstance(message, dict) else message
    if not isinstance(content, list):
        return content
    return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))


def problem(row: Any) -> str | None:
    """Return the problem in a row of a data set, by usual names; None where it has none."""
    texts = (row.get(name) for name in _PROBLEM) if isinstance(row, dict) else ()
    return next((text for text in texts if isinstance(text, str)), None)


def joined(reasoning: str | None, text: str, model: str, level: str | None = None) -> str:
    """Return reasoning that a log holds apart, and the answer, as our runs of the model store it.

    >>> joined("2 + 2 is 4.", "4", "any"), joined(None, "4", "any")
    ('2 + 2 is 4.</think>4', '4')
    """
    return f"{reasoning}{_end(model, level)}{text}" if reasoning and text else reasoning or text


@functools.cache
def _end(model: str, level: str | None) -> str:
    name = names.model_name(model, level=level)
    return names.run_config("imported", name, model).model.reasoning_end or "</think>"
