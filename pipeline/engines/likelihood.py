"""Score texts by the log-probs of their tokens, where other requests sample an answer."""

from collections.abc import Generator, Iterable, Sequence
from itertools import chain

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.engines import Completion, Engine, Logprobs, Request, pull, steady_clock
from bayes_at_n.pipeline.prepare.solved import Encoded, shown

_TOGETHER = 32  # questions, between two of which a worker can stop
_MOST_NEXT = 100  # distinct tokens that are scored as the next one; vLLM has at most 128


def score(engine: Engine, requests: Iterable[Request | None]) -> Generator[Completion | None]:
    """Yield the log-probs of each request's options, as `Engine.generate` yields attempts."""
    waiting, more = iter(requests), True
    while more:
        taken, more = pull(waiting, _TOGETHER)
        if taken:
            yield from _completions(engine, taken)
        yield None


def _completions(engine: Engine, requests: Sequence[Request]) -> Generator[Completion]:
    now = steady_clock()
    started, options = now(), [option for request in requests for option in request.options]
    logprobs = logprobs_of(engine, [o.after_prompt for o in options] + [o.alone for o in options])
    scored = iter(zip(options, logprobs, logprobs[len(options) :], strict=False))
    for request in requests:
        own = [next(scored) for _ in request.options]
        rows = [
            {
                "logprob": float(values.sum(dtype=np.float64)),
                "tokens": len(values),
                "bytes": len(option.text.encode()),
                "unconditional": float(alone.sum(dtype=np.float64)),
            }
            for option, values, alone in own
        ]
        yield Completion(
            request=request,
            text=shown(rows, [option.text for option, *_ in own]),
            finish_reason="stop",
            token_ids=[*chain.from_iterable(option.after_prompt[1] for option, *_ in own)],
            logprobs=[*chain.from_iterable(values.tolist() for _, values, _ in own)],
            started=started,
            first_token=None,
            finished=now(),
            options=rows,
        )


def logprobs_of(engine: Engine, pairs: Sequence[Encoded]) -> list[Logprobs]:
    """Return the natural log-probs of the tokens of each pair given its context: float32 [tokens].

    Equal pairs are scored once. Where all texts after a context are single tokens, such as letters,
    one prefill scores all of them; a server may list the likeliest tokens only, so there, and for
    longer texts, each text takes a prefill, behind that of its context, which engines of this
    process do once. Raises UserError: a log-prob is not finite.
    """
    distinct = {(tuple(context), tuple(tokens)): (context, tokens) for context, tokens in pairs}
    longer = {context for context, tokens in distinct if len(tokens) > 1}
    singles = [key for key in distinct if key[0] not in longer]
    next_ids = [*dict.fromkeys(tokens[0] for _, tokens in singles)]
    if kind(engine.cfg.engine.name).served or len(next_ids) > _MOST_NEXT:
        singles = []
    found = dict[tuple[tuple[int, ...], tuple[int, ...]], Logprobs]()
    if contexts := [*dict.fromkeys(context for context, _ in singles)]:
        rows = engine.next_logprobs([[*one] for one in contexts], next_ids, lambda: None)
        by_context = dict(zip(contexts, rows, strict=True))
        for key in singles:
            found[key] = by_context[key[0]][[next_ids.index(key[1][0])]]
    rest = [key for key in distinct if key not in found]
    values = engine.prompt_logprobs(
        [[*context, *tokens] for context, tokens in rest], [len(context) for context, _ in rest]
    )
    for key, logprobs in zip(rest, values, strict=True):
        found[key] = logprobs[len(key[0]) :]
    if not all(np.isfinite(logprobs).all() for logprobs in found.values()):
        name = engine.cfg.model.name
        raise UserError(f"{name}: log-probs are not finite; try model.dtype=float32")
    return [found[tuple(context), tuple(tokens)] for context, tokens in pairs]
