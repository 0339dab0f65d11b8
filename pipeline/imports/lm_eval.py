"""Sample logs of lm-evaluation-harness: what `--log_samples` wrote, one object a question.

Each line has doc_id, doc, target, arguments, resps (for each request a list with one text a
repeat), filtered_resps, filter, the names of its metrics and their values.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.base.console import note, warn
from pipeline.base.errors import UserError
from pipeline.config.imports import RecordsConfig
from pipeline.imports.row import named, text, truth
from pipeline.imports.source import Records, Source, Troubles, json_lines, shown

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
_METRICS = ("exact_match", "acc", "accuracy", "correct", "pass@1")
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_MOST_RESULTS = 64 << 20  # bytes of a results_*.json
_MOST_REPEATS = 10_000


def read(source: Source, cfg: RecordsConfig, first: bool, troubles: Troubles) -> Records:
    """The attempts of all sample files; of several files of one folder and task the latest counts.

    Raises:
        UserError: dataset= or model= is to name several; no sample has the metric or filter.
    """
    logs: dict[tuple[Path, str], tuple[Path, str, str]] = {}
    for path in sorted(source.files):  # dates sort as texts
        parts = _NAME.fullmatch(path.name)
        task = parts["task"] if parts else path.stem.removeprefix("samples_")
        if first and (older := logs.get((path.parent, task))):
            note(f"import: {older[0].name} is older than {path.name} and left out")
        logs[path.parent, task] = (path, task, _model(path, parts["date"] if parts else ""))
    for key, given, at in (("dataset", cfg.dataset, 1), ("model", cfg.model, 2)):
        names = sorted({str(log[at]) for log in logs.values()})
        if given and len(names) > 1:
            raise UserError(
                f"{key}={shown(given[0])}: is one name, and {source.path} holds"
                f" {', '.join(map(shown, names[:10]))}; leave it out, or import one of them"
            )
    for path, task, model in logs.values():
        run = {"task": [*cfg.dataset, task][0], "model": [*cfg.model, model][0]}
        for place, attempt in _samples(path, cfg, first, troubles):
            yield place, attempt | run


def _model(path: Path, date: str) -> str:
    """The model, from the results file beside the samples, else from the folder's name."""
    for results in sorted(path.parent.glob(f"results_{date}*.json"), reverse=True):
        try:
            if results.stat().st_size <= _MOST_RESULTS:
                about = json.loads(results.read_text(encoding="utf-8"))
                if isinstance(about, dict) and isinstance(about.get("model_name"), str):
                    return str(about["model_name"])
        except (OSError, ValueError, RecursionError):
            warn(f"{shown(results.name)}: unreadable; the model is named by its folder")
    return path.parent.resolve().name.replace("__", "/", 1)


def _samples(
    path: Path, cfg: RecordsConfig, first: bool, troubles: Troubles
) -> Iterator[tuple[str, dict[str, Any]]]:
    chosen, metric = cfg.source.filter, cfg.source.metric
    left_out: Counter[str] = Counter()
    kept = False
    for place, sample in json_lines(path, troubles):
        if named(sample.get("doc_id")) is None:
            troubles.add("damaged rows skipped", f"{place} (no doc_id)")
            continue
        filtered = str(sample.get("filter", "none"))
        chosen = filtered if chosen is None else chosen
        if filtered != chosen:
            left_out[filtered] += 1
            continue
        metric = metric or _metric(sample)
        if cfg.source.metric is not None and metric not in sample:
            there = ", ".join(map(shown, _metrics(sample))) or "none"
            raise UserError(f"metric={shown(str(metric))}: {place} has no such value, but {there}")
        kept = True
        for attempt in _attempts(sample, place, metric, troubles):
            yield place, attempt
    if left_out and not kept:
        there = ", ".join(map(shown, left_out))
        raise UserError(f"filter={shown(str(chosen))}: {path.name} has no such filter, but {there}")
    if left_out and first:
        names = ", ".join(f"{shown(n)} ({k})" for n, k in left_out.items())
        note(f"import: {path.name}: filter {shown(str(chosen))} counts, not {names}; filter=NAME")


def _metric(sample: dict[str, Any]) -> str | None:
    """Which value of a sample is its outcome: a usual name, else the first that is 0 or 1."""
    for name in [*_METRICS, *_metrics(sample)]:
        if truth(sample.get(name)) is not None or isinstance(sample.get(name), list):
            return name
    return None


def _metrics(sample: dict[str, Any]) -> list[str]:
    metrics = sample.get("metrics")
    names = [name for name in metrics if isinstance(name, str)] if isinstance(metrics, list) else []
    return names or [name for name in _METRICS if name in sample]


def _attempts(
    sample: dict[str, Any], place: str, metric: str | None, troubles: Troubles
) -> Iterator[dict[str, Any]]:
    """One record a repeat. A single value for several repeats is of none of them in particular."""
    texts = _texts(sample.get("resps"))
    answers = _first(sample.get("filtered_resps"))
    value = sample.get(metric) if metric else None
    outcomes = value if isinstance(value, list) else [value]
    repeats = max(len(texts), 1)
    if len(outcomes) != repeats:
        if value is not None:
            troubles.add("samples of several answers with one value: `grade` decides", place)
        outcomes = [None] * repeats
    doc = sample.get("doc")
    problems = [doc.get(name) for name in _PROBLEM] if isinstance(doc, dict) else []
    for trial, outcome in enumerate(outcomes):
        if outcome is not None and truth(outcome) is None:
            troubles.add("values that are neither 0 nor 1: not graded", place)
        listed = isinstance(answers, list) and trial < len(answers)
        yield {
            "question": sample["doc_id"],
            "trial": trial,
            "outcome": truth(outcome),
            "answer": text(answers[trial] if listed else answers),
            "text": texts[trial] if texts else None,
            "gold": text(sample.get("target")),
            "problem": next((problem for problem in problems if isinstance(problem, str)), None),
            "prompt": _prompt(sample.get("arguments")),
            "reason": metric or "no metric",
        }


def _texts(resps: Any) -> list[str]:
    """The completions of the first request, one a repeat; none for log-likelihood requests."""
    texts = _first(resps)
    texts = texts if isinstance(texts, list) else [texts]
    return texts[:_MOST_REPEATS] if all(isinstance(text, str) for text in texts) else []


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _prompt(arguments: Any) -> Any:
    if isinstance(arguments, dict):
        first = arguments.get("gen_args_0")
        return first.get("arg_0") if isinstance(first, dict) else None
    return _first(_first(arguments))  # as older versions wrote them
