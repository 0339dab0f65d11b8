"""A model on a server: under which name, through which interface, and answers that fit requests."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayes_at_n.pipeline.base.errors import Replaced, TryAgain, UserError, did_you_mean
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines.client import MOST_BYTES, Client, Rejected, Retryable
from bayes_at_n.pipeline.engines.dialects import DIALECTS, FILTERED, Answer, Body, SampleRequest
from bayes_at_n.pipeline.prepare.endpoint import Facts

_CUT = 0.9  # of the longest reading of a prompt: one that is shorter was cut
_BYTES_A_TOKEN = 2048  # the most that any interface writes about one
_VERSIONS = {"vllm": "/version", "sglang": "/get_server_info", "llamacpp": "/props"}


async def facts(client: Client, cfg: RunConfig) -> Facts:
    """Ask a server what it serves; the interface is what `engine.api` says, "auto" included.

    Looks for `engine.served_name` or `model.id`. Raises UserError: it serves several models and
    none is named, or another one. TryAgain: it is not there.
    """
    try:
        listed = (await client.get("/v1/models", client.patience_s)).get("data")
    except Rejected as error:
        if error.status not in (404, 405):
            raise
        listed = None
    cards = {
        str(card.get("id")): card
        for card in (listed if isinstance(listed, list) else [])
        if isinstance(card, Mapping)
    }
    name = _name(cfg, client, cards)
    card = cards.get(name, {})
    context, software, version = card.get("max_model_len"), str(card.get("owned_by", "")), ""
    if software in _VERSIONS:
        try:
            about = await client.get(_VERSIONS[software], 0.0)
            version = str(about.get("version") or about.get("build_info") or "")[:100]
        except (UserError, TryAgain):
            pass
    return Facts(
        api=cfg.engine.api,
        served_name=name,
        context=context if type(context) is int and context > 0 else None,
        software=software if software in _VERSIONS else "",
        version=version,
    )


def _name(cfg: RunConfig, client: Client, cards: Mapping[str, Any]) -> str:
    wanted = cfg.engine.served_name
    if wanted is None and len(cards) == 1:
        return next(iter(cards))
    if not cards or (wanted or cfg.model.id) in cards:
        return wanted or cfg.model.id
    hint = did_you_mean(wanted or cfg.model.id, cards, all_are="it serves")
    setting = f"{cfg.engine.key}.served_name"
    if wanted:
        raise UserError(f"{setting}={wanted}: {client.url} serves none of that name ({hint})")
    raise UserError(
        f"{setting}: {client.url} serves {len(cards)} models and none is called {cfg.model.id}"
        f" ({hint}); name one"
    )


async def choose(client: Client, known: Facts, token_ids: list[int] | None) -> Facts:
    """Settle the interface where `engine.api` says "auto": token ids if the server takes them.

    Asks it for one token. `token_ids`: some tokens as the model's tokenizer makes them; None
    without a tokenizer.
    """
    if known.api != "auto":
        return known
    if token_ids is not None:
        known = replace(known, api=_of_tokens(known))
        if known.api != "completions":
            return known
        try:
            answer = await _one_token(client, known, {"prompt": token_ids})
            # A server that reads the ids as text counts other tokens.
            if answer.prompt_tokens in (None, len(token_ids)):
                return known
        except Rejected as error:
            if error.status not in (400, 404, 405, 422):
                raise
    known = replace(known, api="chat")
    try:
        await _one_token(client, known, {"messages": [{"role": "user", "content": "1 + 1 ="}]})
    except Rejected as error:
        if error.status not in (400, 422):  # of fields, which a probe will settle
            raise
    return known


async def _one_token(client: Client, known: Facts, prompt: Body) -> Answer:
    dialect = DIALECTS[known.api]
    body = {"model": known.served_name, "max_tokens": 1, "stream": False} | prompt
    return await client.ask(dialect.path, body, lambda data, _: dialect.read(data), probing=True)


def _of_tokens(known: Facts) -> str:
    """Choose the interface for token ids: of `engine.api`, or the one that says most."""
    if known.api in ("completions", "generate"):
        return known.api
    return "generate" if known.software == "sglang" else "completions"


async def connect(client: Client, cfg: RunConfig, longest: int, rows: Sequence[Any]) -> "Model":
    """Return the model of a run on its server.

    Args:
        client: of the server.
        cfg: the configuration.
        longest: the most tokens of any request, prompt and completion together.
        rows: the questions table, whose prompts are token ids or chat turns; none: token ids.

    Raises UserError: the prompts are not for `engine.api`, or the context has no room for them.
    """
    api, chat = cfg.engine.api, bool(rows) and rows[0]["prompt_token_ids"] is None
    if rows and api != "auto" and (api == "chat") != chat:
        prompts = "chat turns" if chat else "token ids"
        raise UserError(
            f"engine.api={api}: the prompts of this run are {prompts}; leave it out, or give a new"
            " run a tag=NAME"
        )
    known = await facts(client, cfg)
    known = replace(known, api="chat" if chat else _of_tokens(known))
    if known.context is not None and known.context < longest:
        raise UserError(
            f"{client.setting}: has room for {known.context} tokens, and {longest} are needed;"
            " serve it with more (vLLM: --max-model-len), or lower sampling.max_tokens"
        )
    extra = dict(cfg.engine.args)
    if chat and cfg.model.chat_template_kwargs:
        extra["chat_template_kwargs"] = dict(cfg.model.chat_template_kwargs)
    if not cfg.model.skip_special_tokens:
        extra["skip_special_tokens"] = False
    return Model(client, known, extra)


class Model:
    """One model behind a server: samples are asked for and answers checked.

    Attributes:
        extra: fields that are added to every request.
        dropped: optional fields that a server does not take; its own defaults hold for them.
        renamed: fields that it wants under another name.
        zero_is_none: whether it takes "logprobs": 0 for none, as llama.cpp.
        gives: what every answer has, as a probe has seen: token_ids, logprobs, named. One without
            it is none.
        vocabulary: how many token ids there are.
    """

    def __init__(self, client: Client, facts: Facts, extra: Body) -> None:
        self.client, self.facts, self.extra = client, facts, extra
        native = "sglang" if facts.software == "sglang" else "vllm"
        self.dialect = DIALECTS[native if facts.api == "generate" else facts.api]
        self.dropped: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.zero_is_none = False
        self.gives: frozenset[str] = frozenset()
        self.vocabulary = math.inf
        self._counted: dict[str, int] = {}  # prompt tokens, by chat turns

    async def ask(
        self, request: SampleRequest, probing: bool = False, with_text: bool = False
    ) -> Answer:
        """Return an answer that fits the request; see `Client.ask` for what is raised."""
        dialect = self.dialect
        if dialect is DIALECTS["vllm"] and (request.labels or request.prompt_logprobs or with_text):
            dialect = DIALECTS["completions"]  # which says more of them
        body = dialect.write(self.facts.served_name, request) | self.extra
        body = {self.renamed.get(k, k): v for k, v in body.items() if k not in self.dropped}
        if self.zero_is_none and body.get("logprobs") == 0:
            body["logprobs"] = 1

        def read(data: bytes, name: str) -> Answer:
            answer = dialect.read(data)
            answer = replace(answer, named=name in answer.name)
            why = self._miscounts(request, answer, dialect.tokens)
            if answer.finish_reason == FILTERED:  # whatever was left of it
                answer = replace(answer, token_ids=None, logprobs=None)
            elif not why:
                why = _mismatch(request, answer, dialect.tokens) or self._lacks(request, answer)
            if why:
                raise Retryable(f"answer {why}")
            return answer

        tokens = request.max_tokens + len(request.prompt) * request.prompt_logprobs
        most = MOST_BYTES + _BYTES_A_TOKEN * tokens
        return await self.client.ask(dialect.path, body, read, most, probing)

    def _miscounts(self, request: SampleRequest, answer: Answer, tokens: bool) -> str:
        """Say how many tokens of the prompt it read; empty where these are all."""
        if max(answer.token_ids or [0]) >= self.vocabulary:
            return "with a token outside the vocabulary"
        known = count = answer.prompt_tokens
        if tokens:
            known = len(request.prompt)
        elif count is not None:  # the same turns are as long, but for a date in the template
            turns = json.dumps(request.prompt)
            most = self._counted.setdefault(turns, count)
            if most < _CUT * count:
                raise Replaced(
                    f"{self.client.setting}: read {most} and {count} tokens of one prompt: it cuts"
                    " them"
                )
            self._counted[turns] = max(most, count)
            known = most if count < _CUT * most else count
        return f"to {count} prompt tokens instead of {known}" if count not in (None, known) else ""

    def _lacks(self, request: SampleRequest, answer: Answer) -> str:
        if "named" in self.gives and not answer.named:
            return "to another request"
        if "token_ids" in self.gives and answer.token_ids is None:
            return "without token ids"
        if "logprobs" in self.gives and request.logprobs and answer.logprobs is None:
            return "without log-probs"
        return ""


def _mismatch(request: SampleRequest, answer: Answer, tokens: bool) -> str:
    """Say why an answer cannot be one to a request; empty where it can."""
    ids, logprobs, read = answer.token_ids, answer.logprobs, answer.prompt_logprobs
    count = answer.completion_tokens if ids is None else len(ids)
    if not count and not answer.text and not answer.reasoning:
        return "with nothing in it"
    if (count or 0) > request.max_tokens:
        return "longer than was asked for"
    if ids is not None and answer.completion_tokens not in (None, len(ids)):
        return "with more or fewer token ids than it counts"
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        return "with more or fewer log-probs than tokens"
    if tokens and answer.prompt_token_ids not in (None, request.prompt):
        return "to another prompt"
    if tokens and request.prompt_logprobs and read is not None and len(read) != len(request.prompt):
        return "with log-probs of another prompt"
    return ""
