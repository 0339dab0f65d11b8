"""Logs of inspect_ai, `.eval` and JSON, version 2: an epoch of a sample is a trial.

The library's own classes (0.3.285) parse logs of all its versions and validate what is written.
A zip is read and written here, sample by sample: the library's reader unpacks one of any size, and
its writer takes a whole log from memory.
"""

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
    RunInfo,
    graded,
    questions,
    run_infos,
    usage,
)
from bayes_at_n.pipeline.records.columns import UNDECIDED
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.records.source import (
    LeftOut,
    Records,
    Source,
    archive,
    json_file,
    printable,
)

_VERSION = 3
_MEMBERS = (b"header.json", b"_journal/", b"samples/", b"summaries.json", b"reductions.json")
_UNUSED = ("events", "events_data", "timelines", "store", "error_retries")  # most of a sample
_STOPS = {"stop": "stop", "length": "max_tokens"}


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file with this head is a log: a zip of JSON files, or JSON with `eval`."""
    if head[:4] == b"PK\x03\x04":
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return path.suffix == ".eval" or first.startswith(_MEMBERS)
    start = head[:4096]
    keys = [start.find(key) for key in (b'"version"', b'"status"', b'"eval"')]
    log = start.lstrip()[:1] == b"{" and 0 < keys[0] < keys[1] < keys[2]
    return log or path.suffix == ".eval"


def read(source: Source) -> Records:
    """Yield the samples of all logs; of several of one folder, task and model, the latest.

    Raises UserError: inspect_ai is not installed; no log can be read; a sample lacks the metric.
    """
    try:
        from inspect_ai.log import EvalLog, EvalSample  # zipfile learns their compression, too
    except ImportError as error:
        needs = f"logs of inspect_ai need the library ({error}): {install('inspect')}"
        raise UserError(needs) from error
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
        if heads[path].status != "success":
            what = f"its status is {heads[path].status}; finished samples are imported"
            warn(f"import: {source.skipped.file(path)}: {what}")
        for number, sample in enumerate(itertools.islice(_records(path), 1, None)):
            yield f"{source.skipped.file(path)}, sample {number}", sample

    runs = {path: _run(path, heads[path]) for path in order}
    convert = functools.partial(_attempt, EvalSample)
    yield from logs.read(source, runs, samples, convert)


def _run(path: Path, head: Any) -> logs.Run:
    """Return the task, model and reasoning effort of a log."""
    spec = head.eval
    tasks = (spec.task.rpartition("/")[2], (spec.dataset.name or "").rpartition("/")[2])
    known = (name for name in tasks if names.dataset_name(name) in compose.files("dataset"))
    owner = spec.model.split("/")[-2:] if spec.model.count("/") > 1 else [spec.model]  # no provider
    effort = head.plan.config.reasoning_effort or spec.model_generate_config.reasoning_effort
    ids = spec.dataset.sample_ids
    if ids is None:  # in older logs
        ids = [one.get("id") for one in _records(path) if isinstance(one, dict)][1:]
    numbers = [id for id in ids if isinstance(id, int)]
    return {
        "task": next(known, tasks[0]),
        "model": "/".join(owner).removeprefix("local/"),  # as in logs of ours
        "level": effort or "",
        "folder": path.parent,
        "below": int(min(numbers, default=0) == 1),  # its own ids count from 1, records from 0
    }


def _records(path: Path) -> Iterator[Any]:
    """Yield the header of a log, then its samples, one by one."""
    with path.open("rb") as file:
        packed = file.read(2) == b"PK"
    if packed:
        yield from _unpacked(path)
    else:
        log = json_file(path)
        samples = log.pop("samples", None) or ()
        yield {key: log[key] for key in log if key != "reductions"}
        yield from samples


def _unpacked(path: Path) -> Iterator[Any]:
    """Yield the JSON of a zip's members, header first; for a damaged member, the exception."""
    with archive(path) as log:
        files = log.NameToInfo  # of two with one name the last, as for the library
        head = files["header.json" if "header.json" in files else "_journal/start.json"]
        # A sample in chunks has its messages, which only tell its prompt, in other members.
        chunked = tuple(n.removesuffix("sample.json") for n in files if n.endswith("/sample.json"))
        samples = [
            file
            for name, file in files.items()
            if name.startswith("samples/")
            and (not name.startswith(chunked) or name.endswith("/sample.json"))
        ]
        for member in (head, *samples):
            try:
                if member.file_size > untrusted.MOST_LINE:
                    raise ValueError(f"over {untrusted.MOST_LINE >> 20} MiB")
                with untrusted.memory_limit(member.file_size):
                    text = log.read(member)
                part = untrusted.json_value(text)
            except MemoryError as error:  # a hostile file, which is not read further
                raise ValueError(f"{member.filename} unpacks to more than it declares") from error
            except Exception as error:  # as in `read`
                if member is head:
                    raise
                part = error
            yield part


def _attempt(
    EvalSample: Any, run: logs.Run, data: Any, outcomes: logs.Outcomes
) -> Iterator[dict[str, Any]]:
    """Yield the attempt of a sample. Raises LeftOut: it has none that is finished."""
    if isinstance(data, Exception):
        raise data
    messages = data.get("messages") or ()
    before = itertools.takewhile(lambda message: message["role"] != "assistant", messages)
    kept = {key: data[key] for key in data.keys() - set(_UNUSED)} | {"messages": list(before)}
    sample = EvalSample.model_validate(kept)
    scores, values, whole = sample.scores or {}, dict[str, Any](), isinstance(sample.id, int)
    if sample.invalidation or (not scores and (sample.error or not sample.output.choices)):
        raise LeftOut("samples invalidated, ended by an error or without an answer")
    for scorer, score in scores.items():  # several values of a scorer are named SCORER/NAME
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

    for source, info in run_infos(export):
        _write(inspect_ai, export, source, info, folder)


def _write(lib: Any, export: Export, source: RunTable, info: RunInfo, folder: Path) -> None:
    summaries = []
    shared = {id: _question(row) for id, row in questions(source).items()}
    task = names.safe_name(info.dataset)
    name = f"{info.ended:%Y-%m-%dT%H-%M-%S}+00-00_{task}_{info.uid.hex}.eval"
    with zipfile.ZipFile(folder / name, "w") as archive:
        for row in graded(export, source):
            sample = _sample(lib, row, shared[row["question_id"]], info)
            _put(archive, f"samples/{sample.id}_epoch_{sample.epoch}.json", _json(sample))
            summaries.append(_json(sample.summary()))
        _put(archive, "summaries.json", b"[" + b",".join(summaries) + b"]")
        _put(archive, "header.json", _json(lib.log.EvalLog.model_validate(_header(source, info))))


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file without a time stamp: equal runs give equal bytes."""
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 1)  # 6 takes thrice as long


def _json(model: Any) -> bytes:
    return bytes(model.model_dump_json(exclude_none=True).encode())


def _header(source: RunTable, info: RunInfo) -> dict[str, Any]:
    """Return everything but the samples."""
    ids = [row["question_id"] for row in source.run.questions]
    scores = {metric.name: score._asdict() for metric, score in info.scores}
    values = {"accuracy": scores.get("avg", {}).get("value"), "stderr": info.stderr}
    metrics = {name: {"name": name, "value": x} for name, x in values.items() if x is not None}
    known = {"confidence": info.confidence, "prior": info.prior, **scores}
    tokens = (pc.sum(source.table[f"{part}_tokens"]) for part in ("prompt", "completion"))
    used = {info.named: usage(*(number.as_py() or 0 for number in tokens))}
    began, ended = info.began.isoformat(), info.ended.isoformat()
    reached = {"name": "grade", "scorer": "grade", "reducer": "mean", "metrics": metrics}
    results = {"total_samples": len(ids) * info.trials, "completed_samples": info.graded}
    provider = "vllm" if info.engine.get("name") == "vllm" else "hf"  # by which others know paths
    spec: dict[str, Any] = {
        **dict.fromkeys(("eval_id", "run_id", "task_id"), info.uid.hex),
        **{"created": began, "task": info.dataset, "solver": "generate"},
        "model": f"{provider}/{info.named}",
        "dataset": {"name": info.dataset, "samples": len(ids), "sample_ids": ids},
        "config": {"epochs": info.trials, "epochs_reducer": ["mean"]},
        "scorers": [{"name": "grade", "metrics": [{"name": name} for name in metrics]}],
        "model_generate_config": info.arguments,
        "packages": {LIBRARY: VERSION},
        "metadata": {"run": source.name, "scores": known, **info.sampling},
    }
    return {
        **{"version": 2, "status": "success", "eval": spec},
        "plan": {"steps": [{"solver": "generate"}]},
        "stats": {"started_at": began, "completed_at": ended, "model_usage": used},
        "results": results | {"scores": [reached | {"metadata": known}]},
    }


def _question(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields shared by all samples of a question, whose prompt may be chat turns."""
    turns = [{"role": "user", "content": row["prompt"] or row["problem"]}]
    if row["prompt_token_ids"] is None and row["prompt"].startswith("["):
        turns = json.loads(row["prompt"])
    turns = [turn | {"id": f"{row['question_id']}-{i}"} for i, turn in enumerate(turns)]
    shared = {"id": row["question_id"], "input": row["problem"], "target": row["gold"]}
    return shared | {"choices": row["choices"], "messages": turns}


def _sample(lib: Any, row: dict[str, Any], question: dict[str, Any], info: RunInfo) -> Any:
    """Return an attempt in the library's types, one by one, which is three times as fast."""
    key, make = str(uuid5(info.uid, f"{row['question_id']} {row['trial']}")), lib.model
    content = [make.ContentText(text=row["response"])]
    if row["reasoning"] is not None:
        content.insert(0, make.ContentReasoning(reasoning=row["reasoning"]))
    answer = make.ChatMessageAssistant(id=key, source="generate", content=content)
    stop = _STOPS.get(row["finish_reason"], "unknown")
    choice = make.ChatCompletionChoice(message=answer, stop_reason=stop)
    used = row["usage"] and make.ModelUsage(**row["usage"])
    value, why = {"value": "C" if row["right"] else "I"}, {"metadata": {"layer": row["layer"]}}
    score = lib.scorer.Score(answer=row["answer"], explanation=row["reason"], **value, **why)
    output = make.ModelOutput(model=info.named, choices=[choice], usage=used, time=row["seconds"])
    return lib.log.EvalSample(
        **question | {"messages": [*question["messages"], answer]},
        uuid=key,
        epoch=row["trial"] + 1,
        output=output,
        scores={"grade": score},
        metadata=row["metadata"],
        model_usage={info.named: used} if used else {},
        total_time=row["seconds"],
    )
