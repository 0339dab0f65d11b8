"""Sample logs of lm-evaluation-harness: what `--log_samples` wrote, one object a question.

Each line has doc_id, doc, target, arguments, resps (for each request a list with one text a
repeat), filtered_resps, filter, the names of its metrics and their values.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.base import jsonl
from pipeline.base.console import note, warn
from pipeline.base.errors import UserError
from pipeline.config.imports import ImportConfig
from pipeline.imports import logs
from pipeline.imports.row import named, text, truth
from pipeline.imports.source import Records, Source, Troubles, json_lines, shown

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
_METRICS = ("exact_match", "acc", "accuracy", "correct", "pass@1")
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_MOST_RESULTS = 64 << 20  # bytes of a results_*.json
_MOST_REPEATS = 10_000


def looks(path: Path, head: bytes) -> bool:
    """Whether a file is one, by its name or its keys."""
    named = path.name.startswith("samples_") or b'"resps"' in head
    return bool(_NAME.fullmatch(path.name)) or (named and b'"doc_id"' in head)


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The attempts of all sample files; of several files of one folder and task the latest counts.

    Raises UserError: dataset= or model= is to name several; no sample has the metric or filter.
    """

    def about(path: Path) -> tuple[Path, str]:
        parts = _NAME.fullmatch(path.name)
        return path.parent, parts["task"] if parts else path.stem.removeprefix("samples_")

    paths = logs.latest(sorted(source.files), about, first)  # dates sort as texts
    runs = {path: {"task": about(path)[1], "model": _model(path)} for path in paths}
    logs.rename(source, runs.values())
    for path, run in runs.items():
        for place, attempt in _samples(path, source.cfg.source, first, troubles):
            yield place, attempt | run


def _model(path: Path) -> str:
    """The model, from the results file beside the samples, else from the folder's name."""
    parts = _NAME.fullmatch(path.name)
    pattern = f"results_{parts['date'] if parts else ''}*.json"
    for results in sorted(path.parent.glob(pattern), reverse=True):
        try:
            if results.stat().st_size <= _MOST_RESULTS:
                about = jsonl.value(results.read_bytes())
                if isinstance(about, dict) and isinstance(about.get("model_name"), str):
                    return str(about["model_name"])
        except (OSError, ValueError):
            warn(f"{shown(results.name)}: unreadable; the model is named by its folder")
    return path.parent.resolve().name.replace("__", "/", 1)


def _samples(
    path: Path, cfg: ImportConfig, first: bool, troubles: Troubles
) -> Iterator[tuple[str, dict[str, Any]]]:
    chosen, metric = cfg.filter, cfg.metric
    filters: Counter[str] = Counter()  # how many samples each has
    for place, sample in json_lines(path, troubles):
        if named(sample.get("doc_id")) is None:
            troubles.add("damaged rows skipped", f"{place} (no doc_id)")
            continue
        filters[filtered := str(sample.get("filter", "none"))] += 1
        chosen = filtered if chosen is None else chosen
        if filtered != chosen:
            continue
        metric = metric or _metric(sample)
        if cfg.metric is not None and metric not in sample:
            logs.check_metric(cfg.metric, dict.fromkeys(_metrics(sample)), place)
        for attempt in _attempts(sample, place, metric, troubles):
            yield place, attempt
    if filters and chosen is not None and not filters.pop(chosen, 0):
        there = ", ".join(map(shown, filters))
        raise UserError(f"filter={shown(chosen)}: {path.name} has no such filter, but {there}")
    if filters and first:
        others = ", ".join(f"{shown(name)} ({number})" for name, number in filters.items())
        note(f"import: {path.name}: filter {shown(str(chosen))} counts, not {others}; filter=NAME")


def _metric(sample: dict[str, Any]) -> str | None:
    """Which value of a sample is its outcome: a usual name, else the first that is 0 or 1."""
    values = ((name, sample.get(name)) for name in (*_METRICS, *_metrics(sample)))
    usable = (name for name, value in values if truth(value) is not None or isinstance(value, list))
    return next(usable, None)


def _metrics(sample: dict[str, Any]) -> list[str]:
    metrics = sample.get("metrics")
    names = [name for name in metrics if isinstance(name, str)] if isinstance(metrics, list) else []
    return names or [name for name in _METRICS if name in sample]


def _attempts(
    sample: dict[str, Any], place: str, metric: str | None, troubles: Troubles
) -> Iterator[dict[str, Any]]:
    """One record a repeat. A single value for several repeats is of none of them in particular."""
    texts = _first(sample.get("resps"))  # of the first request; none for log-likelihoods
    texts = texts if isinstance(texts, list) else [texts]
    if not all(isinstance(text, str) for text in texts):
        texts = []
    texts = texts[:_MOST_REPEATS]
    answers = _first(sample.get("filtered_resps"))
    value = sample.get(metric) if metric else None
    outcomes = value if isinstance(value, list) else [value]
    repeats = max(len(texts), 1)
    if len(outcomes) != repeats:
        if value is not None:
            troubles.add("samples of several answers with one value: `grade` decides", place)
        outcomes = [None] * repeats
    doc, arguments = sample.get("doc"), sample.get("arguments")
    problems = [doc.get(name) for name in _PROBLEM] if isinstance(doc, dict) else []
    if isinstance(arguments, dict):
        request = arguments.get("gen_args_0")
        prompt = request.get("arg_0") if isinstance(request, dict) else None
    else:
        prompt = _first(_first(arguments))  # as older versions wrote them
    said, trials = sample.get("trials"), list(range(len(outcomes)))
    trials = said if isinstance(said, list) and len(said) == len(trials) else trials  # of our logs
    for trial, outcome in enumerate(outcomes):
        if outcome is not None and truth(outcome) is None:
            troubles.add("values that are neither 0 nor 1: not graded", place)
        listed = isinstance(answers, list) and trial < len(answers)
        yield {
            "question": sample["doc_id"],
            "trial": trials[trial],
            "outcome": truth(outcome),
            "answer": text(answers[trial] if listed else answers),
            "text": texts[trial] if texts else None,
            "gold": text(sample.get("target")),
            "problem": next((problem for problem in problems if isinstance(problem, str)), None),
            "prompt": prompt,
            "reason": metric or "no metric",
        }


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None
