"""Every Eval Ever 0.3: lines of attempts, as `pipeline/exports/eee.py` and others write them."""

from typing import Any

from pipeline.imports import logs
from pipeline.imports.row import MOST_TEXT, text
from pipeline.imports.source import Records, Source, Troubles, json_lines
from pipeline.store.outcomes import OUTCOMES

_PARTS = ("input", "output", "evaluation", "token_usage", "metadata")


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The attempts of all files; of several results of one evaluation the first counts."""
    for path in source.files:
        counts: dict[Any, Any] = {}
        for place, line in json_lines(path, troubles):
            task, result = (text(line.get(f"evaluation_{key}")) for key in ("name", "result_id"))
            if counts.setdefault(task, result) != result:
                troubles.add("lines of other results left out", place)
                continue
            parts = (line.get(name) for name in _PARTS)
            asked, made, found, used, said = (x if isinstance(x, dict) else {} for x in parts)
            lists = (made.get("reasoning_trace"), made.get("raw"), asked.get("reference"))
            thought, answer, gold = (text(_one(x), MOST_TEXT) for x in lists)
            extracted, outcome = _one(line.get("answer_attribution")), said.get("outcome")
            model = text(said.get("run")) or text(line.get("model_id")) or ""
            yield (
                place,
                {
                    **{name: said.get(name) for name in ("trial", "seed", "finish_reason")},
                    **{
                        "task": task,
                        "model": model,
                        "question": line.get("sample_id"),
                        "gold": gold,
                    },
                    **{"problem": asked.get("raw"), "prompt": asked.get("formatted")},
                    "outcome": outcome if outcome in OUTCOMES else found.get("is_correct"),
                    "answer": extracted.get("extracted_value")
                    if isinstance(extracted, dict)
                    else None,
                    "text": logs.joined(thought, answer or "", model),
                    "num_prompt_tokens": used.get("input_tokens"),
                    "num_completion_tokens": used.get("output_tokens"),
                },
            )


def _one(value: Any) -> Any:
    """The last of a list, what is none itself."""
    return (value or [None])[-1] if isinstance(value, list) else value
