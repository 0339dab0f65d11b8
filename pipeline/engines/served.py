"""A model on a server: under which name, through which interface, and what it answers."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bayes_at_n.pipeline.base.errors import Replaced, TryAgain, UserError, did_you_mean
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines.client import Pool, Server
from bayes_at_n.pipeline.engines.dialects import DIALECTS, FILTERED, Answer, Ask, Body
from bayes_at_n.pipeline.engines.http import MOST_BYTES, Later, Refused
from bayes_at_n.pipeline.prepare.served import Facts

_CUT = 0.9  # of the longest reading of a prompt: one that is shorter was cut
_BYTES_A_TOKEN = 2048  # the most that any interface writes about one
_NATIVE = {"vllm": "vllm", "sglang": "sglang"}  # api=generate, by who `/v1/models` says owns it


async def facts(pool: Pool, cfg: RunConfig) -> Facts:
    """Ask a server what it serves; the interface is what `engine.api` says, "auto" included.

    Args:
        pool: the server.
        cfg: the configuration, whose `engine.served_name` or `model.id` is looked for.

    Raises:
        UserError: it serves several models and none is named, or another one.
        TryAgain: it is not there.
    """
    try:
        listed = (await pool.get("/v1/models", pool.patience_s)).get("data")
    except Refused as error:
        if error.status not in (404, 405):
            raise
        listed = None
    listed = listed if isinstance(listed, list) else []
    cards = {str(c.get("id")): c for c in listed if isinstance(c, Mapping)}
    name = _name(cfg, pool.server, cards)
    card = cards.get(name, {})
    context, software = card.get("max_model_len"), str(card.get("owned_by", ""))
    known = Facts(
        api=cfg.engine.api,
        served_name=name,
        context=context if type(context) is int and context > 0 else None,
        software=software if software in ("vllm", "sglang", "llamacpp") else "",
    )
    return replace(known, version=await _version(pool, known.software))


def _name(cfg: RunConfig, server: Server, cards: Mapping[str, Any]) -> str:
    asked = cfg.engine.served_name
    if asked is None and len(cards) == 1:
        return next(iter(cards))
    if not cards or (asked or cfg.model.id) in cards:
        return asked or cfg.model.id
    hint = did_you_mean(asked or cfg.model.id, cards, all_are="it serves")
    if asked:
        raise UserError(
            f"{cfg.engine.key}.served_name={asked}: {server.url} serves none of that name ({hint})"
        )
    raise UserError(
        f"{cfg.engine.key}.served_name: {server.url} serves {len(cards)} models and none is called"
        f" {cfg.model.id} ({hint}); name one"
    )


async def _version(pool: Pool, software: str) -> str:
    paths = {"vllm": "/version", "sglang": "/get_server_info", "llamacpp": "/props"}
    if software not in paths:
        return ""
    try:
        said = await pool.get(paths[software], 0.0)
    except (UserError, TryAgain):
        return ""
    return str(said.get("version") or said.get("build_info") or "")[:100]


async def choose(pool: Pool, known: Facts, token_ids: list[int] | None) -> Facts:
    """With an interface where `engine.api` says "auto": token ids if the server takes them.

    Args:
        pool: the server, which is asked for one token.
        known: what is known of it.
        token_ids: some tokens as the model's tokenizer makes them; None without a tokenizer.
    """
    if known.api != "auto":
        return known
    if token_ids is None:
        return await _chat(pool, known)
    tokens = replace(known, api=of_tokens(known))
    if tokens.api != "completions":
        return tokens
    read = DIALECTS["completions"].read
    body = {"model": known.served_name, "prompt": token_ids, "max_tokens": 1, "stream": False}
    try:
        answer = await pool.ask(
            DIALECTS["completions"].path, body, lambda data, _: read(data), probing=True
        )
    except Refused as error:
        if error.status not in (400, 404, 405, 422):
            raise
        return await _chat(pool, known)
    # A server that reads the ids as text counts other tokens.
    counts = answer.prompt_tokens in (None, len(token_ids))
    return tokens if counts else await _chat(pool, known)


async def _chat(pool: Pool, known: Facts) -> Facts:
    """With the chat interface, if there is one: else the address may be wrong."""
    turn = {"role": "user", "content": "1 + 1 ="}
    body = {"model": known.served_name, "messages": [turn], "max_tokens": 1, "stream": False}
    try:
        await pool.ask(DIALECTS["chat"].path, body, lambda data, _: data, probing=True)
    except Refused as error:
        if error.status not in (400, 422):  # of fields, which a probe will settle
            raise
    return replace(known, api="chat")


def of_tokens(known: Facts) -> str:
    """The interface for token ids: of `engine.api`, or the one that says most."""
    if known.api in ("completions", "generate"):
        return known.api
    return "generate" if known.software == "sglang" else "completions"


class ServedModel:
    """One model behind a server: samples are asked for and answers checked.

    Attributes:
        dropped: optional fields that a server does not take; its own defaults hold for them.
        renamed: fields that it wants under another name.
        zero_is_none: whether it takes "logprobs": 0 for none, as llama.cpp.
        gives: what every answer has, as a probe has found: token_ids, logprobs, named. One without
            it is none.
        vocabulary: how many token ids there are.
    """

    def __init__(self, pool: Pool, facts: Facts, extra: Body) -> None:
        self.pool, self.facts, self.extra = pool, facts, extra
        native = _NATIVE.get(facts.software, "vllm")
        self.dialect = DIALECTS[native if facts.api == "generate" else facts.api]
        self.dropped: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.zero_is_none = False
        self.gives: frozenset[str] = frozenset()
        self.vocabulary = math.inf
        self._counted: dict[str, int] = {}  # prompt tokens, by chat turns

    async def ask(self, ask: Ask, probing: bool = False, with_text: bool = False) -> Answer:
        """One answer that fits the question; see `Pool.ask` for what is raised."""
        dialect = self.dialect
        if dialect is DIALECTS["vllm"] and (ask.labels or ask.prompt_logprobs or with_text):
            dialect = DIALECTS["completions"]  # which says more of them
        body = dialect.write(self.facts.served_name, ask) | self.extra
        body = {self.renamed.get(k, k): v for k, v in body.items() if k not in self.dropped}
        if self.zero_is_none and body.get("logprobs") == 0:
            body["logprobs"] = 1
        tokens = ask.max_tokens + len(ask.prompt) * ask.prompt_logprobs

        def read(data: Mapping[str, Any], name: str) -> Answer:
            answer = dialect.read(data)
            answer = replace(answer, named=name in answer.name)
            why = self._miscounts(ask, answer, dialect.tokens)
            if answer.finish_reason == FILTERED:  # whatever was left of it
                answer = replace(answer, token_ids=None, logprobs=None)
            elif not why:
                why = _mismatch(ask, answer, dialect.tokens) or self._lacks(ask, answer)
            if why:
                raise Later(f"answer {why}")
            return answer

        most = MOST_BYTES + _BYTES_A_TOKEN * tokens
        return await self.pool.ask(dialect.path, body, read, most, probing)

    def _miscounts(self, ask: Ask, answer: Answer, tokens: bool) -> str:
        if max(answer.token_ids or [0]) >= self.vocabulary:
            return "with a token outside the vocabulary"
        known = count = answer.prompt_tokens
        if tokens:
            known = len(ask.prompt)
        elif count is not None:  # the same turns are as long, but for a date in the template
            turns = json.dumps(ask.prompt)
            most = self._counted.setdefault(turns, count)
            if most < _CUT * count:
                where = self.pool.server.setting
                raise Replaced(
                    f"{where}: read {most} and {count} tokens of one prompt: it cuts them"
                )
            self._counted[turns] = max(most, count)
            known = most if count < _CUT * most else count
        return f"to {count} prompt tokens instead of {known}" if count not in (None, known) else ""

    def _lacks(self, ask: Ask, answer: Answer) -> str:
        if "named" in self.gives and not answer.named:
            return "to another request"
        if "token_ids" in self.gives and answer.token_ids is None:
            return "without token ids"
        if "logprobs" in self.gives and ask.logprobs and answer.logprobs is None:
            return "without log-probs"
        return ""


def _mismatch(ask: Ask, answer: Answer, tokens: bool) -> str:
    """Why an answer cannot be one to what was asked; empty where it can."""
    ids, logprobs = answer.token_ids, answer.logprobs
    count = answer.completion_tokens if ids is None else len(ids)
    if not count and not answer.text and not answer.reasoning:
        return "with nothing in it"
    if (count or 0) > ask.max_tokens:
        return "longer than was asked for"
    if ids is not None and answer.completion_tokens not in (None, len(ids)):
        return "with more or fewer token ids than it counts"
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        return "with more or fewer log-probs than tokens"
    if tokens and answer.prompt_token_ids not in (None, ask.prompt):
        return "to another prompt"
    read = answer.prompt_logprobs
    if tokens and ask.prompt_logprobs and read is not None and len(read) != len(ask.prompt):
        return "with log-probs of another prompt"
    return ""
