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
from pipeline.config.imports import ImportConfig
from pipeline.imports import source as sources
from pipeline.imports import values
from pipeline.imports.rows import Row
from pipeline.imports.source import Source
from pipeline.imports.troubles import Troubles, shown

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
_METRICS = ("exact_match", "acc", "accuracy", "correct", "pass@1")
_PROBLEM = ("problem", "question", "Problem", "Question", "query", "input")
_MOST_RESULTS = 64 << 20  # bytes of a results_*.json


def read(
    source: Source, cfg: ImportConfig, task: str, model: str, troubles: Troubles
) -> Iterator[Row]:
    """The attempts of all sample files of a source; of several of one task the latest counts.

    Raises:
        UserError: `task` or `model` is to name several of them; no sample has the metric or filter.
    """
    found = []
    for path in _latest(source.files):
        named = _NAME.fullmatch(path.name)
        told = named["task"] if named else path.stem.removeprefix("samples_")
        found.append((path, told, _model(path, named["date"] if named else "")))
    for key, name, there in (
        ("dataset", task, {told for _, told, _ in found}),
        ("model", model, {told for _, _, told in found}),
    ):
        if name and len(there) > 1:
            raise UserError(
                f"{key}={shown(name)}: is one name, and {source.path} holds"
                f" {', '.join(map(shown, sorted(there)[:10]))}; leave it out, or import one of them"
            )
    for path, told, called in found:
        yield from _samples(path, cfg, task or told, model or called, troubles)


def _latest(files: list[Path]) -> list[Path]:
    """Of the files of one folder and task the one with the latest date."""
    found: dict[tuple[Path, str], Path] = {}
    for path in sorted(files):  # dates sort as texts
        named = _NAME.fullmatch(path.name)
        key = (path.parent, named["task"] if named else path.name)
        if key in found:
            note(f"import: {found[key].name} is older than {path.name} and left out")
        found[key] = path
    return list(found.values())


def _model(path: Path, date: str) -> str:
    """The model, from the results file beside the samples, else from the folder's name."""
    for results in sorted(path.parent.glob(f"results_{date}*.json"), reverse=True):
        try:
            if results.stat().st_size <= _MOST_RESULTS:
                told = json.loads(results.read_text(encoding="utf-8"))
                if isinstance(told, dict) and isinstance(told.get("model_name"), str):
                    return str(told["model_name"])
        except (OSError, ValueError, RecursionError):
            warn(f"{shown(results.name)}: unreadable; the model is named by its folder")
    return path.parent.resolve().name.replace("__", "/", 1)


def _samples(
    path: Path, cfg: ImportConfig, task: str, model: str, troubles: Troubles
) -> Iterator[Row]:
    chosen, metric = cfg.filter, cfg.metric
    left_out: Counter[str] = Counter()
    kept = False
    for place, sample in sources.json_lines(path, troubles):
        number = values.named(sample.get("doc_id"))
        if number is None:
            troubles.add("damaged rows skipped", f"{place} (no doc_id)")
            continue
        filtered = str(sample.get("filter", "none"))
        chosen = filtered if chosen is None else chosen
        if filtered != chosen:
            left_out[filtered] += 1
            continue
        metric = metric or _metric(sample)
        if cfg.metric is not None and cfg.metric not in sample:
            there = ", ".join(map(shown, _metrics(sample))) or "none"
            raise UserError(f"metric={shown(cfg.metric)}: {place} has no such value, but {there}")
        kept = True
        yield from _attempts(sample, Row(task, model, number, place), metric, troubles)
    if left_out and not kept:
        there = ", ".join(map(shown, left_out))
        raise UserError(f"filter={shown(str(chosen))}: {path.name} has no such filter, but {there}")
    if left_out:
        names = ", ".join(f"{shown(n)} ({k})" for n, k in left_out.items())
        note(f"import: {path.name}: filter {shown(str(chosen))} counts, not {names}; filter=NAME")


def _metric(sample: dict[str, Any]) -> str | None:
    """Which value of a sample is its outcome: a usual name, else the first that is 0 or 1."""
    for name in [*_METRICS, *_metrics(sample)]:
        value = sample.get(name)
        if values.truth(value) is not None or isinstance(value, list):
            return name
    return None


def _metrics(sample: dict[str, Any]) -> list[str]:
    told = sample.get("metrics")
    named = [name for name in told if isinstance(name, str)] if isinstance(told, list) else []
    return named or [name for name in _METRICS if name in sample]


def _attempts(
    sample: dict[str, Any], base: Row, metric: str | None, troubles: Troubles
) -> Iterator[Row]:
    """One row a repeat. A single value for several repeats is of none of them in particular."""
    texts = _texts(sample.get("resps"))
    answers = _first(sample.get("filtered_resps"))
    value = sample.get(metric) if metric else None
    outcomes = value if isinstance(value, list) else [value]
    repeats = max(len(texts), 1)
    if len(outcomes) != repeats:
        if value is not None:
            troubles.add(
                "samples of several answers with one value: `grade` decides", base.place, 1
            )
        outcomes = [None] * repeats
    gold = sample.get("target")
    for trial in range(repeats):
        right = values.truth(outcomes[trial])
        if right is None and outcomes[trial] is not None:
            troubles.add("values that are neither 0 nor 1: not graded", base.place)
        answer = answers[trial] if isinstance(answers, list) and trial < len(answers) else answers
        yield Row(
            base.task,
            base.model,
            base.question,
            base.place,
            trial=trial,
            outcome=None if right is None else "correct" if right else "wrong",
            answer=values.text(answer, values.MOST_ANSWER) if repeats == 1 or answers else None,
            text=texts[trial] if texts else None,
            gold=values.text(gold, values.MOST_ANSWER),
            problem=_problem(sample.get("doc")),
            prompt=_prompt(sample.get("arguments")),
            metric=metric or "no metric",
        )


def _texts(resps: Any) -> list[str | None]:
    """The completions of the first request, one a repeat; none for log-likelihood requests."""
    first = _first(resps)
    if isinstance(first, str):
        first = [first]
    if not isinstance(first, list) or not all(isinstance(text, str) for text in first):
        return []
    return [values.text(text, values.MOST_TEXT) for text in first[:10_000]]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _problem(doc: Any) -> str | None:
    if not isinstance(doc, dict):
        return None
    return next(
        (text for n in _PROBLEM if (text := values.text(doc.get(n), values.MOST_PROMPT))), None
    )


def _prompt(arguments: Any) -> str | None:
    if isinstance(arguments, dict):
        first = arguments.get("gen_args_0")
        return (
            values.text(first.get("arg_0"), values.MOST_PROMPT) if isinstance(first, dict) else None
        )
    inner = _first(_first(arguments))  # as older versions wrote them
    return values.text(inner, values.MOST_PROMPT)
