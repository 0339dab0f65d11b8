"""Logs of inspect_ai, `.eval` and JSON, of version 2: an epoch of a sample is a trial.

Its own classes read what a log says, whatever version wrote it. Files are opened here, sample by
sample: its readers hold a JSON log whole, and unpack a zip without asking how much it will be.
"""

import functools
import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.base import jsonl, limits
from pipeline.base.console import note, warn
from pipeline.base.errors import UserError, one_line
from pipeline.config import compose
from pipeline.imports import logs, names
from pipeline.imports.row import truth
from pipeline.imports.source import Records, Source, Troubles, shown

_VERSION = 2
_MOST, _RATIO = (
    256 << 20,
    256,
)  # bytes that a zip may say it unpacks to: so many, and times its size
_ENDS = {"max_tokens": "length", "model_length": "length", "unknown": None}
_OUTCOMES = {"C": True, "I": False, "N": "no_answer"}  # P, a part of the credit, is neither
_UNUSED = ("events", "events_data", "timelines", "store", "error_retries")  # most of a sample


def looks(path: Path, head: bytes) -> bool:
    """Whether a file that begins so is a log: a zip of JSON files, or JSON with `eval`."""
    if head[:4] == b"PK\x03\x04":
        return head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".json")
    start = head[:4096]
    keys = [start.find(key) for key in (b'"version"', b'"status"', b'"eval"')]
    log = start.lstrip()[:1] == b"{" and 0 < keys[0] < keys[1] < keys[2]
    return log or path.suffix == ".eval"


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The samples of all logs; of several logs of one folder, task and model the latest counts.

    Raises UserError: inspect_ai is not installed; no log can be read; dataset= or model= is to name
    several; a log has no such metric.
    """
    EvalLog, why, heads = _library().EvalLog, "", dict[Path, Any]()
    for path in source.files:
        try:
            head = EvalLog.model_validate(next(_parts(path, Troubles()))[1])
            if head.version > _VERSION:
                raise ValueError(f"version {head.version} of the log's format")
            heads[path] = head
        except Exception as error:  # foreign parsers on hostile bytes raise whatever they like
            why = f"{path.name} ({shown(one_line(error))})"
            troubles.add("damaged files skipped", why)
    if not heads:
        raise UserError(f"{source.path}: no log of inspect_ai can be read: {why}; fetch it again")
    runs = {path: _run(head) for path, head in heads.items()}
    order = sorted(heads, key=lambda p: (heads[p].status == "success", heads[p].eval.created))
    paths = logs.latest(order, lambda path: (path.parent, *runs[path].values()), first)
    logs.rename(source, [runs[path] for path in paths])
    for path in paths:
        if first and heads[path].status != "success":
            warn(f"import: {path.name}: its status is {heads[path].status}; what is there counts")
        ids, metric = heads[path].eval.dataset.sample_ids or [], source.cfg.source.metric
        counted = min((id for id in ids if isinstance(id, int)), default=0) == 1
        for place, attempt in _attempts(path, runs[path], metric, first, troubles):
            if counted and isinstance(attempt["question"], int):
                attempt["question"] -= 1  # the library's own ids count from 1, records from 0
            yield place, attempt | runs[path]


@functools.cache
def _library() -> Any:
    try:
        import inspect_ai.log  # which teaches zipfile the compression of `.eval`
    except ImportError as error:
        raise UserError(
            f'logs of inspect_ai are read with it ({error}): pip install "bayes-at-n[inspect]"'
        ) from error
    return inspect_ai.log


def _run(head: Any) -> dict[str, str]:
    """What a log calls its task, its model and the effort to reason."""
    spec = head.eval
    called = (spec.task.rpartition("/")[2], (spec.dataset.name or "").rpartition("/")[2])
    known = (name for name in called if names.dataset_name(name) in compose.choices("dataset"))
    owner = spec.model.split("/")[-2:] if spec.model.count("/") > 1 else [spec.model]  # no provider
    configs = (head.plan.config, spec.model_generate_config)
    efforts = (config.reasoning_effort for config in configs)
    return {
        "task": next(known, called[0]),
        "model": "/".join(owner),
        "level": next(filter(None, efforts), "") or "",
    }


def _parts(path: Path, troubles: Troubles) -> Iterator[tuple[str, Any]]:
    """What a log says of itself, and then of its samples, one by one; damaged ones are counted.

    Raises ValueError: no such log, or one that unpacks to more than it says.
    """
    with path.open("rb") as file:
        packed = file.read(4) == b"PK\x03\x04"
    if packed:
        yield from _unpacked(path, troubles)
        return
    parts, head = jsonl.parts(path, "samples"), dict[str, Any]()
    for key, value in parts:
        if key == "samples":
            parts = itertools.chain([(key, value)], parts)
            break
        head[key] = value
    yield path.name, head
    for number, (_, sample) in enumerate(part for part in parts if part[0] == "samples"):
        yield f"{path.name}, sample {number}", sample


def _unpacked(path: Path, troubles: Troubles) -> Iterator[tuple[str, Any]]:
    size = path.stat().st_size
    with limits.room(size):
        log = zipfile.ZipFile(path)
    with log:
        members = log.infolist()
        unpacked = sum(member.file_size for member in members)
        if unpacked > _MOST + _RATIO * size or sum(m.compress_size for m in members) > size:
            raise ValueError(f"says that it unpacks to {unpacked} bytes")
        of = {member.filename: member for member in members}  # of two the last, as its readers do
        head = of.get("header.json") or of.get("_journal/start.json")
        if head is None:
            raise ValueError("has no header.json")
        samples = [of[name] for name in of if name.startswith("samples/")]
        for member in (head, *samples):
            place = f"{path.name}, {member.filename}"
            try:
                if member.file_size > jsonl.MOST_LINE:
                    raise ValueError(f"over {jsonl.MOST_LINE >> 20} MiB")
                with limits.room(member.file_size):
                    text = log.read(member)
                part = jsonl.value(text)
            except MemoryError as error:  # it is hostile; so are the others
                raise ValueError(f"{place} unpacks to more than it says") from error
            except Exception as error:
                if member is head:
                    raise
                troubles.add("damaged rows skipped", f"{place} ({one_line(error)})")
                continue
            yield place, part


def _samples(path: Path, troubles: Troubles) -> Iterator[tuple[str, Any]]:
    """The samples of one log as the library's own, as far as it is sound."""
    parts = _parts(path, troubles)
    next(parts)
    while True:
        try:
            place, data = next(parts)
        except StopIteration:
            return
        except (ValueError, MemoryError) as error:
            place = f"{path.name} ({shown(one_line(error))})"
            troubles.add("damaged files, of which the rest is skipped", place)
            return
        try:
            sent = itertools.takewhile(lambda m: m["role"] != "assistant", data.get("messages", ()))
            data = {**data, "messages": list(sent)}
            for name in _UNUSED:
                data.pop(name, None)
            sample = _library().EvalSample.model_validate(data)
        except Exception as error:  # as in `read`
            troubles.add("damaged rows skipped", f"{place} ({shown(one_line(error))})")
            continue
        yield place, sample


def _attempts(
    path: Path, run: dict[str, str], metric: str | None, first: bool, troubles: Troubles
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The samples of one log as attempts, those that came to an end."""
    given = metric
    for place, sample in _samples(path, troubles):
        scores = _values(sample)
        if sample.invalidation or (not scores and (sample.error or not sample.output.choices)):
            troubles.add("samples invalidated, ended by an error or without an answer", place)
            continue
        if scores and metric is None:
            metric = next(iter(scores))
            if first and len(scores) > 1:
                others = ", ".join(map(shown, [*scores][1:]))
                note(f"import: {path.name}: {shown(metric)} counts, not {others}; metric=NAME")
        if scores and given:
            logs.check_metric(given, scores, place)
        value, answer = scores.get(metric or "", (None, None))
        outcome = _OUTCOMES.get(value) if isinstance(value, str) else None
        outcome = truth(value) if outcome is None else outcome
        if outcome is None and value is not None:
            troubles.add("values that are neither 0 nor 1: not graded", place)
        attempt = {"question": sample.id, "trial": sample.epoch - 1, "outcome": outcome}
        attempt |= {"answer": answer, "reason": metric or "no score", **_texts(sample, run)}
        yield place, attempt


def _values(sample: Any) -> dict[str, tuple[Any, str | None]]:
    """Value and answer by scorer; the values of a scorer of several as SCORER/NAME."""
    values = {}
    for scorer, score in (sample.scores or {}).items():
        several = score.value if isinstance(score.value, dict) else {"": score.value}
        for name, value in several.items():
            values[f"{scorer}/{name}" if name else scorer] = value, score.answer
    return values


def _texts(sample: Any, run: dict[str, str]) -> dict[str, Any]:
    """What was asked and what came back."""
    asked, target = sample.input, sample.target
    texts = {
        "problem": asked if isinstance(asked, str) else asked[-1].text if asked else None,
        "prompt": "\n\n".join(message.text for message in sample.messages),
        "gold": target if isinstance(target, str) else next(iter(target), None),
    }
    if not sample.output.choices:
        return texts
    choice, usage = sample.output.choices[0], sample.output.usage
    content = choice.message.content
    parts = [] if isinstance(content, str) else [p for p in content if p.type == "reasoning"]
    reasoning = "".join(part.reasoning or part.summary or "" for part in parts)
    texts["text"] = logs.joined(reasoning, choice.message.text, run["model"], run["level"])
    end = "length" if sample.limit else choice.stop_reason
    texts["finish_reason"] = _ENDS.get(end, end)
    if usage:
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        texts["num_prompt_tokens"] = usage.input_tokens + cached
        texts["num_completion_tokens"] = usage.output_tokens
    if choice.logprobs:
        texts["completion_logprob_list"] = [token.logprob for token in choice.logprobs.content]
    return texts
