"""Read the rows of other programs, whose fields are ours by other names; chats of OpenAI's API."""

import contextlib
import functools
import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records.columns import (
    LISTED,
    MOST_TRIAL,
    ORDERED,
    OUTCOMES,
    UNDECIDED,
    chat_text,
    truth,
)
from bayes_at_n.pipeline.records.flat import is_json
from bayes_at_n.pipeline.records.runs import model_name, run_config
from bayes_at_n.pipeline.records.source import (
    ONE_VALUE,
    Format,
    LeftOut,
    Records,
    Run,
    Source,
    json_lines,
    printable,
    start,
)

_MODEL = (None, "assistant")  # roles of the turns of a chat that the model wrote
_ENDS = {"max_tokens": "length", "model_length": "length", "unknown": None}
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_WORDS: dict[str, Any] = {word: word for word in UNDECIDED}
_WORDS |= {"C": True, "I": False, "N": "no_answer"}  # of inspect_ai; P, partial, is neither
_KEYS = re.compile(rb'"(messages|choices|custom_id)":')
# Further fields of a line that are names of `columns.COLUMNS`.
_FIELDS = "dataset task question_id trial seed outcome is_correct correct answer has_box problem"
_FIELDS += " gold gold_answer expected_answer ground_truth target"


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
    name = model_name(model, level=level)
    return run_config("imported", name, model).model.reasoning_end or "</think>"


def is_chat(path: Path, head: bytes) -> bool:
    """Return whether a file with this head has requests or answers of OpenAI's API."""
    return is_json(path, head) and bool(_KEYS.search(head))


def read_chats(source: Source) -> Records:
    """Yield the attempts of chats: each choice is a trial, equal messages are one question."""
    requests: dict[str, Any] = {}  # of batches, whose answers are separate, by custom_id
    questions: dict[str, Any] = {}  # names by prompts
    seen = set[int]()
    files = sorted(source.files, key=lambda path: b'"response":' in start(path))
    for place, line in (pair for path in files for pair in json_lines(path, source.skipped)):
        custom, response = str(line.get("custom_id", "")), _object(line.get("response"))
        request = _object(line.get("request")) or _object(line.get("body")) or line
        if "body" in line and "response" not in line:
            requests[custom] = request
            continue
        request, answer = requests.get(custom, request), response or line
        answer = _object(answer.get("body")) or answer
        messages, choices = request.get("messages", request.get("prompt")), answer.get("choices")
        messages = messages if isinstance(messages, list) else [messages]
        if choices is None and messages and _object(messages[-1]).get("role") == "assistant":
            messages, choices = messages[:-1], [{**line, "message": messages[-1]}]
        if not isinstance(choices, list) or not choices:
            other = answer.get("object") == "response"
            what = "answers of /v1/responses (not read)" if other else "requests without an answer"
            source.skipped.add(f"{what} left out", place)
            continue
        if requests and custom not in requests and messages == [None]:
            what = "answers without a request here: each custom_id is a question"
            source.skipped.add(what, place)
        prompt = "\n\n".join(str(chat_text(turn)) for turn in messages if turn)
        name = questions.setdefault(prompt or custom, custom or len(questions))
        extra = {"question_id": name, **_object(line.get("metadata")), **line}
        model_id = str(answer.get("model") or request.get("model") or "")
        common = {name: extra[name] for name in _FIELDS.split() if name in extra} | {
            "model": model_id,
            "reasoning_level": request.get("reasoning_effort"),
            "prompt": prompt,
        }
        if len(choices) > 1:  # what a line says of one answer is of none of several
            if OUTCOMES & common.keys():
                source.skipped.add(ONE_VALUE, place)
            common = {key: common[key] for key in common.keys() - ORDERED - LISTED}
        for number, choice in enumerate(choices):
            key = hash((str(answer.get("id")), number))
            if answer.get("id") and key in seen:
                source.skipped.add("duplicates left out", place)
                continue
            seen.add(key)
            try:
                model = source.model_of(model_id)
                yield place, common | _chosen(answer, _object(choice), len(choices), model)
            except (LookupError, ValueError, AttributeError) as error:
                source.skipped.damaged(place, one_line(error))
    if requests and not questions:
        raise UserError(f"{source.path}: holds requests only; put the answers beside them")


def _chosen(answer: Any, choice: dict[str, Any], choices: int, model: str) -> dict[str, Any]:
    """Return the fields of one choice of an answer."""
    usage = _object(answer.get("usage"))
    read = answered({"choices": [choice], "usage": usage}, {"model": model})
    probs, ids = _object(choice.get("logprobs")), choice.get("token_ids")
    values = probs.get("token_logprobs") or [one["logprob"] for one in probs.get("content") or ()]
    if choices > 1:  # `usage` covers all together
        read["num_completion_tokens"] = len(ids or values) or None
    return read | {"completion_token_list": ids, "completion_logprob_list": values or None}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
