"""How a request is put to a server and its answer read: three interfaces, four dialects.

Everything that shapes a sample is said in every request. Servers fill what is left open from the
model's generation_config.json or defaults of their own, and pass over fields that they do not know.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bayes_at_n.pipeline.config.settings import SamplingConfig
from bayes_at_n.pipeline.engines.http import Later

Body = dict[str, Any]
FILTERED = "content_filter"  # the finish reason of an answer that the server withholds
_MOST_ID = 1 << 31


@dataclass(frozen=True)
class Ask:
    """One sample that is wanted: of tokens or of chat turns, so long at most, with this seed."""

    prompt: list[int] | list[dict[str, str]]
    max_tokens: int
    seed: int | None
    sampling: SamplingConfig
    logprobs: bool = False
    prompt_logprobs: bool = False
    labels: Sequence[int] = ()  # tokens whose log-probs are wanted, as the next one
    stop: Sequence[str] = ()  # texts that end it


@dataclass(frozen=True)
class Answer:
    """What a server made of it; None where it does not say. Log-probs are natural."""

    text: str | None
    finish_reason: str
    name: str = ""  # that the server gave the request
    model: str = ""  # the model's name, where the server says it
    named: bool = False  # whether that is the name we gave it
    fingerprint: str = ""  # of the server and its settings, where it says one
    reasoning: str | None = None  # what stood before the text, where the server takes it apart
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[float | None] | None = None
    tops: dict[str, float] | None = None  # of the first token: by "token_id:N", or by text


@dataclass(frozen=True)
class Dialect:
    """An interface of servers: where it is (from the root, or below /v1), how to write and read."""

    path: str
    write: Callable[[str, Ask], Body]
    read: Callable[[Mapping[str, Any]], Answer]
    tokens: bool  # whether prompts are token ids


def _sampling(ask: Ask) -> Body:
    s = ask.sampling
    said: Body = {} if ask.seed is None else {"seed": ask.seed}
    if ask.stop:
        said["stop"] = list(ask.stop)
    return {
        "temperature": s.temperature,
        "top_p": s.top_p,
        "top_k": s.top_k or -1,  # all servers take -1 for no limit; not all take 0
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    } | said


def _completions(model: str, ask: Ask) -> Body:
    body = {"model": model, "prompt": ask.prompt, "n": 1, "stream": False}
    body |= _sampling(ask) | {"max_tokens": ask.max_tokens, "return_token_ids": True}
    if ask.logprobs:
        body["logprobs"] = 0
    if ask.prompt_logprobs:
        body["prompt_logprobs"] = 0
    if ask.labels:
        # vLLM looks these tokens up; other servers give their twenty likeliest.
        body |= {"logprobs": 20, "logprob_token_ids": list(ask.labels)}
        body["return_tokens_as_token_ids"] = True
    return body


def _chat(model: str, ask: Ask) -> Body:
    body = {"model": model, "messages": ask.prompt, "n": 1, "stream": False}
    body |= _sampling(ask) | {"max_tokens": ask.max_tokens, "return_token_ids": True}
    if ask.logprobs:
        body["logprobs"] = True
    return body


def _vllm(model: str, ask: Ask) -> Body:
    params = _sampling(ask) | {"max_tokens": ask.max_tokens, "detokenize": bool(ask.stop)}
    if ask.logprobs:
        params["logprobs"] = 0
    return {"model": model, "token_ids": ask.prompt, "sampling_params": params}


def _sglang(model: str, ask: Ask) -> Body:
    params = _sampling(ask) | {"max_new_tokens": ask.max_tokens}
    if "seed" in params:
        params["sampling_seed"] = params.pop("seed")
    body: Body = {"input_ids": ask.prompt, "sampling_params": params}
    if ask.logprobs or ask.prompt_logprobs or ask.labels:
        body["return_logprob"] = True
        body["logprob_start_len"] = 0 if ask.prompt_logprobs else -1
    if ask.labels:
        body["token_ids_logprob"] = list(ask.labels)
    return body


def _read_completions(data: Mapping[str, Any]) -> Answer:
    choice = _choice(data)
    logprobs = choice.get("logprobs")
    answer = replace(
        _usage(data, choice),
        text=_text(choice.get("text")),
        prompt_token_ids=_ids(choice.get("prompt_token_ids")),
        prompt_logprobs=_prompt_logprobs(choice.get("prompt_logprobs")),
    )
    if isinstance(logprobs, Mapping) and "token_logprobs" in logprobs:
        tops = logprobs.get("top_logprobs")
        first = tops[0] if isinstance(tops, list) and tops else None
        values = logprobs["token_logprobs"]
        return replace(answer, logprobs=_numbers(values), tops=_tops(first))
    return _contents(answer, logprobs)


def _read_chat(data: Mapping[str, Any]) -> Answer:
    choice = _choice(data)
    message = _mapping(choice.get("message"), "message")
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    answer = replace(
        _usage(data, choice),
        text=_text(message.get("content")),
        reasoning=_text(reasoning) or None,
        prompt_token_ids=_ids(data.get("prompt_token_ids")),
    )
    return _contents(answer, choice.get("logprobs"))


def _read_vllm(data: Mapping[str, Any]) -> Answer:
    choice = _choice(data)
    answer = replace(
        _usage(data, choice),
        text=None,
        name=str(data.get("request_id", "")),
    )
    return _contents(answer, choice.get("logprobs"))


def _read_sglang(data: Mapping[str, Any]) -> Answer:
    meta = _mapping(data.get("meta_info"), "meta_info")
    reason = meta.get("finish_reason")
    sampled, before = meta.get("output_token_logprobs"), meta.get("input_token_logprobs")
    looked_up = meta.get("output_token_ids_logprobs")
    first = _triples(looked_up[0]) if isinstance(looked_up, list) and looked_up else []
    return Answer(
        text=_text(data.get("text")),
        finish_reason=_reason(reason.get("type") if isinstance(reason, Mapping) else reason),
        name=str(meta.get("id", "")),
        token_ids=_ids(data.get("output_ids")),
        logprobs=None if sampled is None else _numbers([v for v, _ in _triples(sampled)]),
        completion_tokens=_count(meta.get("completion_tokens")),
        prompt_tokens=_count(meta.get("prompt_tokens")),
        prompt_logprobs=None if before is None else [v for v, _ in _triples(before)],
        tops=_tops({f"token_id:{token}": v for v, token in first}) or None,
    )


DIALECTS = {
    "completions": Dialect("/v1/completions", _completions, _read_completions, tokens=True),
    "chat": Dialect("/v1/chat/completions", _chat, _read_chat, tokens=False),
    "vllm": Dialect("/inference/v1/generate", _vllm, _read_vllm, tokens=True),
    "sglang": Dialect("/generate", _sglang, _read_sglang, tokens=True),
}


def _choice(data: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise Later("answer with no choices" if not choices else "answer with several choices")
    return _mapping(choices[0], "choice")


def _usage(data: Mapping[str, Any], choice: Mapping[str, Any]) -> Answer:
    """What every OpenAI-like answer says beside the text."""
    usage = data.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return Answer(
        text=None,
        finish_reason=_reason(choice.get("finish_reason")),
        name=str(data.get("id", "")),
        model=str(data.get("model") or "")[:100],
        fingerprint=str(data.get("system_fingerprint") or "")[:100],
        token_ids=_ids(choice.get("token_ids")),
        completion_tokens=_count(usage.get("completion_tokens")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
    )


def _contents(answer: Answer, logprobs: Any) -> Answer:
    """With log-probs as the chat interface lists them: {"content": [{"logprob": ...}, ...]}."""
    contents = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(contents, list):
        return answer
    entries = [_mapping(entry, "log-prob") for entry in contents]
    ids = answer.token_ids
    # llama.cpp; where a letter is cut in two it leaves tokens out.
    whole = answer.completion_tokens in (None, len(entries))
    if ids is None and entries and whole and all("id" in entry for entry in entries):
        ids = _ids([entry["id"] for entry in entries])
    tops = None
    if entries and isinstance(entries[0].get("top_logprobs"), list):
        first = [_mapping(top, "log-prob") for top in entries[0]["top_logprobs"]]
        tops = _tops({_token(top): top.get("logprob") for top in first})
    values = _numbers([entry.get("logprob") for entry in entries])
    return replace(answer, token_ids=ids, logprobs=values, tops=tops)


def _token(top: Mapping[str, Any]) -> str:
    number = top.get("token_id", top.get("id"))
    return str(top.get("token")) if number is None else f"token_id:{number}"


def _tops(value: Any) -> dict[str, float] | None:
    if not isinstance(value, Mapping):
        return None
    return dict(zip(map(str, value), _numbers(list(value.values())) or (), strict=True))


def _triples(value: Any) -> list[tuple[float | None, int]]:
    """SGLang's [log-prob, token, text]."""
    if not isinstance(value, list):
        raise Later("answer with log-probs that are no list")
    try:
        return [(None if v is None else float(v), int(token)) for v, token, *_ in value]
    except (TypeError, ValueError, OverflowError) as error:
        raise Later("answer with log-probs that are no numbers") from error


def _prompt_logprobs(value: Any) -> list[float | None] | None:
    """vLLM's list of {token: {"logprob": ...}}: the prompt's own token comes first."""
    if not isinstance(value, list):
        return None
    entries = [next(iter(e.values()), None) if isinstance(e, Mapping) else None for e in value]
    values = [entry.get("logprob") if isinstance(entry, Mapping) else None for entry in entries]
    return [None if v is None else n for v, n in zip(values, _filled(values), strict=True)]


def _filled(values: list[Any]) -> list[float]:
    return _numbers([0.0 if value is None else value for value in values]) or []


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Later(f"answer whose {what} is no object")
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Later("answer whose text is no text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a pair
        raise Later("answer whose text is no text") from error
    return value


def _reason(value: Any) -> str:
    return ascii(value)[1:-1][:40] if isinstance(value, str) else str(value)[:40]


def _ids(value: Any) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(i) is int and 0 <= i < _MOST_ID for i in value):
        raise Later("answer with token ids that are none")
    return value


def _numbers(value: Any) -> list[float] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < math.inf for v in value
    ):
        raise Later("answer with log-probs that are no numbers")
    try:
        return [float(v) for v in value]
    except OverflowError as error:
        raise Later("answer with log-probs that are no numbers") from error


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST_ID else None
