"""Before a run: does the server do what it is asked to? A few short samples tell.

What is found is shown, recorded and held against what the run needs, before it costs anything.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig, SamplingConfig
from bayes_at_n.pipeline.engines.dialects import Answer, Ask
from bayes_at_n.pipeline.engines.http import Refused
from bayes_at_n.pipeline.engines.served import ServedModel

TOKENS = 32  # of each sample
_SEEDS = 4  # of each question, and so many of them once more
_REPEATS = 2
# Mean difference of log-probs, per token, above which they are of another model, or after the
# temperature and top-p. Rounding to bfloat16 makes one to two hundredths.
_NATS = 0.05
# What may be left to a server that does not take it, for the value that is sent means "nothing".
_NEUTRAL = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_EXTRAS = ("return_token_ids", "prompt_logprobs", "logprobs", "seed", "return_tokens_as_token_ids")

_LOOKS = 4  # of the first probe at one text: how far they lie apart is no fault
Findings = dict[str, Any]
Look = list[Any]  # log-probs; or a name, a fingerprint and a text
Decode = Callable[[Answer], str]
Tried = Sequence[tuple[Any, int]]  # prompts as an `Ask` has them, and how long an answer may be


async def probe(
    model: ServedModel,
    cfg: RunConfig,
    tried: Tried,
    decode: Decode | None,
) -> Findings:
    """What the server does with the run's first questions.

    Args:
        model: what is asked; fields that the server refuses are dropped from it.
        cfg: the run's configuration.
        tried: questions of the run, at least one.
        decode: text of an answer's token ids; None without a tokenizer.

    Raises:
        UserError: it refuses what the run cannot do without, or answers all seeds alike.
    """
    s = cfg.sampling
    hot = replace(s, temperature=1.0, top_p=1.0, top_k=None)  # where seeds tell most
    seed = s.seed
    prompt, limit = tried[0]
    sample = await _fitting(model, Ask(prompt, min(TOKENS, limit), seed, hot, s.logprobs), s)
    seeds = [None if seed is None else seed + k for k in range(_SEEDS)]
    asks = [[Ask(p, min(TOKENS, most), one, hot, s.logprobs) for one in seeds] for p, most in tried]
    answers = [await asyncio.gather(*(model.ask(a, probing=True) for a in some)) for some in asks]
    if decode is not None and sample.token_ids is not None:
        said = [answer for some in answers for answer in some]
        if sample.text is None:  # of tokens in and tokens out
            again = (model.ask(ask, probing=True, with_text=True) for some in asks for ask in some)
            said = await asyncio.gather(*again)
        _same_words(model, said, decode, cfg)
    # Of a model that hides its reasoning so short samples show nothing.
    blank = not any(a.text or a.reasoning or a.token_ids for some in answers for a in some)
    if not blank and all(_same(some[0], other) for some in answers for other in some):
        raise UserError(
            f"{model.pool.server.setting}: answers the same to {_SEEDS} different seeds at"
            " temperature 1, so its attempts are no independent samples; is there a cache in front"
            " of it?"
        )
    seeded = not blank and seed is not None and "seed" not in model.dropped
    found: Findings = asdict(model.facts) | {
        "url": model.pool.server.url,
        "fingerprint": sample.fingerprint,
        "seeds": await _repeats(model, asks, answers) if seeded else None,
        "blank": blank,
        "token_ids": sample.token_ids is not None,
        "logprobs": sample.logprobs is not None,
        "prompt_token_ids": sample.prompt_token_ids is not None,
        "named": sample.named,
        "not_taken": sorted(model.dropped),
    }
    if model.dialect.tokens:
        found |= await _log_probs(model, s, tried)
    text = {"prompt": prompt, "most": min(2 * TOKENS, limit), "temperature": 0.0, "looks": []}
    known = found.setdefault("known", text)
    try:
        known["looks"] += await _looks(model, known, s, _LOOKS)
    except Refused:  # some take one temperature only
        known["temperature"] = s.temperature
        known["looks"] += await _looks(model, known, s, _LOOKS)
    return found


async def same(model: ServedModel, known: Findings, s: SamplingConfig) -> bool:
    """Whether a server has the model that is known by `probe`: two of three looks decide."""
    looks = await _looks(model, known, s, 3)
    return sum(_alike(known["looks"], look) for look in looks) >= 2


async def _looks(model: ServedModel, known: Findings, s: SamplingConfig, times: int) -> list[Look]:
    """Log-probs of a stored answer, or what the server calls its model and the greedy answer."""
    ask = Ask(known["prompt"], 1, None, s, prompt_logprobs=True)
    if reading := "temperature" in known:
        greedy = replace(s, temperature=known["temperature"], top_p=1.0, top_k=None)
        ask = Ask(known["prompt"], known["most"], s.seed, greedy)
    answers = await asyncio.gather(
        *(model.ask(ask, probing=True, with_text=True) for _ in range(times))
    )
    if reading:
        return [[a.model, a.fingerprint, f"{a.reasoning or ''}{a.text}"] for a in answers]
    return [(answer.prompt_logprobs or [None])[1:] for answer in answers]


def _alike(known: Sequence[Look], look: Look) -> bool:
    """Whether a look differs from the first no more than those of the first probe do.

    >>> _alike([[-1.0, -2.0], [-1.2, -2.0]], [-1.4, -2.0]), _alike([[-1.0], [-1.0]], [-1.2])
    (True, False)
    >>> known = [["m", "f", "so 1 + 1"]]
    >>> [_alike(known, look) for look in (["m", "f", "so 1 is"], ["m", "f", "2"], ["m", "g", "so"])]
    [True, False, False]
    """
    first, *more = known
    if not isinstance(first[-1], str):
        apart = max((differs(first, one) for one in more), default=0.0)
        return len(look) == len(first) and differs(first, look) <= max(_NATS, 3 * apart)
    models, fingerprints, texts = zip(*known, strict=True)
    start = os.path.commonprefix
    shared = 2 * len(start([first[-1], look[-1]])) >= len(start(texts))
    return shared and look[0] in models and look[1] in fingerprints


def _same_words(
    model: ServedModel, answers: Sequence[Answer], decode: Decode, cfg: RunConfig
) -> None:
    """Refuse a server whose tokens are other words to the tokenizer here.

    The end may be a letter cut in two, and one answer may hold a token that is shown otherwise.
    """
    texts = [(_plain(answer.text), _plain(decode(answer))) for answer in answers if answer.text]
    unlike = [(a, b) for a, b in texts if not (a.startswith(b) or b.startswith(a))]
    if len(unlike) > 1 or len(unlike) == len(texts) == 1:
        there, here = unlike[0]
        raise UserError(
            f"{model.pool.server.setting}: gives tokens that it reads as {there[:40]!r} and the"
            f" tokenizer of {cfg.model.tokenizer or cfg.model.id} as {here[:40]!r}; set"
            " model.tokenizer, or serve the model that is meant"
        )


def _plain(text: str) -> str:
    return text.replace("\ufffd", "").strip()


async def _fitting(model: ServedModel, ask: Ask, s: SamplingConfig) -> Answer:
    """The first answer, without fields that the server refuses and the run can do without."""
    while True:
        try:
            answer = await model.ask(ask, probing=True)
        except Refused as error:
            if error.status not in (400, 422) or not _leave_out(model, error.words, s):
                raise
            continue
        if answer.logprobs is not None or not ask.logprobs or model.zero_is_none:
            return answer
        model.zero_is_none = True


def _leave_out(model: ServedModel, words: str, s: SamplingConfig) -> bool:
    if "max_completion_tokens" in words and not model.renamed:
        model.renamed["max_tokens"] = "max_completion_tokens"
        return True
    named = {*_NEUTRAL, *_EXTRAS} & set(re.findall(r"\w+", words)) - model.dropped
    if s.top_k is not None:
        named.discard("top_k")
    model.dropped |= named
    return bool(named)


async def _repeats(
    model: ServedModel, asks: Sequence[list[Ask]], answers: Sequence[list[Answer]]
) -> bool:
    """Whether the same seeds give the same tokens; rounding may differ once (bfloat16).

    An easy question is answered alike by chance now and then, so there are several.
    """
    pairs = [
        (await model.ask(ask, probing=True), answer)
        for some, known in zip(asks, answers, strict=True)
        for ask, answer in list(zip(some, known, strict=True))[:_REPEATS]
    ]
    return sum(_same(*pair) for pair in pairs) >= len(pairs) - 1


async def _log_probs(
    model: ServedModel,
    s: SamplingConfig,
    tried: Tried,
) -> Findings:
    """Prompt log-probs, and by them whether log-probs of samples are the model's own.

    A server may give them after the temperature and top-p. Read again as a part of a prompt, the
    same tokens have those of the model.
    """
    prompt, limit = tried[-1]
    ask = Ask(prompt, min(TOKENS, limit), s.seed, s, s.logprobs)
    sample = await model.ask(ask, probing=True)
    again = [*prompt, *(sample.token_ids or ())]
    # vLLM wants room for one token more than the prompt.
    read = Ask(again[: len(prompt) + limit - 1], 1, None, s, prompt_logprobs=True)
    try:
        values = (await model.ask(read, probing=True)).prompt_logprobs
    except Refused:
        values = None
    if values is None:
        return {"prompt_logprobs": False, "replay": None}
    known = {"prompt": read.prompt, "looks": [values[1:]]}
    found: Findings = {"prompt_logprobs": True, "replay": None, "known": known}
    replayed = values[len(prompt) :]
    if sample.logprobs and replayed:
        found["replay"] = differs(sample.logprobs[: len(replayed)], replayed)
    return found


def missing(found: Findings, cfg: RunConfig) -> list[tuple[str, str]]:
    """What a run needs and a server lacks: its name in `engine.allow_missing`, and why."""
    lacks = []
    s = cfg.sampling
    if s.logprobs and not found["logprobs"]:
        lacks.append(("logprobs", "gives no log-probs of what it samples"))
    elif s.logprobs and (found.get("replay") or 0.0) > _NATS:
        why = "gives log-probs after temperature and top-p, not those of the model"
        lacks.append(("logprobs", f"{why} (they differ by {found['replay']:.2f} nats a token)"))
    if s.prompt_logprobs and not found.get("prompt_logprobs"):
        lacks.append(("prompt_logprobs", "gives no log-probs of prompts"))
    return lacks


def remarks(found: Findings, cfg: RunConfig) -> list[str]:
    """What a reader of the results should know of a server."""
    lines = []
    if found.get("blank"):
        lines.append("shows nothing of short samples: whether it heeds seeds was not tried")
    elif found["seeds"] is None and cfg.sampling.seed is not None:
        lines.append("takes no seeds: attempts are samples but cannot be repeated")
    elif found["seeds"] is False:
        lines.append("ignores seeds: attempts are samples but cannot be repeated")
    if not found["token_ids"]:
        lines.append("gives no token ids: texts and counts are as it says")
    if found["not_taken"]:
        fields = ", ".join(found["not_taken"])
        lines.append(f"does not take {fields}: its own defaults hold")
    if found["api"] == "chat":
        lines.append("makes the prompt from chat turns by its own template")
    return lines


def differs(reading: Sequence[float | None], stored: Any) -> float:
    """Mean absolute difference of two lists of log-probs of the same tokens, in nats a token.

    >>> round(differs([None, -1.0, -2.0], [float("nan"), -1.5, -2.0]), 2)
    0.25
    """
    a, b = np.array(reading, dtype=float), np.asarray(stored, dtype=float)
    difference = np.abs(a - b)
    return float(np.nanmean(difference)) if np.isfinite(difference).any() else 0.0


def _same(one: Answer, other: Answer) -> bool:
    if one.token_ids is not None:
        return one.token_ids == other.token_ids
    return (one.text, one.reasoning) == (other.text, other.reasoning)
