"""What the readers of other harnesses' logs share: names of runs, values that count, answers."""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.row import truth
from bayes_at_n.pipeline.records.source import Records, Source, Troubles, shown

_ENDS = {"max_tokens": "length", "model_length": "length", "unknown": None}
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_WORDS = {"C": True, "I": False, "N": "no_answer"}  # inspect_ai's; P, a part of it, is neither


def read(
    source: Source,
    first: bool,
    troubles: Troubles,
    runs: dict[Path, dict[str, Any]],
    records: Callable[[Path], Iterable[tuple[str, Any]]],
    convert: Callable[[dict[str, Any], Any, str], Iterable[dict[str, Any]]],
) -> Records:
    """The attempts that `convert` makes of every file's `records`, with what its run is called.

    Of files whose runs are the same the last counts; others are named. Raises UserError:
    `dataset=` or `model=` is to name several; there is no such metric.
    """
    kept: dict[Hashable, Path] = {}
    for path, run in runs.items():
        if first and (older := kept.get(tuple(run.values()))):
            names = troubles.file(older), troubles.file(path)
            note("import: {} is older than {} and left out".format(*names))
        kept[tuple(run.values())] = path
    rename(source, [runs[path] for path in kept.values()])
    for path in kept.values():
        try:
            for place, record in records(path):
                try:
                    found = list(convert(runs[path], record, place))
                except UserError:
                    raise
                except Exception as error:  # what is foreign is of any shape
                    troubles.add("damaged rows skipped", f"{place} ({shown(one_line(error))})")
                    continue
                yield from ((place, attempt) for attempt in found)
        except (ValueError, LookupError, MemoryError, RecursionError, pa.ArrowException) as error:
            place = f"{troubles.file(path)} ({shown(one_line(error))})"
            troubles.add("damaged files, of which the rest is skipped", place)


def rename(source: Source, runs: Iterable[dict[str, Any]]) -> None:
    """Give the runs of a source the user's names of data set and model.

    Raises UserError: `dataset=` or `model=` is to name several.
    """
    cfg, runs = source.cfg, list(runs)
    for key, given, what in (("dataset", cfg.dataset, "task"), ("model", cfg.model, "model")):
        found = sorted({run[what] for run in runs})
        if given and len(found) > 1:
            raise UserError(
                f"{key}={shown(given[0])}: is one name, and {source.path} holds"
                f" {', '.join(map(shown, found[:10]))}; leave it out, or import one of them"
            )
        for run in runs:
            run[what] = [*given, run[what]][0]


def outcomes(
    values: Mapping[str, Any], metric: str | None, repeats: int, place: str, troubles: Troubles
) -> list[dict[str, Any]]:
    """The outcome of every repeat of a sample: by the metric of that name, else by the first.

    A single value for several repeats is of none of them in particular. Raises UserError: there are
    values, and none of that metric.
    """
    if metric is not None and values and metric not in values:
        there = ", ".join(map(shown, values))
        raise UserError(f"metric={shown(metric)}: {shown(place)} has no such value, but {there}")
    name = metric or next(iter(values), "no metric")
    if metric is None and len(values) > 1:
        others = ", ".join(map(shown, [*values][1:10]))
        troubles.add(f"values of {others} left out: {shown(name)} counts, or metric=NAME")
    value = values.get(name)
    each = value if isinstance(value, list) else [value]
    if len(each) != repeats:
        if value is not None:
            troubles.add("samples of several answers with one value: `grade` decides", place)
        each = [None] * repeats
    found = [_WORDS.get(one, truth(one)) if isinstance(one, str) else truth(one) for one in each]
    if any(known is None and one is not None for known, one in zip(found, each, strict=True)):
        troubles.add("values other than 0 and 1: not graded", place)
    return [{"outcome": one, "reason": name} for one in found]


def answered(output: Mapping[str, Any], run: Mapping[str, str]) -> dict[str, Any]:
    """The first choice of a model's output in the layout that inspect_ai and evalscope share."""
    if not output.get("choices"):
        return {}
    choice, usage = output["choices"][0], output.get("usage") or {}
    message = choice["message"]
    parts = () if isinstance(message["content"], str) else message["content"]
    of = (part.get("summary" if part.get("redacted") else "reasoning") for part in parts)
    thought = "".join(filter(None, of))
    made = usage.get("output_tokens", usage.get("completion_tokens"))
    asked = usage.get("total_tokens", 0) - (made or 0)  # with those of a cache
    end = choice.get("stop_reason", choice.get("finish_reason"))
    return {
        "text": joined(thought, words(message), run["model"], run.get("level")),
        "finish_reason": _ENDS.get(end, end),
        "num_prompt_tokens": max(asked, usage.get("input_tokens", 0)) or None,
        "num_completion_tokens": made,
    }


def words(message: Any) -> Any:
    """The text of a message, or of a plain prompt; of several parts those that are text."""
    content = message.get("content") if isinstance(message, dict) else message
    if not isinstance(content, list):
        return content
    return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))


def problem(row: Any) -> str | None:
    """The problem in a row of a data set, by usual names; None where it has none."""
    texts = (row.get(name) for name in _PROBLEM) if isinstance(row, dict) else ()
    return next((text for text in texts if isinstance(text, str)), None)


def joined(reasoning: str | None, text: str, model: str, level: str | None = None) -> str:
    """Reasoning that a log holds apart, before the answer, as our runs of that model store it.

    >>> joined("2 + 2 is 4.", "4", "any"), joined(None, "4", "any")
    ('2 + 2 is 4.</think>4', '4')
    """
    return f"{reasoning}{_end(model, level)}{text}" if reasoning and text else reasoning or text


@functools.cache
def _end(model: str, level: str | None) -> str:
    name = names.model_name(model, level=level)
    return names.run_config("imported", name, model).model.reasoning_end or "</think>"
