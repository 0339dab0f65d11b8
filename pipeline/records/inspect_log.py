"""Logs of inspect_ai, `.eval` and JSON, version 2: an epoch of a sample is a trial.

After the classes of the library (0.3.285), whose reader unpacks a zip of any size, and whose writer
takes a whole log from memory.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, install
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.columns import chat_text
from bayes_at_n.pipeline.records.runs import dataset_name
from bayes_at_n.pipeline.records.source import LeftOut, Run, Source, archive, json_file, start

_VERSION = 3
_MEMBERS = (b"header.json", b"_journal/", b"samples/", b"summaries.json", b"reductions.json")


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file with this head is a log: a zip of JSON files, or JSON with `eval`."""
    if head[:4] == b"PK\x03\x04":
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return path.suffix == ".eval" or first.startswith(_MEMBERS)
    text = head[:4096]
    keys = [text.find(key) for key in (b'"version"', b'"status"', b'"eval"')]
    log = text.lstrip()[:1] == b"{" and 0 < keys[0] < keys[1] < keys[2]
    return log or path.suffix == ".eval"


def run_of(path: Path) -> Run:
    """Return the task, model and reasoning effort of a log, and its place among several.

    Raises UserError: it needs the library. ValueError: another version. Also whatever parsers
    raise on hostile bytes.
    """
    head = next(_records(path))
    if head.get("version", 2) > _VERSION:
        raise ValueError(f"version {head['version']} of the log's format")
    spec, plan = head["eval"], head.get("plan") or {}
    about = spec.get("dataset") or {}
    tasks = [str(name or "").rpartition("/")[2] for name in (spec["task"], about.get("name"))]
    known = (name for name in tasks if dataset_name(name) in compose.files("dataset"))
    owner = spec["model"].split("/")  # without the provider
    configs = (plan.get("config"), spec.get("model_generate_config"))
    efforts = (of["reasoning_effort"] for of in configs if of and of.get("reasoning_effort"))
    ids = about.get("sample_ids")
    if ids is None:  # in older logs
        ids = [one.get("id") for one in _records(path) if isinstance(one, dict)][1:]
    numbers = [id for id in ids if isinstance(id, int)]
    return {
        "task": next(known, tasks[0]),
        "model": "/".join(owner[-2:] if len(owner) > 2 else owner).removeprefix("local/"),
        "level": next(efforts, ""),
        "path": str(path.parent),
        "below": int(min(numbers, default=0) == 1),  # its own ids count from 1, records from 0
        "order": (head.get("status") == "success", str(spec.get("created"))),
    }


def samples(source: Source, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the samples of a log."""
    for number, sample in enumerate(_records(path)):
        if number:
            yield f"{source.skipped.file(path)}, sample {number - 1}", sample
        elif sample.get("status") != "success":
            what = f"its status is {sample.get('status')}; finished samples are imported"
            warn(f"import: {source.skipped.file(path)}: {what}")


def _records(path: Path) -> Iterator[Any]:
    """Yield the header of a log, then its samples, one by one; exceptions for damaged ones."""
    if start(path)[:2] != b"PK":
        log = json_file(path)
        items = log.pop("samples", None) or ()
        yield {key: log[key] for key in log if key != "reductions"}
        yield from items
        return
    with contextlib.suppress(ImportError):
        import inspect_ai.log  # noqa: F401  # zipfile learns their compression
    with archive(path) as packed:
        files = packed.NameToInfo  # of two with one name the last, as for the library
        head = files["header.json" if "header.json" in files else "_journal/start.json"]
        # A sample in chunks has its messages, which only tell its prompt, in other members.
        chunked = tuple(n.removesuffix("sample.json") for n in files if n.endswith("/sample.json"))
        whole = [n for n in files if n.startswith("samples/") and not n.startswith(chunked)]
        members = [files[n] for n in files if n in whole or n.endswith("/sample.json")]
        for member in (head, *members):
            try:
                if member.file_size > untrusted.MOST_LINE:
                    raise ValueError(f"over {untrusted.MOST_LINE >> 20} MiB")
                with untrusted.memory_limit(member.file_size):
                    text = packed.read(member)
                part = untrusted.json_value(text)
            except NotImplementedError as error:
                needs = f"its compression needs the library: {install('inspect')}"
                raise UserError(f"{path}: {needs}") from error
            except MemoryError as error:  # a hostile file, which is not read further
                raise ValueError(f"{member.filename} unpacks to more than it declares") from error
            except Exception as error:  # foreign parsers on hostile bytes raise whatever they like
                if member is head:
                    raise
                part = error
            yield part


def values(_: Run, sample: Any) -> dict[str, Any]:
    """Return the values of all scorers, those of several as SCORER/NAME; of our logs the outcome.

    Raises LeftOut: the sample is not finished. Also the exception in place of a damaged one.
    """
    if isinstance(sample, Exception):
        raise sample
    scores, own = sample.get("scores") or {}, sample.get("metadata") or {}
    choices = (sample.get("output") or {}).get("choices")
    if sample.get("invalidation") or (not scores and (sample.get("error") or not choices)):
        raise LeftOut("samples invalidated, ended by an error or without an answer")
    by_name = dict[str, Any]()
    for scorer, score in scores.items():
        several = score["value"] if isinstance(score["value"], dict) else {"": score["value"]}
        by_name |= {f"{scorer}/{name}" if name else scorer: several[name] for name in several}
    if by_name and {"trial", "outcome"} <= own.keys():
        by_name[next(iter(by_name))] = own["outcome"]
    return by_name


def attempts(run: Run, sample: Any) -> dict[str, Any]:
    """Return the fields of a sample's attempt."""
    scores, own, output = (sample.get(key) or {} for key in ("scores", "metadata", "output"))
    scorer = (run["metric"] or "").partition("/")[0]
    score = scores.get(scorer, next(iter(scores.values()), {}))
    messages, sent, target = sample.get("messages") or (), sample["input"], sample.get("target")
    before = itertools.takewhile(lambda message: message["role"] != "assistant", messages)
    answered = logs.answered(output, run)
    if answered and (probs := output["choices"][0].get("logprobs")):
        answered["completion_logprob_list"] = [token["logprob"] for token in probs["content"]]
    return {
        **answered,
        "reasoning_level": run["level"],
        **({"finish_reason": "length"} if sample.get("limit") else {}),
        "question": sample["id"] - run["below"] if type(sample["id"]) is int else sample["id"],
        "trial": sample["epoch"] - 1,
        "seed": own.get("seed") if {"trial", "outcome"} <= own.keys() else None,
        "answer": score.get("answer"),
        "problem": sent if isinstance(sent, str) else chat_text(sent[-1:]),
        "prompt": chat_text([*before]) or "",
        "gold": target if isinstance(target, str) else target and target[0],
    }
