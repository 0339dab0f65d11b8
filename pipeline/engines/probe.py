"""The probe of a server before a run: a few short samples show whether it does what is requested.

The findings are shown, recorded and compared with what the run needs, before it costs anything.
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
from bayes_at_n.pipeline.config.protocol import SamplingConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines.client import Rejected
from bayes_at_n.pipeline.engines.served import Model, Response, SampleRequest

TOKENS = 32  # of each sample
_SEEDS = 4  # of each question
# Mean difference of log-probs in nats per token above which they belong to another model, or were
# taken after temperature and top-p. Rounding to bfloat16 makes .01 to .02.
_NATS = 0.05
# Optional where the value sent means "no effect".
_NEUTRAL = ("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_EXTRAS = ("return_token_ids", "prompt_logprobs", "logprobs", "seed", "return_tokens_as_token_ids")
_READINGS = 4  # of one text in the first probe: their spread is the server's own

Findings = dict[str, Any]
Reading = list[Any]  # log-probs; or a name, a fingerprint and a text
Decode = Callable[[Response], str]
Prompts = Sequence[tuple[Any, int]]  # the prompt of a `SampleRequest`, and its `max_tokens`


async def probe(
    model: Model, cfg: RunConfig, prompts: Prompts, decode: Decode | None
) -> tuple[Findings, Findings]:
    """Measure what the server does with some of the run's questions.

    Args:
        model: the model; fields that the server refuses are dropped from its requests.
        cfg: the run's configuration.
        prompts: of questions of the run, at least one.
        decode: decodes a response's token ids; None without a tokenizer.

    Returns:
        The findings, for the record, and the reference by which `has_run_model` recognizes the
        model.

    Raises:
        UserError: it rejects what the run needs, or gives the same response to all seeds.
    """
    s = cfg.sampling
    hot = replace(s, temperature=1.0, top_p=1.0, top_k=None)  # where seeds matter most
    prompt, limit = prompts[0]
    first = SampleRequest(prompt, min(TOKENS, limit), s.seed, hot, s.logprobs)
    sample = await _fitting(model, first, s)
    seeds = [None if s.seed is None else s.seed + k for k in range(_SEEDS)]
    responses = [
        await _all(
            model, [SampleRequest(p, min(TOKENS, most), seed, hot, s.logprobs) for seed in seeds]
        )
        for p, most in prompts
    ]
    if decode is not None and sample.token_ids is not None:
        _check_tokenizer(model, [response for some in responses for response in some], decode, cfg)
    texts = [[a.token_ids or (a.text, a.reasoning) for a in some] for some in responses]
    # If the server hides the reasoning, short samples show nothing.
    blank = all(text in (("", None), (None, None)) for some in texts for text in some)
    alike = all(some[0] == other for some in texts for other in some)
    if alike and not blank and not s.likelihood:
        raise UserError(
            f"{model.client.setting}: gives the same answer to {_SEEDS} different seeds at"
            " temperature 1, so attempts are not independent samples; is there a cache in front? Of"
            " `transformers serve`, which is greedy by default, ask for samples with engine.args."
            """generation_config='{"do_sample": true, "top_k": 0}'"""
        )
    findings: Findings = asdict(model.facts) | {
        "url": model.client.url,
        "fingerprint": sample.fingerprint,
        "token_ids": sample.token_ids is not None,
        "logprobs": sample.logprobs is not None,
        "prompt_token_ids": sample.prompt_token_ids is not None,
        "named": sample.named,
        "not_taken": sorted(model.dropped),
    }
    reference: Findings = {}
    if not first.is_chat:
        more, reference = await _log_probs(model, s, *prompts[-1])
        findings |= more
    greedy = {"prompt": prompt, "most": min(2 * TOKENS, limit), "temperature": 0.0, "looks": []}
    reference = reference or greedy
    try:
        reference["looks"] += await _readings(model, reference, s, _READINGS)
    except Rejected:  # some servers allow one temperature only
        reference["temperature"] = s.temperature
        reference["looks"] += await _readings(model, reference, s, _READINGS)
    return findings, reference


async def is_same_model(model: Model, reference: Findings, s: SamplingConfig) -> bool:
    """Return whether a server has the model of a reference: two of three readings decide."""
    readings = await _readings(model, reference, s, 3)
    return sum(_alike(reference["looks"], reading) for reading in readings) >= 2


async def _all(model: Model, requests: Sequence[SampleRequest]) -> list[Response]:
    return await asyncio.gather(*(model.send(request, probing=True) for request in requests))


async def _readings(
    model: Model, reference: Findings, s: SamplingConfig, times: int
) -> list[Reading]:
    """Return log-probs of the reference's text, or model name, fingerprint and greedy answer."""
    request = SampleRequest(reference["prompt"], 1, None, s, prompt_logprobs=True)
    if as_text := "temperature" in reference:
        greedy = replace(s, temperature=reference["temperature"], top_p=1.0, top_k=None)
        request = SampleRequest(reference["prompt"], reference["most"], s.seed, greedy)
    responses = await _all(model, [request] * times)
    if as_text:
        return [[a.model, a.fingerprint, f"{a.reasoning or ''}{a.text}"] for a in responses]
    return [(response.prompt_logprobs or [None])[1:] for response in responses]


def _alike(stored: Sequence[Reading], reading: Reading) -> bool:
    """Return whether a reading is as close to the first stored one as the other stored ones are.

    >>> _alike([[-1.0, -2.0], [-1.2, -2.0]], [-1.4, -2.0]), _alike([[-1.0], [-1.0]], [-1.2])
    (True, False)
    >>> stored = [["m", "f", "so 1 + 1"]]
    >>> [_alike(stored, new) for new in (["m", "f", "so 1 is"], ["m", "f", "2"], ["m", "g", ""])]
    [True, False, False]
    """
    first, *others = stored
    if not isinstance(first[-1], str):
        spread = max((mean_difference(first, other) for other in others), default=0.0)
        limit = max(_NATS, 3 * spread)
        return len(reading) == len(first) and mean_difference(first, reading) <= limit
    models, fingerprints, texts = zip(*stored, strict=True)
    prefix = os.path.commonprefix
    shared = 2 * len(prefix([first[-1], reading[-1]])) >= len(prefix(texts))
    return shared and reading[0] in models and reading[1] in fingerprints


def _check_tokenizer(
    model: Model, responses: Sequence[Response], decode: Decode, cfg: RunConfig
) -> None:
    """Raise UserError if the run's tokenizer decodes a server's tokens to another text.

    An answer may end within a character, and a single answer may differ in how a token is shown.
    """
    texts = [
        [text.replace("\ufffd", "").strip() for text in (response.text, decode(response))]
        for response in responses
        if response.text
    ]
    unlike = [(a, b) for a, b in texts if not (a.startswith(b) or b.startswith(a))]
    if len(unlike) > 1 or len(unlike) == len(texts) == 1:
        remote, local = unlike[0]
        raise UserError(
            f"{model.client.setting}: decodes its tokens to {remote[:40]!r}, and the tokenizer of"
            f" {cfg.model.tokenizer or cfg.model.id} decodes them to {local[:40]!r}; set"
            " model.tokenizer, or serve the intended model"
        )


async def _fitting(model: Model, request: SampleRequest, s: SamplingConfig) -> Response:
    """Return a response; drop fields that the server rejects and the run does not need."""
    while True:
        try:
            return await model.send(request, probing=True)
        except Rejected as error:
            if error.status not in (400, 422) or not _drop_fields(model, error.words, s):
                raise


def _drop_fields(model: Model, words: str, s: SamplingConfig) -> bool:
    """Drop or rename the fields that an error message names; return whether there are any."""
    if "max_completion_tokens" in words and not model.renamed:
        model.renamed["max_tokens"] = "max_completion_tokens"
        return True
    named = {*_NEUTRAL, *_EXTRAS} & set(re.findall(r"\w+", words)) - model.dropped
    named -= {key for key in _NEUTRAL if getattr(s, key) != getattr(SamplingConfig, key)}
    model.dropped |= named
    return bool(named)


async def _log_probs(
    model: Model, s: SamplingConfig, prompt: list[int], limit: int
) -> tuple[Findings, Findings]:
    """Measure whether log-probs of samples are the model's, by comparison with prompt log-probs.

    A server may give them after temperature and top-p; as part of a prompt, the same tokens have
    the model's own. Returns findings, and the reference by which to recognize the model.
    """
    request = SampleRequest(prompt, min(TOKENS, limit), s.seed, s, s.logprobs)
    sample = await model.send(request, probing=True)
    # vLLM needs space for one token more than the prompt.
    longer = [*prompt, *(sample.token_ids or ())][: len(prompt) + limit - 1]
    if (values := await _prompt_logprobs(model, longer, s)) is None:
        model.echo = True
        values = await _prompt_logprobs(model, longer, s)
    if values is None:
        model.echo = False
        return {"prompt_logprobs": False, "replay": None}, {}
    replayed, replay = values[len(prompt) :], None
    if sample.logprobs and replayed:
        replay = mean_difference(sample.logprobs[: len(replayed)], replayed)
    reference = {"prompt": longer, "looks": [values[1:]]}
    return {"prompt_logprobs": True, "replay": replay}, reference


async def _prompt_logprobs(
    model: Model, prompt: list[int], s: SamplingConfig
) -> list[float | None] | None:
    """Return the log-probs of a prompt; None if the server does not give them."""
    request = SampleRequest(prompt, 1, None, s, prompt_logprobs=True)
    try:
        return (await model.send(request, probing=True)).prompt_logprobs
    except Rejected:
        return None


def judge(model: Model, findings: Findings, cfg: RunConfig) -> None:
    """Warn of what a server lacks. Raises UserError: the run needs it."""
    dropped, reasons = findings["not_taken"], missing(findings, cfg)
    notes = {
        "gives no token ids: texts and counts are the server's": not findings["token_ids"],
        f"does not accept {', '.join(dropped)}: its own defaults apply": dropped,
        "renders chat turns with its own template": findings["api"] == "chat",
    }
    for line in (note for note, holds in notes.items() if holds):
        warn(f"{model.client.url} {line}")
    if cfg.sampling.likelihood and not findings.get("prompt_logprobs"):
        raise UserError(
            f"{model.client.setting}: gives no log-probs of prompts, by prompt_logprobs or by echo,"
            f" which sampling.likelihood={cfg.sampling.likelihood} needs; vLLM's server does"
        )
    if reasons:
        without = " ".join(f"sampling.{name}=false" for name in reasons)
        raise UserError(
            f"{model.client.setting}: {', and '.join(reasons.values())}; to continue without them:"
            f" {without}, in a new run (tag=NAME)"
        )


def missing(findings: Findings, cfg: RunConfig) -> dict[str, str]:
    """Return what a run needs and a server lacks: the reason, by name in `sampling`."""
    reasons, s = {}, cfg.sampling
    if s.logprobs and not findings["logprobs"]:
        reasons["logprobs"] = "gives no log-probs of what it samples"
    elif s.logprobs and (findings.get("replay") or 0.0) > _NATS:
        reasons["logprobs"] = (
            "gives log-probs after temperature and top-p, not those of the model (they differ by"
            f" {findings['replay']:.2f} nats per token)"
        )
    if s.prompt_logprobs and not findings.get("prompt_logprobs"):
        reasons["prompt_logprobs"] = "gives no log-probs of prompts"
    return reasons


def mean_difference(reading: Sequence[float | None], stored: Any) -> float:
    """Return the mean absolute difference of two lists of log-probs, in nats per token.

    >>> round(mean_difference([None, -1.0, -2.0], [float("nan"), -1.5, -2.0]), 2)
    0.25
    """
    a, b = np.array(reading, dtype=float), np.asarray(stored, dtype=float)
    difference = np.abs(a - b)
    return float(np.nanmean(difference)) if np.isfinite(difference).any() else 0.0
