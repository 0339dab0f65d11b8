"""Logs of inspect_ai, `.eval` and JSON, of version 2: an epoch of a sample is a trial.

Its own classes read what a log says, whatever version wrote it. Files are opened here, sample by
sample: its readers hold a JSON log whole, and unpack a zip without asking how much it will be.
"""

import contextlib
import functools
import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, install, one_line
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.records import logs, names
from bayes_at_n.pipeline.records.row import UNDECIDED
from bayes_at_n.pipeline.records.source import Records, Source, Troubles, shown

_VERSION = 2
_MOST, _RATIO = 256 << 20, 256  # bytes that a zip may unpack to: so many, and times its size
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
    several; a sample has no such metric.
    """
    try:
        from inspect_ai.log import EvalLog, EvalSample  # zipfile learns their compression, too
    except ImportError as error:
        how = f"logs of inspect_ai are read with it ({error}): {install('inspect')}"
        raise UserError(how) from error
    why, heads = "", dict[Path, Any]()
    for path in source.files:
        try:
            head = EvalLog.model_validate(next(_records(path)))
            if head.version > _VERSION:
                raise ValueError(f"version {head.version} of the log's format")
            heads[path] = head
        except Exception as error:  # foreign parsers on hostile bytes raise whatever they like
            why = f"{troubles.file(path)} ({shown(one_line(error))})"
            troubles.add("damaged files skipped", why)
    if not heads:
        raise UserError(f"{source.path}: no log of inspect_ai can be read: {why}; fetch it again")
    order = sorted(heads, key=lambda p: (heads[p].status == "success", heads[p].eval.created))

    def samples(path: Path) -> Iterator[tuple[str, Any]]:
        if first and heads[path].status != "success":
            what = f"its status is {heads[path].status}; what is there counts"
            warn(f"import: {troubles.file(path)}: {what}")
        for number, sample in enumerate(itertools.islice(_records(path), 1, None)):
            yield f"{troubles.file(path)}, sample {number}", sample

    runs = {path: _run(path, heads[path]) for path in order}
    convert = functools.partial(_attempt, EvalSample, source.cfg.source.metric, troubles)
    yield from logs.read(source, first, troubles, runs, samples, convert)


def _run(path: Path, head: Any) -> dict[str, Any]:
    """What a log calls its task, its model and the effort to reason."""
    spec = head.eval
    called = (spec.task.rpartition("/")[2], (spec.dataset.name or "").rpartition("/")[2])
    known = (name for name in called if names.dataset_name(name) in compose.files("dataset"))
    owner = spec.model.split("/")[-2:] if spec.model.count("/") > 1 else [spec.model]  # no provider
    effort = head.plan.config.reasoning_effort or spec.model_generate_config.reasoning_effort
    ids = (id for id in spec.dataset.sample_ids or [] if isinstance(id, int))
    return {
        "task": next(known, called[0]),
        "model": "/".join(owner),
        "level": effort or "",
        "folder": path.parent,
        "below": int(min(ids, default=0) == 1),  # its own ids count from 1, records from 0
    }


def _records(path: Path) -> Iterator[Any]:
    """What a log says of itself, then its samples, one by one."""
    with path.open("rb") as file:
        packed = file.read(2) == b"PK"
    return _unpacked(path) if packed else parts(path, "samples")


def parts(path: Path, within: str) -> Iterator[Any]:
    """Yield the object of a JSON file up to its list `within`, then that list's items one by one.

    Only one value is in memory. Raises ValueError: no such JSON in UTF-8, or a value of over
    MOST_LINE characters. MemoryError, RecursionError: one that there is no room for.
    """
    head, key, text, inside, piece = dict[str, Any](), None, "", False, 1 << 16
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8-sig") as file:
        while True:
            text = text.lstrip(" \t\n\r,:" if head or key else " \t\n\r{")
            if text[:1] == "}" or (text[:1] == "]" and inside):
                break
            if text[:1] == "[" and key == within and not inside:
                text, inside = text[1:], True
                yield head
                continue
            with contextlib.suppress(json.JSONDecodeError):  # as long as it is not whole
                with foreign.room(len(text)):
                    value, end = decoder.raw_decode(text)
                if end < len(text):
                    text = text[end:]
                    if inside:
                        yield value
                    elif key is None:
                        key = value
                    else:
                        head[key], key = value, None
                    continue
            if len(text) > foreign.MOST_LINE or not (further := file.read(max(piece, len(text)))):
                raise ValueError("no JSON, or cut off")
            text += further
    if not inside:
        yield head


def _unpacked(path: Path) -> Iterator[Any]:
    """The JSON of the members of a zip, header first; for a damaged one the exception."""
    size = path.stat().st_size
    with foreign.room(size):
        log = zipfile.ZipFile(path)
    with log:
        unpacked = sum(member.file_size for member in log.infolist())
        if unpacked > _MOST + _RATIO * size:
            raise ValueError(f"says that it unpacks to {unpacked} bytes")
        of = log.NameToInfo  # of two of one name the last, as its own readers have it
        head = of["header.json" if "header.json" in of else "_journal/start.json"]
        for member in (head, *(of[name] for name in of if name.startswith("samples/"))):
            try:
                if member.file_size > foreign.MOST_LINE:
                    raise ValueError(f"over {foreign.MOST_LINE >> 20} MiB")
                with foreign.room(member.file_size):
                    text = log.read(member)
                part = foreign.json_value(text)
            except MemoryError as error:  # it is hostile, and so are the others
                raise ValueError(f"{member.filename} unpacks to more than it says") from error
            except Exception as error:  # as in `read`
                if member is head:
                    raise
                part = error
            yield part


def _attempt(
    EvalSample: Any, metric: str | None, troubles: Troubles, run: Any, data: Any, place: str
) -> Iterator[dict[str, Any]]:
    """The attempt that a sample is, none where it did not come to its end."""
    if isinstance(data, Exception):
        raise data
    sent = itertools.takewhile(lambda message: message["role"] != "assistant", data["messages"])
    kept = {key: data[key] for key in data.keys() - set(_UNUSED)} | {"messages": list(sent)}
    sample = EvalSample.model_validate(kept)
    scores, values, whole = sample.scores or {}, dict[str, Any](), isinstance(sample.id, int)
    if sample.invalidation or (not scores and (sample.error or not sample.output.choices)):
        troubles.add("samples invalidated, ended by an error or without an answer", place)
        return
    for scorer, score in scores.items():  # of a scorer of several values SCORER/NAME
        several = score.value if isinstance(score.value, dict) else {"": score.value}
        values |= {f"{scorer}/{name}" if name else scorer: several[name] for name in several}
    (outcome,) = logs.outcomes(values, metric, 1, place, troubles)
    said = sample.metadata if {"trial", "outcome"} <= sample.metadata.keys() else {}  # of our logs
    if outcome["outcome"] is False and said.get("outcome") in UNDECIDED:
        outcome["outcome"] = said["outcome"]
    score = scores.get(outcome["reason"], next(iter(scores.values()), None))
    found = logs.answered(sample.output.model_dump(), run)
    if found and (probs := sample.output.choices[0].logprobs):
        found["completion_logprob_list"] = [token.logprob for token in probs.content]
    asked, target = sample.input, sample.target
    yield {
        **run,
        **outcome,
        **found,
        **({"finish_reason": "length"} if sample.limit else {}),
        "question": sample.id - run["below"] if whole else sample.id,
        "trial": sample.epoch - 1,
        "seed": said.get("seed"),
        "answer": score and score.answer,
        "problem": asked if isinstance(asked, str) else asked[-1].text,
        "prompt": "\n\n".join(message.text for message in sample.messages),
        "gold": target if isinstance(target, str) else target[0],
    }
