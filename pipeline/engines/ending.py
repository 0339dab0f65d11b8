"""Where an attempt ends and what its text is, the same in every engine: made of all its tokens.

A stop string ends an attempt at the token that completes it. That token is the last one stored,
with its log-prob; the text goes up to where the stop string begins. The prefix of the answer, which
is among the tokens of the prompt, stands in front of the text.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, TypedDict

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import Request, text_of
from bayes_at_n.pipeline.store.columns import FINISHED


class Ending(TypedDict):
    """Fields of a `Completion`; tokens and log-probs are those sampled now."""

    text: str
    finish_reason: str
    token_ids: list[int]
    logprobs: list[float] | None


def ending(
    tokenizer: Any,
    cfg: RunConfig,
    request: Request,
    token_ids: list[int],
    logprobs: list[float] | None,
    reason: str,
) -> Ending:
    """What is kept of an attempt, given what an engine sampled for a request and why it ended.

    What was sampled beyond a stop string is dropped: engines do not see one whose tokens lie on
    both sides of a raised cap.
    """
    stop, whole = cfg.prompt.stop, request.so_far(token_ids)
    if reason in FINISHED and (n := stop_at(tokenizer, cfg, whole)) is not None:
        new = n - len(whole) + len(token_ids)
        token_ids, reason = token_ids[:new], "stop"
        logprobs = None if logprobs is None else logprobs[:new]
        text = cut(text_of(tokenizer, whole[:n], False, cfg), stop)
    else:
        # With stop strings the last token may belong to one that a server has taken out.
        ended = reason == "stop" and (not stop or whole[-1] in tokenizer.added_tokens_decoder)
        text = text_of(tokenizer, whole, ended, cfg)
    text = cfg.prompt.prefix + text
    return Ending(text=text, finish_reason=reason, token_ids=token_ids, logprobs=logprobs)


def stop_at(tokenizer: Any, cfg: RunConfig, token_ids: list[int]) -> int | None:
    """How many tokens complete the first of `prompt.stop`; None where none is complete."""

    def complete(n: int) -> bool:
        return _cut(text_of(tokenizer, token_ids[:n], False, cfg), cfg.prompt.stop) is not None

    n = len(token_ids)
    if not cfg.prompt.stop or not complete(n):
        return None
    if not complete(n - 1):  # as most are, for engines look at every token
        return n
    return bisect_left(range(n), True, key=complete)


def cut(text: str, stop: Sequence[str]) -> str:
    """The text up to the stop string that is complete first.

    >>> cut("4 Problem: 2+2 Problem: 3+3", ["Problem:"])
    '4 '
    """
    return text[: _cut(text, stop)]


def _cut(text: str, stop: Sequence[str]) -> int | None:
    found = [(at + len(word), at) for word in stop if (at := text.find(word)) >= 0]
    return min(found)[1] if found else None
