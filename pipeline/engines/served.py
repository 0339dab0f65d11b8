"""A model on a server with OpenAI's interfaces: requests, responses, and checks that they fit.

Every request sets all sampling parameters: servers fill in missing ones from the model's
generation_config.json or their own defaults, and ignore fields that they do not know. Pydantic
parses responses without conversions: a field of another type makes the response invalid.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator

from bayes_at_n.pipeline.base.errors import Replaced, TryAgain, UserError, did_you_mean
from bayes_at_n.pipeline.config.protocol import SamplingConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines.client import MOST_BYTES, Client, Rejected, Retryable
from bayes_at_n.pipeline.prepare.models import Facts

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


CHAT = "If it refuses token ids as prompts, engine.api=chat sends chat turns instead"
_CUT = 0.9  # of the most tokens counted for a prompt: with fewer it was truncated
_BYTES_A_TOKEN = 2048  # the most that any interface writes per token


async def facts(client: Client, cfg: RunConfig) -> Facts:
    """Return what a server serves as `engine.served_name` or `model.id`; `api` is `engine.api`.

    Raises:
        UserError: it serves several models and none has that name.
        TryAgain: it does not answer.
    """
    cards = {str(c.get("id")): c for c in await client.models() if isinstance(c, Mapping)}
    name = _name(cfg, client, cards)
    context = cards.get(name, {}).get("max_model_len")
    return Facts(
        api=cfg.engine.api,
        served_name=name,
        context=context if type(context) is int and context > 0 else None,
        software="vllm" if cards.get(name, {}).get("owned_by") == "vllm" else "",
    )


def _name(cfg: RunConfig, client: Client, cards: Mapping[str, Any]) -> str:
    name = cfg.engine.served_name
    if name is None and len(cards) == 1:
        return next(iter(cards))
    if not cards or (name or cfg.model.id) in cards:
        return name or cfg.model.id
    hint = did_you_mean(name or cfg.model.id, cards, all_are="it serves")
    raise UserError(
        f"{cfg.engine.key}.served_name={name}: {client.url} serves no model called"
        f" {name or cfg.model.id} ({hint}); name one"
    )


async def choose(client: Client, server: Facts, token_ids: list[int] | None) -> Facts:
    """Choose the interface if `engine.api` is "auto": token ids if the server accepts them.

    Samples one token. `token_ids`: any prompt from the model's tokenizer; None without one.
    """
    if server.api != "auto":
        return server

    async def one_token(path: str, prompt: Body) -> Response:
        body = {"model": server.served_name, "max_tokens": 1, "stream": False} | prompt
        return await client.send(path, body, lambda data, _: read(data), probing=True)

    if token_ids is not None:
        try:
            response = await one_token("/completions", {"prompt": token_ids})
            # A server that reads the ids as text counts another number of tokens.
            if response.prompt_tokens in (None, len(token_ids)):
                return replace(server, api="completions")
        except Rejected as error:
            if error.status not in (400, 404, 405, 422):
                raise
        except TryAgain as error:
            raise TryAgain(f"{error}. {CHAT}") from error
    try:
        turns = [{"role": "user", "content": "1 + 1 ="}]
        await one_token("/chat/completions", {"messages": turns})
    except Rejected as error:
        if error.status not in (400, 422):  # about fields, which the probe drops
            raise
    return replace(server, api="chat")


async def connect(client: Client, cfg: RunConfig, longest: int, rows: Sequence[Any]) -> "Model":
    """Return the model of a run on its server.

    Args:
        client: the server's client.
        cfg: the configuration.
        longest: the most tokens of any request, prompt and completion together.
        rows: the questions table, with token ids or chat turns; if empty, token ids.

    Raises UserError: the prompts do not suit `engine.api`, or the server's context is too short.
    """
    api, chat = cfg.engine.api, bool(rows) and rows[0]["prompt_token_ids"] is None
    if rows and api != "auto" and (api == "chat") != chat:
        prompts = "chat turns" if chat else "token ids"
        raise UserError(
            f"engine.api={api}: the prompts of this run are {prompts}; leave it out, or start a new"
            " run with tag=NAME"
        )
    server = replace(await facts(client, cfg), api="chat" if chat else "completions")
    s, vllms = cfg.sampling, "sampling.thinking_budget and sampling.repetition_detection"
    used = s.thinking_budget is not None or s.repetition_detection.max_pattern_size
    if used and server.software != "vllm":
        raise UserError(f"{client.setting}: {vllms} need a vLLM server; leave them out")
    if server.context is not None and server.context < longest:
        raise UserError(
            f"{client.setting}: its context is {server.context} tokens, and {longest} are needed;"
            " serve it with more (vLLM: --max-model-len), or lower sampling.max_tokens"
        )
    extra = dict(cfg.engine.args)
    if chat and cfg.model.chat_template_kwargs:
        extra["chat_template_kwargs"] = dict(cfg.model.chat_template_kwargs)
    if not cfg.model.skip_special_tokens:
        extra["skip_special_tokens"] = False
    return Model(client, server, extra)


class Model:
    """One model on a server, which samples and checks responses.

    Attributes:
        extra: fields that are added to every request.
        dropped: optional fields that the server does not accept; its own defaults apply.
        renamed: fields that it has under another name.
        echo: whether log-probs of prompts are those of an echo.
        gives: fields required of every response, as in the probe, of `openai._CHECKED`.
        vocabulary: the number of token ids.
    """

    def __init__(self, client: Client, facts: Facts, extra: Body) -> None:
        self.client, self.facts, self.extra = client, facts, extra
        self.dropped: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.echo = False
        self.gives: frozenset[str] = frozenset()
        self.vocabulary = math.inf
        self._counted: dict[str, int] = {}  # prompt tokens, by chat turns

    async def send(self, request: SampleRequest, probing: bool = False) -> Response:
        """Return a response that fits the request. Raises: see `Client.send`."""
        request = replace(request, echo=self.echo)
        body = request.body(self.facts.served_name) | self.extra
        body = {self.renamed.get(k, k): v for k, v in body.items() if k not in self.dropped}

        def checked(data: bytes, name: str) -> Response:
            response = read(data)
            response = replace(response, named=name in response.name)
            if request.echo and request.prompt_logprobs:
                response = _echoed(request, response)
            fault = self._miscounts(request, response)
            if response.finish_reason == FILTERED:  # its text may have been removed
                response = replace(response, token_ids=None, logprobs=None)
            else:
                fault = fault or _mismatch(request, response) or self._missing(request, response)
            if fault:
                raise Retryable(f"answer {fault}")
            return response

        tokens = request.max_tokens + len(request.prompt) * request.prompt_logprobs
        most = MOST_BYTES + _BYTES_A_TOKEN * tokens
        return await self.client.send(request.path, body, checked, most, probing)

    def _miscounts(self, request: SampleRequest, response: Response) -> str:
        """Return a fault in the count of prompt tokens or in a token id; empty if there is none."""
        if max(response.token_ids or [0]) >= self.vocabulary:
            return "with a token outside the vocabulary"
        expected = count = response.prompt_tokens
        if not request.is_chat:
            expected = len(request.prompt)
        elif count is not None:  # equal turns have equal counts, but for a date in the template
            turns = json.dumps(request.prompt)
            most = self._counted.setdefault(turns, count)
            if most < _CUT * count:
                raise Replaced(
                    f"{self.client.setting}: read {most} and {count} tokens of one prompt: it"
                    " truncates prompts"
                )
            self._counted[turns] = max(most, count)
            expected = most if count < _CUT * most else count
        wrong = count not in (None, expected)
        return f"to {count} prompt tokens instead of {expected}" if wrong else ""

    def _missing(self, request: SampleRequest, response: Response) -> str:
        if "named" in self.gives and not response.named:
            return "to another request"
        if "token_ids" in self.gives and response.token_ids is None and response.echoed is None:
            return "without token ids"
        if "logprobs" in self.gives and request.logprobs and response.logprobs is None:
            return "without log-probs"
        needed = "prompt_logprobs" in self.gives and request.prompt_logprobs
        if needed and response.prompt_logprobs is None:
            return "without log-probs of its prompt"
        return ""


def _echoed(request: SampleRequest, response: Response) -> Response:
    """Return a response with the log-probs of its prompt, of which its own are the beginning."""
    values, size = response.echoed or [], len(request.prompt)
    prompt = values[:size] if len(values) > size else None
    return replace(response, prompt_logprobs=prompt, token_ids=None, completion_tokens=None)


def _mismatch(request: SampleRequest, response: Response) -> str:
    """Return why a response does not fit its request; empty if it does."""
    ids, logprobs, prompt = response.token_ids, response.logprobs, response.prompt_logprobs
    count = response.completion_tokens if ids is None else len(ids)
    if not count and not response.text and not response.reasoning:
        return "that is empty"
    if (count or 0) > request.max_tokens:
        return "longer than max_tokens"
    if ids is not None and response.completion_tokens not in (None, len(ids)):
        return "with more or fewer token ids than it counts"
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        return "with more or fewer log-probs than tokens"
    if not request.is_chat and response.prompt_token_ids not in (None, request.prompt):
        return "to another prompt"
    if prompt is not None and request.prompt_logprobs and len(prompt) != len(request.prompt):
        return "with log-probs of another prompt"
    return ""
