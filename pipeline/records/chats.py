"""Chats as JSON Lines: requests and answers of OpenAI's API."""

import re
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.columns import LISTED, ORDERED, OUTCOMES, chat_text
from bayes_at_n.pipeline.records.flat import is_json
from bayes_at_n.pipeline.records.source import ONE_VALUE, Records, Source, json_lines, start

_KEYS = re.compile(rb'"(messages|choices|custom_id)":')
# Further fields of a line that are names of `columns.COLUMNS`.
_FIELDS = "dataset task question_id trial seed outcome is_correct correct answer has_box problem"
_FIELDS += " gold gold_answer expected_answer ground_truth target"


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file with this head has requests or answers of OpenAI's API."""
    return is_json(path, head) and bool(_KEYS.search(head))


def read(source: Source) -> Records:
    """Yield the attempts of chats: each choice is a trial, equal messages are one question."""
    requests: dict[str, Any] = {}  # of batches, whose answers are separate, by custom_id
    questions: dict[str, Any] = {}  # names by prompts
    seen = set[int]()
    files = sorted(source.files, key=lambda path: b'"response":' in start(path))
    for place, line in (pair for path in files for pair in json_lines(path, source.skipped)):
        custom, response = str(line.get("custom_id", "")), _object(line.get("response"))
        request = _object(line.get("request")) or _object(line.get("body")) or line
        if "body" in line and "response" not in line:
            requests[custom] = request
            continue
        request, answer = requests.get(custom, request), response or line
        answer = _object(answer.get("body")) or answer
        messages, choices = request.get("messages", request.get("prompt")), answer.get("choices")
        messages = messages if isinstance(messages, list) else [messages]
        if choices is None and messages and _object(messages[-1]).get("role") == "assistant":
            messages, choices = messages[:-1], [{**line, "message": messages[-1]}]
        if not isinstance(choices, list) or not choices:
            other = answer.get("object") == "response"
            what = "answers of /v1/responses (not read)" if other else "requests without an answer"
            source.skipped.add(f"{what} left out", place)
            continue
        if requests and custom not in requests and messages == [None]:
            what = "answers without a request here: each custom_id is a question"
            source.skipped.add(what, place)
        prompt = "\n\n".join(str(chat_text(turn)) for turn in messages if turn)
        name = questions.setdefault(prompt or custom, custom or len(questions))
        extra = {"question_id": name, **_object(line.get("metadata")), **line}
        model_id = str(answer.get("model") or request.get("model") or "")
        common = {name: extra[name] for name in _FIELDS.split() if name in extra} | {
            "model": model_id,
            "reasoning_level": request.get("reasoning_effort"),
            "prompt": prompt,
        }
        if len(choices) > 1:  # what a line says of one answer is of none of several
            if OUTCOMES & common.keys():
                source.skipped.add(ONE_VALUE, place)
            common = {key: common[key] for key in common.keys() - ORDERED - LISTED}
        for number, choice in enumerate(choices):
            key = hash((str(answer.get("id")), number))
            if answer.get("id") and key in seen:
                source.skipped.add("duplicates left out", place)
                continue
            seen.add(key)
            try:
                model = source.model_of(model_id)
                yield place, common | _chosen(answer, _object(choice), len(choices), model)
            except (LookupError, ValueError, AttributeError) as error:
                source.skipped.damaged(place, one_line(error))
    if requests and not questions:
        raise UserError(f"{source.path}: holds requests only; put the answers beside them")


def _chosen(answer: Any, choice: dict[str, Any], choices: int, model: str) -> dict[str, Any]:
    """Return the fields of one choice of an answer."""
    usage = _object(answer.get("usage"))
    read = logs.answered({"choices": [choice], "usage": usage}, {"model": model})
    probs, ids = _object(choice.get("logprobs")), choice.get("token_ids")
    values = probs.get("token_logprobs") or [one["logprob"] for one in probs.get("content") or ()]
    if choices > 1:  # `usage` covers all together
        read["num_completion_tokens"] = len(ids or values) or None
    return read | {"completion_token_list": ids, "completion_logprob_list": values or None}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
