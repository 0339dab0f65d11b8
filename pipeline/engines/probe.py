"""Before a run: does the server do what it is asked to? A few short samples tell.

What is measured is shown, recorded and held against what the run needs, before it costs anything.
"""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig, SamplingConfig
from bayes_at_n.pipeline.engines.client import Rejected
from bayes_at_n.pipeline.engines.dialects import Answer, SampleRequest
from bayes_at_n.pipeline.engines.served import Model

TOKENS = 32  # of each sample
_SEEDS = 4  # of each question, and so many of them once more
_REPEATS = 2
# Mean difference of log-probs, per token, above which they are of another model, or after the
# temperature and top-p. Rounding to bfloat16 makes one to two hundredths.
_NATS = 0.05
# What may be left to a server that does not take it, for the value that is sent means "nothing".
_NEUTRAL = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_EXTRAS = ("return_token_ids", "prompt_logprobs", "logprobs", "seed", "return_tokens_as_token_ids")
_READINGS = 4  # of the first probe at one text: how far they lie apart is no fault

Findings = dict[str, Any]
Reading = list[Any]  # log-probs; or a name, a fingerprint and a text
Decode = Callable[[Answer], str]
Prompts = Sequence[tuple[Any, int]]  # as a `SampleRequest` has them, and how long an answer may be


async def probe(
    model: Model, cfg: RunConfig, prompts: Prompts, decode: Decode | None
) -> tuple[Findings, Findings]:
    """Measure what the server does with the run's first questions.

    Args:
        model: what is asked; fields that the server refuses are dropped from it.
        cfg: the run's configuration.
        prompts: of questions of the run, at least one.
        decode: text of an answer's token ids; None without a tokenizer.

    Returns:
        What the run's record keeps, and what `has_run_model` knows the model by.

    Raises:
        UserError: it refuses what the run cannot do without, or answers all seeds alike.
    """
    s = cfg.sampling
    hot = replace(s, temperature=1.0, top_p=1.0, top_k=None)  # where seeds tell most
    prompt, limit = prompts[0]
    first = SampleRequest(prompt, min(TOKENS, limit), s.seed, hot, s.logprobs)
    sample = await _fitting(model, first, s)
    seeds = [None if s.seed is None else s.seed + k for k in range(_SEEDS)]
    requests = [
        [SampleRequest(p, min(TOKENS, most), seed, hot, s.logprobs) for seed in seeds]
        for p, most in prompts
    ]
    answers = [await _all(model, some) for some in requests]
    if decode is not None and sample.token_ids is not None:
        with_text = [answer for some in answers for answer in some]
        if sample.text is None:  # of tokens in and tokens out
            with_text = await _all(model, [r for some in requests for r in some], with_text=True)
        _check_words(model, with_text, decode, cfg)
    # Of a model that hides its reasoning so short samples show nothing.
    blank = not any(a.text or a.reasoning or a.token_ids for some in answers for a in some)
    if not blank and all(_equal(some[0], other) for some in answers for other in some):
        raise UserError(
            f"{model.client.setting}: answers the same to {_SEEDS} different seeds at temperature"
            " 1, so its attempts are no independent samples; is there a cache in front of it?"
        )
    seeded = not blank and s.seed is not None and "seed" not in model.dropped
    found: Findings = asdict(model.facts) | {
        "url": model.client.url,
        "fingerprint": sample.fingerprint,
        "seeds": await _repeats(model, requests, answers) if seeded else None,
        "blank": blank,
        "token_ids": sample.token_ids is not None,
        "logprobs": sample.logprobs is not None,
        "prompt_token_ids": sample.prompt_token_ids is not None,
        "named": sample.named,
        "not_taken": sorted(model.dropped),
    }
    known: Findings = {}
    if model.dialect.tokens:
        more, known = await _log_probs(model, s, *prompts[-1])
        found |= more
    greedy = {"prompt": prompt, "most": min(2 * TOKENS, limit), "temperature": 0.0, "looks": []}
    known = known or greedy
    try:
        known["looks"] += await _readings(model, known, s, _READINGS)
    except Rejected:  # some take one temperature only
        known["temperature"] = s.temperature
        known["looks"] += await _readings(model, known, s, _READINGS)
    return found, known


async def same(model: Model, known: Findings, s: SamplingConfig) -> bool:
    """Say whether a server has the model that `probe` knows: two of three readings decide."""
    readings = await _readings(model, known, s, 3)
    return sum(_alike(known["looks"], reading) for reading in readings) >= 2


async def _all(model: Model, requests: Sequence[SampleRequest], **options: bool) -> list[Answer]:
    return await asyncio.gather(*(model.ask(r, probing=True, **options) for r in requests))


async def _readings(model: Model, known: Findings, s: SamplingConfig, times: int) -> list[Reading]:
    """Read a stored answer's log-probs, or the name of the server's model and the greedy answer."""
    request = SampleRequest(known["prompt"], 1, None, s, prompt_logprobs=True)
    if as_text := "temperature" in known:
        greedy = replace(s, temperature=known["temperature"], top_p=1.0, top_k=None)
        request = SampleRequest(known["prompt"], known["most"], s.seed, greedy)
    answers = await _all(model, [request] * times, with_text=True)
    if as_text:
        return [[a.model, a.fingerprint, f"{a.reasoning or ''}{a.text}"] for a in answers]
    return [(answer.prompt_logprobs or [None])[1:] for answer in answers]


def _alike(known: Sequence[Reading], reading: Reading) -> bool:
    """Say whether a reading is as near the first as those of the first probe are.

    >>> _alike([[-1.0, -2.0], [-1.2, -2.0]], [-1.4, -2.0]), _alike([[-1.0], [-1.0]], [-1.2])
    (True, False)
    >>> known = [["m", "f", "so 1 + 1"]]
    >>> [_alike(known, other) for other in (["m", "f", "so 1 is"], ["m", "f", "2"], ["m", "g", ""])]
    [True, False, False]
    """
    first, *more = known
    if not isinstance(first[-1], str):
        apart = max((mean_difference(first, one) for one in more), default=0.0)
        limit = max(_NATS, 3 * apart)
        return len(reading) == len(first) and mean_difference(first, reading) <= limit
    models, fingerprints, texts = zip(*known, strict=True)
    start = os.path.commonprefix
    shared = 2 * len(start([first[-1], reading[-1]])) >= len(start(texts))
    return shared and reading[0] in models and reading[1] in fingerprints


def _check_words(model: Model, answers: Sequence[Answer], decode: Decode, cfg: RunConfig) -> None:
    """Refuse a server whose tokens are other words to the tokenizer here.

    The end may be a letter cut in two, and one answer may hold a token that is shown otherwise.
    """
    texts = [
        [text.replace("\ufffd", "").strip() for text in (answer.text, decode(answer))]
        for answer in answers
        if answer.text
    ]
    unlike = [(a, b) for a, b in texts if not (a.startswith(b) or b.startswith(a))]
    if len(unlike) > 1 or len(unlike) == len(texts) == 1:
        there, here = unlike[0]
        raise UserError(
            f"{model.client.setting}: gives tokens that it reads as {there[:40]!r} and the"
            f" tokenizer of {cfg.model.tokenizer or cfg.model.id} as {here[:40]!r}; set"
            " model.tokenizer, or serve the model that is meant"
        )


async def _fitting(model: Model, request: SampleRequest, s: SamplingConfig) -> Answer:
    """Ask without the fields that the server refuses and the run can do without."""
    while True:
        try:
            answer = await model.ask(request, probing=True)
        except Rejected as error:
            if error.status not in (400, 422) or not _leave_out(model, error.words, s):
                raise
            continue
        if answer.logprobs is not None or not request.logprobs or model.zero_is_none:
            return answer
        model.zero_is_none = True


def _leave_out(model: Model, words: str, s: SamplingConfig) -> bool:
    """Drop or rename the fields that a server complains of; say whether there are any."""
    if "max_completion_tokens" in words and not model.renamed:
        model.renamed["max_tokens"] = "max_completion_tokens"
        return True
    named = {*_NEUTRAL, *_EXTRAS} & set(re.findall(r"\w+", words)) - model.dropped
    if s.top_k is not None:
        named.discard("top_k")
    model.dropped |= named
    return bool(named)


async def _repeats(
    model: Model, requests: Sequence[list[SampleRequest]], answers: Sequence[list[Answer]]
) -> bool:
    """Say whether seeds give the same tokens again; rounding may differ once (bfloat16).

    An easy question is answered alike by chance now and then, so there are several.
    """
    again = [request for some in requests for request in some[:_REPEATS]]
    before = [answer for some in answers for answer in some[:_REPEATS]]
    equal = [
        _equal(await model.ask(r, probing=True), a) for r, a in zip(again, before, strict=True)
    ]
    return sum(equal) >= len(equal) - 1


async def _log_probs(
    model: Model, s: SamplingConfig, prompt: list[int], limit: int
) -> tuple[Findings, Findings]:
    """Measure by prompt log-probs whether log-probs of samples are the model's own.

    A server may give them after the temperature and top-p. Read again as a part of a prompt, the
    same tokens have those of the model. Returns findings, and a text by which to know the model.
    """
    request = SampleRequest(prompt, min(TOKENS, limit), s.seed, s, s.logprobs)
    sample = await model.ask(request, probing=True)
    # vLLM wants room for one token more than the prompt.
    read = [*prompt, *(sample.token_ids or ())][: len(prompt) + limit - 1]
    try:
        request = SampleRequest(read, 1, None, s, prompt_logprobs=True)
        values = (await model.ask(request, probing=True)).prompt_logprobs
    except Rejected:
        values = None
    if values is None:
        return {"prompt_logprobs": False, "replay": None}, {}
    replayed, replay = values[len(prompt) :], None
    if sample.logprobs and replayed:
        replay = mean_difference(sample.logprobs[: len(replayed)], replayed)
    known = {"prompt": read, "looks": [values[1:]]}
    return {"prompt_logprobs": True, "replay": replay}, known


def judge(model: Model, found: Findings, cfg: RunConfig) -> set[str]:
    """Warn of what a server lacks; return what of the run's wishes is done without.

    Raises UserError: the run needs it, for `engine.allow_missing` does not name it.
    """
    lacks = missing(found, cfg)
    for line in [*lacks.values(), *remarks(found, cfg)]:
        warn(f"{model.client.url} {line}")
    if refused := [name for name in lacks if name not in cfg.engine.allow_missing]:
        without = " ".join(f"sampling.{name}=false" for name in refused)
        raise UserError(
            f"{model.client.setting}: lacks what this run asks for ({', '.join(refused)}); to go on"
            f" without: engine.allow_missing=[{','.join(refused)}], or {without} with a tag=NAME"
        )
    return set(lacks)


def missing(found: Findings, cfg: RunConfig) -> dict[str, str]:
    """List what a run needs and a server lacks: by its name in `engine.allow_missing`, why."""
    lacks, s = {}, cfg.sampling
    if s.logprobs and not found["logprobs"]:
        lacks["logprobs"] = "gives no log-probs of what it samples"
    elif s.logprobs and (found.get("replay") or 0.0) > _NATS:
        lacks["logprobs"] = (
            "gives log-probs after temperature and top-p, not those of the model (they differ by"
            f" {found['replay']:.2f} nats a token)"
        )
    if s.prompt_logprobs and not found.get("prompt_logprobs"):
        lacks["prompt_logprobs"] = "gives no log-probs of prompts"
    return lacks


def remarks(found: Findings, cfg: RunConfig) -> list[str]:
    """List what a reader of the results should know of a server."""
    seeded, blank = cfg.sampling.seed is not None, found.get("blank")
    unrepeatable = "seeds: attempts are samples but cannot be repeated"
    notes = {
        "shows nothing of short samples: whether it heeds seeds was not tried": blank,
        f"takes no {unrepeatable}": not blank and found["seeds"] is None and seeded,
        f"ignores {unrepeatable}": not blank and found["seeds"] is False,
        "gives no token ids: texts and counts are as it says": not found["token_ids"],
        f"does not take {', '.join(found['not_taken'])}: its own defaults hold": found["not_taken"],
        "makes the prompt from chat turns by its own template": found["api"] == "chat",
    }
    return [note for note, holds in notes.items() if holds]


def mean_difference(reading: Sequence[float | None], stored: Any) -> float:
    """Compare log-probs of the same tokens: mean absolute difference, in nats a token.

    >>> round(mean_difference([None, -1.0, -2.0], [float("nan"), -1.5, -2.0]), 2)
    0.25
    """
    a, b = np.array(reading, dtype=float), np.asarray(stored, dtype=float)
    difference = np.abs(a - b)
    return float(np.nanmean(difference)) if np.isfinite(difference).any() else 0.0


def _equal(one: Answer, other: Answer) -> bool:
    if one.token_ids is not None:
        return one.token_ids == other.token_ids
    return (one.text, one.reasoning) == (other.text, other.reasoning)
