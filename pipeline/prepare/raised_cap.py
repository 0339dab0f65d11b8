"""Check whether truncated attempts can continue under a raised `sampling.max_tokens`."""

from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from bayes_at_n.pipeline.base.console import plural
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.store.runfolder import Run

if TYPE_CHECKING:
    from bayes_at_n.pipeline.prepare.questions_table import Built

# Fields of requests that count the tokens of one request, and would start over.
_COUNTING = ("presence_penalty", "frequency_penalty", "max_pattern_size")
NO_TOKENS = "token ids of prompts (chat turns have none) or of attempts are not stored"
Cut = dict[tuple[str, int], int]


def check(run: Run, built: "Built") -> Cut:
    """Return the attempts that continue under the questions' cap, and their tokens so far.

    Raises UserError: the cap is raised while workers are sampling, or attempts cannot continue.
    """
    raised = runfolder.raised(run, built.identity)
    if raised and runfolder.alive(run.path):
        raise UserError(
            f"sampling.max_tokens={raised[1]}: workers are sampling with {raised[0]} in {run.path};"
            " wait for them, or stop them (finished attempts are kept)"
        )
    if not raised and not runfolder.was_raised(run):
        return {}
    rows = built.rows()
    cut = runfolder.continuing(run, rows)
    if not raised or not cut:
        return cut
    s, reason = run.cfg.sampling, ""
    sampling = asdict(s) | asdict(s.repetition_detection) | run.cfg.engine.args
    names = [*KEY, "token_ids"]
    batches = shards.batches(run.attempts, ATTEMPTS, names, shards.Damage(), keep=cut)
    if counting := [name for name in _COUNTING if sampling.get(name)]:
        reason = f"{counting[0]} counts the tokens of one request, and would start over"
    elif any(row["prompt_token_ids"] is None for row in rows) or any(
        batch["token_ids"].null_count for batch in batches
    ):
        reason = NO_TOKENS
    if reason:
        raise UserError(refusal(run, reason))
    return cut


def refusal(run: Run, reason: str) -> str:
    """Return the message that the attempts of a run cannot continue, with the remedy."""
    return (
        f"sampling.max_tokens={run.cfg.sampling.max_tokens}: the truncated attempts in {run.path}"
        f" cannot continue: {reason}. To sample all attempts with this cap, use another folder"
        " (tag=NAME)"
    )


def described(cfg: RunConfig, tokens: Collection[int]) -> str:
    """Return a line on attempts that continue, by their tokens so far; empty without any.

    >>> from bayes_at_n.pipeline.config.sampling import SamplingConfig
    >>> described(RunConfig(sampling=SamplingConfig(max_tokens=65536)), [16, 8])
    'continues 2 truncated attempts from 8-16 to 65,536 tokens'
    """
    if not tokens:
        return ""
    ends = "-".join(f"{n:,}" for n in sorted({min(tokens), max(tokens)}))
    attempts = plural(len(tokens), "truncated attempt")
    return f"continues {attempts} from {ends} to {cfg.sampling.max_tokens:,} tokens"
