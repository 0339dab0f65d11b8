"""Text and end of an attempt, decoded from all its tokens in the same way by every engine.

A stop string ends an attempt at the token that completes it. That token is the last one stored,
with its log-prob; the text ends where the stop string begins. The prefix of the answer, whose
tokens are part of the prompt, precedes the text. Reasoning and answer are split by the parser that
vLLM's server has for the model.
"""

import contextlib
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.protocol import ModelConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import Request
from bayes_at_n.pipeline.engines.vllm_core import import_vllm
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store.columns import FINISHED


def ended(
    tokenizer: Any,
    cfg: RunConfig,
    request: Request,
    token_ids: list[int],
    logprobs: list[float] | None,
    reason: str,
    parser: Any = None,
) -> dict[str, Any]:
    """Return the fields of a `Completion` from what an engine sampled and why it ended.

    Tokens beyond a stop string are dropped: an engine does not see a stop string that began before
    a raised cap. Tokens and log-probs are those of this request. `parser`: the model's
    `Parser`, which splits the text; None: it is left as it is.
    """
    stop, whole = cfg.stops, request.so_far(token_ids)
    raw = cfg if parser is None else parser.raw
    if reason in FINISHED and (n := stop_length(tokenizer, cfg, whole)) is not None:
        new = n - len(whole) + len(token_ids)
        token_ids, reason = token_ids[:new], "stop"
        logprobs = None if logprobs is None else logprobs[:new]
        text = truncate(decode(tokenizer, whole[:n], False, raw), stop)
    else:
        # With stop strings the last token may be part of one that a server has removed.
        at_end = reason == "stop" and (not stop or whole[-1] in tokenizer.added_tokens_decoder)
        text = decode(tokenizer, whole, at_end, raw)
    text = cfg.prompt.prefix + text
    fields = {"finish_reason": reason, "token_ids": token_ids, "logprobs": logprobs}
    return fields | {"text": parser.joined(text, reason == "stop") if parser else text}


def joined(reasoning: str | None, answer: str | None, end: str | None, stopped: bool) -> str:
    """Join reasoning and answer by `model.reasoning_end`, which occurs at most once in the result.

    Reasoning that `stopped` without an answer ends in the mark, so that nothing in it is one.

    >>> joined("2, 4", "So 6.", "</think>", True), joined("2, 4", None, "</think>", False)
    ('2, 4</think>So 6.', '2, 4')
    """
    end = end or "</think>"
    parts = [(part or "").replace(end, " ") for part in (reasoning, answer)]
    return end.join(parts if reasoning and (answer or stopped) else filter(None, parts))


def decode(tokenizer: Any, token_ids: list[int], stopped: bool, cfg: RunConfig) -> str:
    """Return the text of tokens; if `stopped`, without the last one, special or not.

    Decoding all tokens at once takes half the time of decoding token by token, and every engine
    gets the same text from the same tokens.
    """
    text = tokenizer.decode(
        token_ids[:-1] if stopped else token_ids,
        skip_special_tokens=cfg.model.skip_special_tokens,
        clean_up_tokenization_spaces=False,
    )
    return str(text)


def stop_length(tokenizer: Any, cfg: RunConfig, token_ids: list[int]) -> int | None:
    """Return how many tokens complete the first stop string; None if none is complete."""

    def complete(n: int) -> bool:
        return _start(decode(tokenizer, token_ids[:n], False, cfg), cfg.stops) is not None

    n = len(token_ids)
    if not cfg.stops or not complete(n):
        return None
    if not complete(n - 1):  # the usual case, since engines check every token
        return n
    return bisect_left(range(n), True, key=complete)


def truncate(text: str, stop: Sequence[str]) -> str:
    """Cut a text at the beginning of the stop string that is complete first.

    >>> truncate("4 Problem: 2+2 Problem: 3+3", ["Problem:"])
    '4 '
    """
    return text[: _start(text, stop)]


def _start(text: str, stop: Sequence[str]) -> int | None:
    ends = [(start + len(word), start) for word in stop if (start := text.find(word)) >= 0]
    return min(ends)[1] if ends else None


# vLLM's parsers by the beginning of `model_type` in config.json; else by a mark in the vocabulary.
_OF_TYPE = {"qwen3": "qwen3", "glm4_moe": "glm45", "gemma4": "gemma4", "ernie4_5": "ernie45"}
_OF_TYPE |= {"hunyuan": "hunyuan_a13b", "kimi_k2": "kimi_k2", "minimax_m2": "minimax_m2"}
_OF_TYPE |= {"nemotron_h": "nemotron_v3", "olmo3": "olmo3", "seed_oss": "seed_oss", "mimo": "mimo"}
_OF_TYPE |= {"step3p5": "step3p5", "kimi_k3": "kimi_k3", "minimax_m3": "minimax_m3"}
_OF_TYPE |= {"deepseek_v41": "deepseek_v41", "deepseek_v4": "deepseek_v4", "inkling": "inkling"}
_OF_MARK = {"</think>": "deepseek_r1", "[/THINK]": "mistral"}


def name_of(model: ModelConfig, tokenizer: Any) -> str:
    """Return the name of a model's parser, `model.reasoning_parser` or the one of its type.

    Raises UserError: auto, and the type has none.
    """
    if model.reasoning_parser != "auto":
        return str(model.reasoning_parser)
    kind, vocabulary = models.read_config(model).model_type, tokenizer.get_vocab()
    named = [parser for start, parser in _OF_TYPE.items() if kind.startswith(start)]
    named += [parser for mark, parser in _OF_MARK.items() if mark in vocabulary]
    if not named:
        raise UserError(
            f"model.reasoning_parser=auto: none is known for model type {kind}; name one of vLLM's,"
            " or leave it out (model.reasoning_end)"
        )
    return named[0]


class Parser:
    """The parser of a run's model.

    `raw`: settings with which to decode the text that it splits, which may need special tokens.
    """

    def __init__(self, cfg: RunConfig, tokenizer: Any) -> None:
        if "vllm" not in sys.modules:
            import_vllm(key="model.reasoning_parser")
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.reasoning import ReasoningParserManager

        name, key = name_of(cfg.model, tokenizer), "model.reasoning_parser"
        request = ChatCompletionRequest(messages=[{"role": "user", "content": ""}])
        try:
            make = ReasoningParserManager.get_reasoning_parser(name)
            self.parser = make(tokenizer, chat_template_kwargs=cfg.model.chat_template_kwargs)
            self.request = self.parser.adjust_request(request)
            self.parser.extract_reasoning("", self.request)
        except Exception as error:  # vLLM raises whatever its parts raise
            raise UserError(
                f"{key}={name}: not for {cfg.model.id} ({one_line(error)}); name another, or leave"
                " it out (model.reasoning_end)"
            ) from error
        hides = cfg.model.skip_special_tokens
        skips = hides and bool(self.request.skip_special_tokens)
        self.raw = replace(cfg, model=replace(cfg.model, skip_special_tokens=skips))
        self.special = tokenizer.all_special_tokens if hides and not skips else []

    def joined(self, text: str, stopped: bool) -> str:
        """Return reasoning and answer of a raw text, see `joined`."""
        reasoning = answer = None
        with contextlib.suppress(Exception):  # a model may write anything
            reasoning, answer = self.parser.extract_reasoning(text, self.request)
        if reasoning is None and answer is None:  # the parser finds nothing in it
            return text
        for token in self.special:
            reasoning, answer = (part and part.replace(token, "") for part in (reasoning, answer))
        return joined(reasoning, answer, self.raw.model.reasoning_end, stopped)
