"""Reviews of evalscope, JSON Lines: reviews/MODEL/BENCHMARK_SUBSET.jsonl, a row per attempt.

The sampled output is in the file of the same name in predictions/.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.source import Records, Source, beside, json_lines

_KEYS = re.compile(rb'"(sample_score|model_output)":')
predictions = functools.partial(beside, "predictions")  # of a file of reviews


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file has reviews or predictions, by its folder or its keys."""
    placed = path.suffix == ".jsonl" and path.resolve().parent.parent.name in (
        "reviews",
        "predictions",
    )
    return head[:1] == b"{" and b'"index"' in head and (placed or bool(_KEYS.search(head)))


def read(source: Source) -> Records:
    """Yield the attempts of all reviews; of several evaluations of a model and subset, the latest.

    Raises UserError: predictions alone; no such metric.
    """
    runs = {p: _run(p) for p in sorted(source.files) if p.resolve().parts[-3] != "predictions"}
    if not runs:
        raise UserError(f"{source.path}: holds predictions only; import reviews/ beside them, too")
    rows = functools.partial(_rows, source)
    yield from logs.read(source, runs, rows, _attempts)


def _run(path: Path) -> logs.Run:
    """Return model, benchmark and subset; the benchmark is named as its report."""
    *above, _, model, _ = path.resolve().parts
    reports = Path(*above, "reports", model).glob("*.json")
    stems = [report.stem for report in reports if path.stem.startswith(f"{report.stem}_")]
    task = max(stems, key=len, default=path.stem.removesuffix("_default"))
    subset = path.stem[len(task) + 1 :]
    return {"task": task, "model": model, "subset": "" if subset == "default" else subset}


def _rows(source: Source, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the reviews of a file, each with its prediction."""
    file, predicted = predictions(path), dict[int, Any]()
    if file.is_file():
        with untrusted.memory_limit(file.stat().st_size):
            for _, line in json_lines(file, source.skipped):
                if isinstance(line.get("index"), int):
                    predicted[line["index"]] = line.get("model_output")
    for place, review in json_lines(path, source.skipped):
        index = review.get("index")
        review["output"] = predicted.get(index) if type(index) is int else None
        yield place, review


def _attempts(run: logs.Run, review: Any, outcomes: logs.Outcomes) -> Iterator[dict[str, Any]]:
    """Yield the attempt of a review."""
    subset, about = run["subset"], review["sample_score"]
    number = review["index"] if about.get("group_id") is None else about["group_id"]
    sent = (m["content"] for m in review.get("messages") or () if m["role"] != "assistant")
    texts = [text for text in (review.get("input"), *sent) if isinstance(text, str)]
    score, gold = about["score"], review["target"]
    values, main = score["value"], score.get("main_score_name")
    gold = None if gold == "*Same as Input*" else gold or None
    yield {
        "text": score.get("prediction"),
        **logs.answered(review["output"] or {}, run),
        **outcomes({main: values[main]} | values if main in values else values)[0],
        "question": f"{subset}-{number}" if subset else number,
        "trial": about.get("generation_index"),
        "answer": score.get("extracted_prediction"),
        "gold": gold[0] if isinstance(gold, list) else gold,
        "prompt": "\n\n".join(texts),
    }
