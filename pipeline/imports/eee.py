"""Every Eval Ever 0.3: lines of attempts, as `pipeline/exports/eee.py` and others write them."""

import functools
from collections.abc import Iterator
from typing import Any

from pipeline.imports import logs
from pipeline.imports.source import Records, Source, Troubles, json_lines
from pipeline.store.outcomes import OUTCOMES


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The attempts of all files; of several results of one evaluation the first counts."""
    for path in source.files:
        convert = functools.partial(_attempt, dict[Any, Any](), troubles)
        yield from logs.attempts(path, json_lines(path, troubles), convert, troubles)


def _attempt(
    counts: dict[Any, Any], troubles: Troubles, line: Any, place: str
) -> Iterator[dict[str, Any]]:
    task, result = line["evaluation_name"], line.get("evaluation_result_id")
    if counts.setdefault(task, result) != result:
        troubles.add("lines of other results left out", place)
        return
    asked, said, used = line["input"], line.get("metadata") or {}, line.get("token_usage") or {}
    made, model = line.get("output") or {}, said.get("run") or line["model_id"]
    thought, answer = ((made.get(key) or [""])[0] for key in ("reasoning_trace", "raw"))
    attempt = {name: said.get(name) for name in ("trial", "seed", "finish_reason")}
    attempt |= {"task": task, "model": model, "question": line["sample_id"]}
    attempt |= {"problem": asked["raw"], "prompt": asked.get("formatted")}
    yield attempt | {
        "gold": next(iter(asked["reference"]), None),
        "outcome": said["outcome"]
        if said.get("outcome") in OUTCOMES
        else line["evaluation"]["is_correct"],
        "answer": next((x["extracted_value"] for x in line["answer_attribution"][-1:]), None),
        "text": logs.joined(thought, answer, model),
        "num_prompt_tokens": used.get("input_tokens"),
        "num_completion_tokens": used.get("output_tokens"),
    }
