"""How to write requests to a server and read its responses, in four dialects.

Every request sets all sampling parameters: servers fill in missing ones from the model's
generation_config.json or their own defaults, and ignore fields that they do not know. Pydantic
parses responses without conversions: a field of another type makes the response invalid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator

from bayes_at_n.pipeline.config.sampling import SamplingConfig
from bayes_at_n.pipeline.engines.client import Retryable

Body = dict[str, Any]
Data = bytes | Mapping[str, Any]  # JSON, or what was parsed from it
FILTERED = "content_filter"  # finish reason of a completion that the server withholds


@dataclass(frozen=True)
class SampleRequest:
    """One sample to request: prompt (token ids or chat turns), token limit and seed."""

    prompt: list[int] | list[dict[str, str]]
    max_tokens: int
    seed: int | None
    sampling: SamplingConfig
    logprobs: bool = False
    prompt_logprobs: bool = False
    labels: Sequence[int] = ()  # tokens to score as the next one
    stop: Sequence[str] = ()  # strings that end it


@dataclass(frozen=True)
class Response:
    """A server's response; None: not in the response. Log-probs are natural."""

    text: str | None
    finish_reason: str
    name: str = ""  # of the request, as the server repeats it
    model: str = ""  # the model's name, if the server gives it
    named: bool = False  # whether `name` holds the name that we sent
    fingerprint: str = ""  # of the server and its settings, if it gives one
    reasoning: str | None = None  # text before the answer, if the server splits it off
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[float | None] | None = None
    echoed: list[float | None] | None = None  # of a prompt that is repeated, and of the sample
    top_logprobs: dict[str, float] | None = None  # of the first token: by "token_id:N", or by text


@dataclass(frozen=True)
class Dialect:
    """One interface of servers: its path, and how to write requests and read responses.

    `read` raises Retryable: the response is not valid.
    """

    path: str
    write: Callable[[str, SampleRequest], Body]
    read: Callable[[Data], Response]
    tokens: bool  # whether prompts are token ids


def _sampling(request: SampleRequest) -> Body:
    s = request.sampling
    optional: Body = {} if request.seed is None else {"seed": request.seed}
    if request.stop:
        optional["stop"] = list(request.stop)
    if s.thinking_budget is not None:
        optional["thinking_token_budget"] = s.thinking_budget
    if s.repetition_detection.max_pattern_size:
        optional["repetition_detection"] = asdict(s.repetition_detection)
    return {
        "temperature": s.temperature,
        "top_p": s.top_p,
        "top_k": s.top_k or -1,  # all servers accept -1 as no limit, not all accept 0
        "min_p": s.min_p,
        "repetition_penalty": s.repetition_penalty,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
    } | optional


def _openai(model: str, request: SampleRequest) -> Body:
    body = {"model": model, "n": 1, "stream": False, "max_tokens": request.max_tokens}
    return body | {"return_token_ids": True} | _sampling(request)


def _completions(model: str, request: SampleRequest) -> Body:
    body = _openai(model, request) | {"prompt": request.prompt}
    if request.logprobs:
        body["logprobs"] = 0
    if request.prompt_logprobs:
        body["prompt_logprobs"] = 0
    if request.labels:
        # vLLM returns these tokens; other servers return their twenty likeliest.
        body |= {"logprobs": 20, "logprob_token_ids": list(request.labels)}
        body["return_tokens_as_token_ids"] = True
    return body


def _chat(model: str, request: SampleRequest) -> Body:
    logprobs = {"logprobs": True} if request.logprobs else {}
    return _openai(model, request) | {"messages": request.prompt} | logprobs


def _vllm(model: str, request: SampleRequest) -> Body:
    params = _sampling(request) | {"max_tokens": request.max_tokens}
    params["detokenize"] = bool(request.stop)
    if request.logprobs:
        params["logprobs"] = 0
    return {"model": model, "token_ids": request.prompt, "sampling_params": params}


def _sglang(model: str, request: SampleRequest) -> Body:
    params = _sampling(request) | {"max_new_tokens": request.max_tokens}
    if "seed" in params:
        params["sampling_seed"] = params.pop("seed")
    body: Body = {"input_ids": request.prompt, "sampling_params": params}
    if request.logprobs or request.prompt_logprobs or request.labels:
        body["return_logprob"] = True
        body["logprob_start_len"] = 0 if request.prompt_logprobs else -1
    if request.labels:
        body["token_ids_logprob"] = list(request.labels)
    return body


def _or_none(value: Any, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(value)
    except ValidationError:
        return None


_Id = Annotated[int, Field(ge=0, lt=1 << 31)]
_Count = Annotated[_Id | None, WrapValidator(_or_none)]  # a server need not count


class _Part(BaseModel):
    """A part of a response; fields that it does not name are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Usage(_Part):
    completion_tokens: _Count = None
    prompt_tokens: _Count = None


class _Logprob(_Part):
    """A token's entry in the lists of chats and of prompts."""

    logprob: float
    token: Any = None
    id: _Id | None = None  # llama.cpp's
    token_id: _Id | None = None
    top_logprobs: "list[_Logprob] | None" = None

    @property
    def name(self) -> str:
        number = self.id if self.token_id is None else self.token_id
        return str(self.token) if number is None else f"token_id:{number}"


class _Logprobs(_Part):
    """Log-probs of a sample, in the shape of completions or of chats."""

    token_logprobs: list[float | None] | None = None
    top_logprobs: Annotated[list[dict[str, float] | None] | None, WrapValidator(_or_none)] = None
    content: list[_Logprob] | None = None


class _Message(_Part):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(_Part):
    finish_reason: Any = None
    text: str | None = None
    message: _Message | None = None
    token_ids: list[_Id] | None = None
    logprobs: _Logprobs | None = None
    prompt_token_ids: list[_Id] | None = None
    # vLLM's {token: log-prob}, the prompt's own token first.
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


class _Response(_Part):
    """A response of OpenAI's interfaces, or of vLLM's for token ids."""

    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: Annotated[_Usage | None, WrapValidator(_or_none)] = None
    id: Any = None
    request_id: Any = None
    model: Any = None
    system_fingerprint: Any = None
    prompt_token_ids: list[_Id] | None = None


_Triple = tuple[float | None, _Id, Any]  # SGLang's [log-prob, token, text]


class _Meta(_Part):
    id: Any = ""
    finish_reason: Any = None
    completion_tokens: _Count = None
    prompt_tokens: _Count = None
    output_token_logprobs: list[tuple[float, _Id, Any]] | None = None
    input_token_logprobs: list[_Triple] | None = None
    output_token_ids_logprobs: list[list[_Triple] | None] | None = None


class _SglangResponse(_Part):
    meta_info: _Meta
    text: str | None = None
    output_ids: list[_Id] | None = None


Shape = TypeVar("Shape", bound=BaseModel)


def _parse(shape: type[Shape], data: Data) -> Shape:
    """Parse a response. Raises Retryable: it has another shape."""
    try:
        if isinstance(data, bytes):
            return shape.model_validate_json(data)
        return shape.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise Retryable("answer that is no JSON") from error
        field = ascii(".".join(part for part in first["loc"] if isinstance(part, str)))[1:-1]
        fault = f"with wrong {field[:60]}" if field else "that is no JSON object"
        raise Retryable(f"answer {fault}") from error


def _read(data: Data) -> Response:
    """Read a response of OpenAI's interfaces or of vLLM's for token ids."""
    raw = _parse(_Response, data)
    [choice] = raw.choices
    message, usage = choice.message or _Message(content=choice.text), raw.usage or _Usage()
    prompt = choice.prompt_logprobs
    response = Response(
        text=message.content,
        finish_reason=_reason(choice.finish_reason),
        name=str(raw.id or raw.request_id or ""),
        model=str(raw.model or "")[:100],
        fingerprint=str(raw.system_fingerprint or "")[:100],
        reasoning=message.reasoning or message.reasoning_content or None,
        token_ids=choice.token_ids,
        completion_tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        prompt_token_ids=choice.prompt_token_ids or raw.prompt_token_ids,
        prompt_logprobs=None if prompt is None else [_first(entry) for entry in prompt],
    )
    return response if choice.logprobs is None else _with_logprobs(response, choice.logprobs)


def _first(entry: dict[str, _Logprob] | None) -> float | None:
    return next((own.logprob for own in entry.values()), None) if entry else None


def _with_logprobs(response: Response, logprobs: _Logprobs) -> Response:
    """Add log-probs, in either of their two shapes, to a response."""
    if logprobs.content is None:
        top = logprobs.top_logprobs[0] if logprobs.top_logprobs else None
        known = [value for value in logprobs.token_logprobs or () if value is not None]
        if len(known) < len(logprobs.token_logprobs or ()):  # a prompt's first token has none
            return replace(response, echoed=logprobs.token_logprobs)
        values = None if logprobs.token_logprobs is None else known
        return replace(response, logprobs=values, top_logprobs=top)
    entries, ids, top = logprobs.content, response.token_ids, None
    # llama.cpp, which leaves out tokens that split a character.
    whole = response.completion_tokens in (None, len(entries))
    numbers = [entry.id for entry in entries if entry.id is not None]
    if ids is None and entries and whole and len(numbers) == len(entries):
        ids = numbers
    if entries and entries[0].top_logprobs is not None:
        top = {entry.name: entry.logprob for entry in entries[0].top_logprobs}
    values = [entry.logprob for entry in entries]
    return replace(response, token_ids=ids, logprobs=values, top_logprobs=top)


def _read_sglang(data: Data) -> Response:
    raw = _parse(_SglangResponse, data)
    meta = raw.meta_info
    reason, sampled = meta.finish_reason, meta.output_token_logprobs
    prompt, labels = meta.input_token_logprobs, meta.output_token_ids_logprobs
    top = {f"token_id:{token}": v for v, token, *_ in (labels or [None])[0] or () if v is not None}
    return Response(
        text=raw.text or "",
        finish_reason=_reason(reason.get("type") if isinstance(reason, dict) else reason),
        name=str(meta.id),
        token_ids=raw.output_ids,
        logprobs=None if sampled is None else [value for value, *_ in sampled],
        completion_tokens=meta.completion_tokens,
        prompt_tokens=meta.prompt_tokens,
        prompt_logprobs=None if prompt is None else [value for value, *_ in prompt],
        top_logprobs=top or None,
    )


def _reason(value: Any) -> str:
    return ascii(value)[1:-1][:40] if isinstance(value, str) else str(value)[:40]


DIALECTS = {
    "completions": Dialect("/v1/completions", _completions, _read, tokens=True),
    "chat": Dialect("/v1/chat/completions", _chat, _read, tokens=False),
    "vllm": Dialect("/inference/v1/generate", _vllm, _read, tokens=True),
    "sglang": Dialect("/generate", _sglang, _read_sglang, tokens=True),
}
