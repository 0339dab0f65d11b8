"""Requests to a server with OpenAI's interfaces, and its responses.

Every request sets all sampling parameters: servers fill in missing ones from the model's
generation_config.json or their own defaults, and ignore fields that they do not know. Pydantic
parses responses without conversions: a field of another type makes the response invalid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator

from bayes_at_n.pipeline.config.sampling import SamplingConfig
from bayes_at_n.pipeline.engines.client import Retryable

Body = dict[str, Any]
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
    echo: bool = False  # take log-probs of the prompt from its echo, as in OpenAI's interface

    @property
    def is_chat(self) -> bool:
        """Return whether the prompt is chat turns."""
        return bool(self.prompt) and isinstance(self.prompt[0], Mapping)

    @property
    def path(self) -> str:
        """Return the path of the interface, below `engine.url`."""
        return "/chat/completions" if self.is_chat else "/completions"

    def body(self, model: str) -> Body:
        """Return the JSON object to post; `model`: its name on the server."""
        s = self.sampling
        body: Body = {
            "model": model,
            "n": 1,
            "stream": False,
            "max_tokens": self.max_tokens,
            "return_token_ids": True,
            "temperature": s.temperature,
            "top_p": s.top_p,
            "top_k": s.top_k or -1,  # all servers accept -1 as no limit, not all accept 0
            "min_p": s.min_p,
            "repetition_penalty": s.repetition_penalty,
            "presence_penalty": s.presence_penalty,
            "frequency_penalty": s.frequency_penalty,
            "messages" if self.is_chat else "prompt": self.prompt,
        }
        if self.seed is not None:
            body["seed"] = self.seed
        if self.stop:
            body["stop"] = list(self.stop)
        if s.thinking_budget is not None:
            body["thinking_token_budget"] = s.thinking_budget
        if s.repetition_detection.max_pattern_size:
            body["repetition_detection"] = asdict(s.repetition_detection)
        if s.json_schema:
            named = {"name": "response", "schema": s.json_schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        if self.logprobs:
            body["logprobs"] = True if self.is_chat else 0
        if self.prompt_logprobs:
            body |= {"echo": True, "logprobs": 1} if self.echo else {"prompt_logprobs": 0}
        if self.labels:
            # vLLM returns these tokens; other servers return their twenty likeliest.
            body |= {"logprobs": 20, "logprob_token_ids": list(self.labels)}
            body["return_tokens_as_token_ids"] = True
        return body


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
    echoed: list[float | None] | None = None  # of the tokens of an echoed prompt and of the sample
    top_logprobs: dict[str, float] | None = None  # of the first token: by "token_id:N", or by text


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
    logprob: float


class _Logprobs(_Part):
    """Log-probs of a sample: `token_logprobs` of completions, or `content` of chats."""

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
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: Annotated[_Usage | None, WrapValidator(_or_none)] = None
    id: Any = None
    request_id: Any = None
    model: Any = None
    system_fingerprint: Any = None
    prompt_token_ids: list[_Id] | None = None


def read(data: bytes) -> Response:
    """Read a response in JSON. Raises Retryable: it is not valid."""
    try:
        raw = _Response.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        fields = (part for part in first["loc"] if isinstance(part, str))
        place = ascii(".".join(fields))[1:61] or first["type"]
        raise Retryable(f"answer that is not valid ({place})") from error
    [choice] = raw.choices
    message, usage = choice.message or _Message(content=choice.text), raw.usage or _Usage()
    logprobs, prompt = choice.logprobs or _Logprobs(), choice.prompt_logprobs
    echoed = logprobs.token_logprobs  # the first token of a prompt has none
    values = None if echoed is None else [value for value in echoed if value is not None]
    if values == echoed:
        echoed = None
    if logprobs.content is not None:
        values = [entry.logprob for entry in logprobs.content]
    if prompt is not None:
        own = [next(iter(entry.values()), None) if entry else None for entry in prompt]
    return Response(
        text=message.content,
        finish_reason=ascii(choice.finish_reason).strip("'")[:40],
        name=str(raw.id or raw.request_id or ""),
        model=str(raw.model or "")[:100],
        fingerprint=str(raw.system_fingerprint or "")[:100],
        reasoning=message.reasoning or message.reasoning_content or None,
        token_ids=choice.token_ids,
        logprobs=values if echoed is None else None,
        echoed=echoed,
        completion_tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        prompt_token_ids=choice.prompt_token_ids or raw.prompt_token_ids,
        prompt_logprobs=None if prompt is None else [one.logprob if one else None for one in own],
        top_logprobs=logprobs.top_logprobs[0] if logprobs.top_logprobs else None,
    )
