"""Completions as JSON Lines: outputs of NeMo-Skills, and requests and answers of OpenAI's API."""

import re
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.columns import content_of, truth
from bayes_at_n.pipeline.records.flat import is_json
from bayes_at_n.pipeline.records.source import Records, Source, json_lines, printable, start

_NEMO = re.compile(r"output(?:-rs(\d{1,9})|-greedy)?\.jsonl")
_NEMO_KEYS = re.compile(rb'"(symbolic_correct|predicted_answer|expected_answer|judgement)":')
_CHAT_KEYS = re.compile(rb'"(messages|choices|custom_id)":')
_METRICS = ("symbolic_correct", "judgement", "is_correct")
# Further fields of a line that are names of `columns.COLUMNS`.
_OF_NEMO = "problem expected_answer predicted_answer finish_reason num_input_tokens"
_OF_CHAT = "dataset task question_id trial seed outcome is_correct correct answer has_box problem"
_OF_CHAT += " gold gold_answer expected_answer ground_truth target"


def is_nemo(path: Path, head: bytes) -> bool:
    """Return whether a file with this head is an output of NeMo-Skills."""
    named = b'"generation":' in head or _NEMO.fullmatch(path.name)
    return bool(named and _NEMO_KEYS.search(head))


def is_chat(path: Path, head: bytes) -> bool:
    """Return whether a file with this head has requests or answers of OpenAI's API."""
    return is_json(path, head) and bool(_CHAT_KEYS.search(head))


def nemo(source: Source) -> Records:
    """Yield the attempts of NeMo-Skills' outputs, in which a file is a random seed and so a trial.

    The files do not name the model. Raises UserError: no such metric.
    """
    for folder in dict.fromkeys(path.parent for path in source.files):
        parts = [(_NEMO.fullmatch(p.name), p) for p in source.files if p.parent == folder]
        seeded = sorted((int(name[1]), path) for name, path in parts if name and name[1])
        if seeded and len(parts) > len(seeded):
            others = len(parts) - len(seeded)
            source.skipped.add("greedy or unfinished files left out", str(folder), others)
        questions = dict[str, int]()
        for trial, (_, path) in enumerate(seeded or parts):
            for place, line in json_lines(path, source.skipped):
                name = str(line.get("id") or line.get("problem") or place.rpartition(" ")[2])
                attempt = {"question": questions.setdefault(name, len(questions)), "trial": trial}
                values = {name: line[name] for name in _METRICS if name in line}
                if isinstance(text := values.get("judgement"), str) and truth(text) is None:
                    text = text.rpartition("Judgement:")[2]  # as NeMo-Skills parses its judge
                    values["judgement"] = text.strip().lower().startswith("yes")
                [outcome] = logs.outcomes(source, place, values)
                attempt |= {"task": folder.resolve().name} | outcome
                yield place, attempt | _generated(line, source.model_of(""))


def _generated(line: dict[str, Any], model: str) -> dict[str, Any]:
    text, reasoning = (line.get(key) for key in ("generation", "reasoning_content"))
    if isinstance(text, str) and isinstance(reasoning, str):
        text = logs.joined(reasoning, text, model)
    return {name: line.get(name) for name in _OF_NEMO.split()} | {
        "has_box": line["predicted_answer"] is not None if "predicted_answer" in line else None,
        "text": line.get("_full_generation") or text,
        "num_completion_tokens": line.get("num_generated_tokens"),
        "completion_logprob_list": line.get("logprobs"),
    }


def chats(source: Source) -> Records:
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
        prompt = "\n\n".join(str(text) for text in map(content_of, messages) if text)
        name = questions.setdefault(prompt or custom, custom or len(questions))
        extra = {"question_id": name, **_object(line.get("metadata")), **line}
        model_id = str(answer.get("model") or request.get("model") or "")
        common = {name: extra[name] for name in _OF_CHAT.split() if name in extra} | {
            "model": model_id,
            "reasoning_level": request.get("reasoning_effort"),
            "prompt": prompt,
        }
        for number, choice in enumerate(choices):
            key = hash((str(answer.get("id")), number))
            if answer.get("id") and key in seen:
                source.skipped.add("duplicates left out", place)
                continue
            seen.add(key)
            try:
                model = source.model_of(model_id)
                yield place, common | _chosen(answer, _object(choice), len(choices), model)
            except (LookupError, TypeError, AttributeError) as error:
                source.skipped.damaged(place, printable(one_line(error)))
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
