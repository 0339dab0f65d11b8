"""Every Eval Ever 0.3: lines of attempts, as `pipeline/records/eee.py` and others write them."""

from typing import Any

from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.source import Records, Source, Troubles, json_lines, shown
from bayes_at_n.pipeline.store.outcomes import OUTCOMES


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The attempts of all files; of several results of one evaluation the first counts."""
    for path in source.files:
        counts: dict[str, Any] = {}
        for place, line in json_lines(path, troubles):
            try:
                task, result = line["evaluation_name"], line.get("evaluation_result_id")
                if counts.setdefault(task, result) == result:
                    yield place, _attempt(line) | {"task": task}
                else:
                    troubles.add("lines of other results left out", place)
            except (LookupError, TypeError, AttributeError) as error:
                troubles.add("damaged rows skipped", f"{place} ({shown(one_line(error))})")


def _attempt(line: dict[str, Any]) -> dict[str, Any]:
    asked, said, used = line["input"], line.get("metadata") or {}, line.get("token_usage") or {}
    made, model = line.get("output") or {}, said.get("run") or line["model_id"]
    thought, answer = ((made.get(key) or [""])[0] for key in ("reasoning_trace", "raw"))
    right, outcome = line["evaluation"]["is_correct"], said.get("outcome")
    attempt = {name: said.get(name) for name in ("trial", "seed", "finish_reason")}
    attempt |= {"model": model, "question": line["sample_id"]}
    attempt |= {"problem": asked["raw"], "prompt": asked.get("formatted")}
    return attempt | {
        "gold": next(iter(asked["reference"]), None),
        "outcome": outcome if outcome in OUTCOMES else right,
        "answer": next((x["extracted_value"] for x in line["answer_attribution"][-1:]), None),
        "text": logs.joined(thought, answer, model),
        "num_prompt_tokens": used.get("input_tokens"),
        "num_completion_tokens": used.get("output_tokens"),
    }
