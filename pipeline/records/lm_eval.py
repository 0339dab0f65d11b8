"""Sample logs of lm-evaluation-harness: what `--log_samples` wrote, one object a question.

Each line has doc_id, doc, target, arguments, resps (for each request a list with one text a
repeat), filtered_resps, filter, the names of its metrics and their values.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.row import named, text, truth
from bayes_at_n.pipeline.records.source import Records, Source, Troubles, json_lines, shown

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
_METRICS = ("exact_match", "acc", "accuracy", "correct", "pass@1")
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
    cfg, runs = source.cfg.source, dict[Path, dict[str, Any]]()
    for path in sorted(source.files):  # dates sort as texts
        parts = _NAME.fullmatch(path.name)
        task = parts["task"] if parts else path.stem.removeprefix("samples_")
        runs[path] = {"task": task, "folder": path.parent, "model": _model(path)}
    samples = functools.partial(_filtered, cfg.filter, first, troubles)
    convert = functools.partial(_attempts, cfg.metric, troubles)
    yield from logs.read(source, first, troubles, runs, samples, convert)


def _model(path: Path) -> str:
    """The model, from the results file beside the samples, else from the folder's name."""
    parts = _NAME.fullmatch(path.name)
    pattern = f"results_{parts['date'] if parts else ''}*.json"
    for results in sorted(path.parent.glob(pattern), reverse=True):
        try:
            if results.stat().st_size <= _MOST_RESULTS:
                about = foreign.json_value(results.read_bytes())
                if isinstance(about, dict) and isinstance(about.get("model_name"), str):
                    return str(about["model_name"])
        except (OSError, ValueError):
            warn(f"{shown(results.name)}: unreadable; the model is named by its folder")
    return path.parent.resolve().name.replace("__", "/", 1)


def _filtered(
    chosen: str | None, first: bool, troubles: Troubles, path: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The samples of one filter, the first of the file where none is chosen."""
    filters: Counter[str] = Counter()  # how many samples each has
    for place, sample in json_lines(path, troubles):
        filters[filtered := str(sample.get("filter", "none"))] += 1
        chosen = filtered if chosen is None else chosen
        if filtered == chosen:
            yield place, sample
    if filters and chosen is not None and not filters.pop(chosen, 0):
        there = ", ".join(repr(shown(name)) for name in filters)
        raise UserError(f"filter={shown(chosen)}: not in {troubles.file(path)}, which has {there}")
    if filters and first:
        others = ", ".join(f"{shown(name)} ({number})" for name, number in filters.items())
        note(f"import: {path.name}: filter {shown(str(chosen))} counts, not {others}; filter=NAME")


def _attempts(
    metric: str | None, troubles: Troubles, run: dict[str, Any], sample: Any, place: str
) -> Iterator[dict[str, Any]]:
    """One a repeat. Without `metric=` what counts in the first sample of a run counts in all."""
    if named(sample.get("doc_id")) is None:
        raise ValueError("no doc_id")
    texts = _first(sample.get("resps"))  # of the first request; none for log-likelihoods
    texts = texts if isinstance(texts, list) else [texts]
    texts = texts[:_MOST_REPEATS] if all(isinstance(text, str) for text in texts) else []
    values = {
        name: sample[name] for name in (*sample.get("metrics", ()), *_METRICS) if name in sample
    }
    counts = metric or run.get("counts")
    if counts is None:
        order = sorted(values, key=lambda name: [*_METRICS, name].index(name))
        usable = (n for n in order if truth(values[n]) is not None or isinstance(values[n], list))
        counts = run["counts"] = next(usable, None)
    if metric is None:
        values = {counts: values.get(counts)} if counts else {}
    outcomes = logs.outcomes(values, counts, max(len(texts), 1), place, troubles)
    arguments = sample.get("arguments")
    request = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    prompt = request.get("arg_0") if isinstance(request, dict) else _first(arguments)
    answers = _first(sample.get("filtered_resps")) if texts else None
    if not isinstance(answers, list):  # one of several repeats, and which is not said
        answers = [answers] if len(texts) == 1 else []
    said, trials, doc = sample.get("trials"), list(range(len(outcomes))), sample.get("doc")
    trials = said if isinstance(said, list) and len(said) == len(trials) else trials  # of our logs
    ours = isinstance(doc, dict) and {"question_id", "problem", "gold"} <= doc.keys()
    for trial, outcome in enumerate(outcomes):
        yield {
            **run,
            **outcome,
            "question": doc["question_id"] if ours else sample["doc_id"],
            "trial": trials[trial],
            "answer": text(answers[trial]) if trial < len(answers) else None,
            "text": texts[trial] if texts else None,
            "gold": text(sample.get("target")),
            "problem": logs.problem(doc),
            "prompt": _first(prompt),
        }


def _first(value: Any) -> Any:
    return (value[0] if value else None) if isinstance(value, list) else value
