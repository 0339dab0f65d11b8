"""inspect_ai's logs, `.eval` and JSON, of version 2: an epoch of a sample is a trial.

The library's own classes read what a log holds, whatever version wrote it, and check what is
written (0.3.285). Files are opened here, sample by sample: its readers hold a JSON log whole and
unpack a zip without asking how much it will be; its writer takes a whole log from memory.
"""

import contextlib
import functools
import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid5

import pyarrow.compute as pc

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, install, one_line
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.records import logs, names
from bayes_at_n.pipeline.records.about import (
    LIBRARY,
    VERSION,
    About,
    abouts,
    graded,
    questions,
    usage,
)
from bayes_at_n.pipeline.records.columns import UNDECIDED
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.records.source import Records, Source, archive, printable

_VERSION = 2
_UNUSED = ("events", "events_data", "timelines", "store", "error_retries")  # most of a sample
_STOPS = {"stop": "stop", "length": "max_tokens"}


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file that begins so is a log: a zip of JSON files, or JSON with `eval`."""
    if head[:4] == b"PK\x03\x04":
        return head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".json")
    start = head[:4096]
    keys = [start.find(key) for key in (b'"version"', b'"status"', b'"eval"')]
    log = start.lstrip()[:1] == b"{" and 0 < keys[0] < keys[1] < keys[2]
    return log or path.suffix == ".eval"


def read(source: Source) -> Records:
    """Yield the samples of all logs; of several of one folder, task and model the latest counts.

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
            why = f"{source.skipped.file(path)} ({printable(one_line(error))})"
            source.skipped.add("damaged files skipped", why)
    if not heads:
        raise UserError(f"{source.path}: no log of inspect_ai can be read: {why}; fetch it again")
    order = sorted(heads, key=lambda p: (heads[p].status == "success", heads[p].eval.created))

    def samples(path: Path) -> Iterator[tuple[str, Any]]:
        if source.first and heads[path].status != "success":
            what = f"its status is {heads[path].status}; what is there counts"
            warn(f"import: {source.skipped.file(path)}: {what}")
        for number, sample in enumerate(itertools.islice(_records(path), 1, None)):
            yield f"{source.skipped.file(path)}, sample {number}", sample

    runs = {path: _run(path, heads[path]) for path in order}
    convert = functools.partial(_attempt, EvalSample)
    yield from logs.read(source, runs, samples, convert)


def _run(path: Path, head: Any) -> logs.Run:
    """Return what a log calls its task, its model and the effort to reason."""
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
    """Yield what a log says of itself, then its samples, one by one."""
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
                with untrusted.memory_limit(len(text)):
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
            if len(text) > untrusted.MOST_LINE or not (further := file.read(max(piece, len(text)))):
                raise ValueError("no JSON, or cut off")
            text += further
    if not inside:
        yield head


def _unpacked(path: Path) -> Iterator[Any]:
    """Yield the JSON of the members of a zip, header first; for a damaged one the exception."""
    with archive(path) as log:
        of = log.NameToInfo  # of two of one name the last, as its own readers have it
        head = of["header.json" if "header.json" in of else "_journal/start.json"]
        for member in (head, *(of[name] for name in of if name.startswith("samples/"))):
            try:
                if member.file_size > untrusted.MOST_LINE:
                    raise ValueError(f"over {untrusted.MOST_LINE >> 20} MiB")
                with untrusted.memory_limit(member.file_size):
                    text = log.read(member)
                part = untrusted.json_value(text)
            except MemoryError as error:  # it is hostile, and so are the others
                raise ValueError(f"{member.filename} unpacks to more than it says") from error
            except Exception as error:  # as in `read`
                if member is head:
                    raise
                part = error
            yield part


def _attempt(
    EvalSample: Any, run: logs.Run, data: Any, outcomes: logs.Outcomes
) -> Iterator[dict[str, Any]]:
    """Yield the attempt that a sample is. Raises LeftOut: it did not come to its end."""
    if isinstance(data, Exception):
        raise data
    before = itertools.takewhile(lambda message: message["role"] != "assistant", data["messages"])
    kept = {key: data[key] for key in data.keys() - set(_UNUSED)} | {"messages": list(before)}
    sample = EvalSample.model_validate(kept)
    scores, values, whole = sample.scores or {}, dict[str, Any](), isinstance(sample.id, int)
    if sample.invalidation or (not scores and (sample.error or not sample.output.choices)):
        raise logs.LeftOut("samples invalidated, ended by an error or without an answer")
    for scorer, score in scores.items():  # of a scorer of several values SCORER/NAME
        several = score.value if isinstance(score.value, dict) else {"": score.value}
        values |= {f"{scorer}/{name}" if name else scorer: several[name] for name in several}
    (outcome,) = outcomes(values)
    ours = sample.metadata if {"trial", "outcome"} <= sample.metadata.keys() else {}
    if outcome["outcome"] is False and ours.get("outcome") in UNDECIDED:
        outcome["outcome"] = ours["outcome"]
    score = scores.get(outcome["reason"], next(iter(scores.values()), None))
    answered = logs.answered(sample.output.model_dump(), run)
    if answered and (probs := sample.output.choices[0].logprobs):
        answered["completion_logprob_list"] = [token.logprob for token in probs.content]
    sent, target = sample.input, sample.target
    yield {
        **outcome,
        **answered,
        "reasoning_level": run["level"],
        **({"finish_reason": "length"} if sample.limit else {}),
        "question": sample.id - run["below"] if whole else sample.id,
        "trial": sample.epoch - 1,
        "seed": ours.get("seed"),
        "answer": score and score.answer,
        "problem": sent if isinstance(sent, str) else sent[-1].text,
        "prompt": "\n\n".join(message.text for message in sample.messages),
        "gold": target if isinstance(target, str) else target[0],
    }


def write(export: Export, folder: Path) -> None:
    """Write DATE_DATASET_ID.eval of every run.

    Raises UserError: nothing is graded.
    """
    import inspect_ai.log
    import inspect_ai.model
    import inspect_ai.scorer

    for source, of in abouts(export):
        try:
            _write(inspect_ai, export, source, of, folder)
        except (TypeError, ValueError) as error:  # of texts where something else should be
            lacks = f"no log of inspect_ai: {one_line(error)}"
            raise UserError(f"{source.run.path}: {lacks}") from error


def _write(lib: Any, export: Export, source: RunTable, of: About, folder: Path) -> None:
    summaries = []
    shared = {id: _question(row) for id, row in questions(source).items()}
    name = f"{of.ended:%Y-%m-%dT%H-%M-%S}+00-00_{names.safe_name(of.dataset)}_{of.uid.hex}.eval"
    with zipfile.ZipFile(folder / name, "w") as archive:
        for row in graded(export, source):
            sample = _sample(lib, row, shared[row["question_id"]], of)
            _put(archive, f"samples/{sample.id}_epoch_{sample.epoch}.json", _json(sample))
            summaries.append(_json(sample.summary()))
        _put(archive, "summaries.json", b"[" + b",".join(summaries) + b"]")
        _put(archive, "header.json", _json(lib.log.EvalLog.model_validate(_header(source, of))))


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file, of no time: the same run gives the same bytes."""
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 1)  # 6 takes thrice as long


def _json(model: Any) -> bytes:
    return bytes(model.model_dump_json(exclude_none=True).encode())


def _header(source: RunTable, of: About) -> dict[str, Any]:
    """Return all but the samples."""
    ids = [row["question_id"] for row in source.run.questions]
    scores = {metric.name: score._asdict() for metric, score in of.scores}
    values = {"accuracy": scores.get("avg", {}).get("value"), "stderr": of.stderr}
    metrics = {name: {"name": name, "value": x} for name, x in values.items() if x is not None}
    known = {"confidence": of.confidence, "prior": of.prior, **scores}
    tokens = (pc.sum(source.table[f"{part}_tokens"]) for part in ("prompt", "completion"))
    used = {of.called: usage(*(number.as_py() or 0 for number in tokens))}
    began, ended = of.began.isoformat(), of.ended.isoformat()
    reached = {"name": "grade", "scorer": "grade", "reducer": "mean", "metrics": metrics}
    results = {"total_samples": len(ids) * of.trials, "completed_samples": of.graded}
    spec: dict[str, Any] = {
        **dict.fromkeys(("eval_id", "run_id", "task_id"), of.uid.hex),
        **{"created": began, "task": of.dataset, "model": of.called, "solver": "generate"},
        "dataset": {"name": of.dataset, "samples": len(ids), "sample_ids": ids},
        "config": {"epochs": of.trials, "epochs_reducer": ["mean"]},
        "scorers": [{"name": "grade", "metrics": [{"name": name} for name in metrics]}],
        "model_generate_config": of.arguments,
        "packages": {LIBRARY: VERSION},
        "metadata": {"run": source.name, "scores": known, **of.sampling},
    }
    return {
        **{"version": 2, "status": "success", "eval": spec},
        "plan": {"steps": [{"solver": "generate"}]},
        "stats": {"started_at": began, "completed_at": ended, "model_usage": used},
        "results": results | {"scores": [reached | {"metadata": known}]},
    }


def _question(row: dict[str, Any]) -> dict[str, Any]:
    """Return what all samples of a question share; chat turns of a server are stored as JSON."""
    turns = [{"role": "user", "content": row["prompt"] or row["problem"]}]
    if row["prompt_token_ids"] is None and row["prompt"].startswith("["):
        turns = json.loads(row["prompt"])
    turns = [turn | {"id": f"{row['question_id']}-{i}"} for i, turn in enumerate(turns)]
    shared = {"id": row["question_id"], "input": row["problem"], "target": row["gold"]}
    return shared | {"choices": row["choices"], "messages": turns}


def _sample(lib: Any, row: dict[str, Any], question: dict[str, Any], of: About) -> Any:
    """Return an attempt in the library's types, made singly: at once they take thrice as long."""
    key, make = str(uuid5(of.uid, f"{row['question_id']} {row['trial']}")), lib.model
    content = [make.ContentText(text=row["response"])]
    if row["reasoning"] is not None:
        content.insert(0, make.ContentReasoning(reasoning=row["reasoning"]))
    answer = make.ChatMessageAssistant(id=key, source="generate", content=content)
    stop = _STOPS.get(row["finish_reason"], "unknown")
    choice = make.ChatCompletionChoice(message=answer, stop_reason=stop)
    used = row["usage"] and make.ModelUsage(**row["usage"])
    value, why = {"value": "C" if row["right"] else "I"}, {"metadata": {"layer": row["layer"]}}
    score = lib.scorer.Score(answer=row["answer"], explanation=row["reason"], **value, **why)
    return lib.log.EvalSample(
        **question | {"messages": [*question["messages"], answer]},
        uuid=key,
        epoch=row["trial"] + 1,
        output=make.ModelOutput(model=of.called, choices=[choice], usage=used, time=row["seconds"]),
        scores={"grade": score},
        metadata=row["metadata"],
        model_usage={of.called: used} if used else {},
        total_time=row["seconds"],
    )
