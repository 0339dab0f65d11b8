"""One budget for all runs of a race: what is left of it, and what a run may take of that.

The budget is of the run folders, over all their sessions. A look that it cannot pay is not sampled
for, since attempts without a look decide nothing. What is known of costs is the mean so far.
"""

from collections.abc import Sequence
from typing import Any

from bayes_at_n.pipeline.adaptive.plan import Contender
from bayes_at_n.pipeline.adaptive.race import Ints
from bayes_at_n.pipeline.config.compose import quoted
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.spent import Spent


def given(contenders: Sequence[Contender]) -> dict[str, Any]:
    """Return the limits that are set, by key."""
    limits: dict[str, Any] = contenders[0].runs[0].cfg.budget.given
    return limits


def exhausted(contenders: Sequence[Contender], lacking: Ints) -> str:
    """Say why the next look cannot be paid; empty where it can, or where no budget is set.

    `lacking`: attempts (K,) that each model lacks for it. Of a model without any attempt the mean
    of all others counts; while nothing is made at all a look is tried.
    """
    cfg = contenders[0].runs[0].cfg
    if not given(contenders):
        return ""
    taken = [spent.spent(contender.runs) for contender in contenders]
    total, expected = spent.added(taken), Spent()
    account = spent.account(cfg, total)
    if cfg.budget.past:
        return f"the time is over ({spent.in_words(account)})"
    for own, attempts in zip(taken, lacking.tolist(), strict=True):
        cost = own if own.attempts else total
        share = attempts / max(1, cost.attempts)
        expected = spent.added([expected, Spent(*(share * part for part in cost))])
    left, needed = spent.left(cfg, total), spent.account(cfg, expected)
    short = [key for key in left if not left[key] or needed[key]["spent"] > left[key]]
    if not short or not lacking.any():
        return ""
    return (
        f"the budget is spent: the next look takes about {needed[short[0]]['spent']:,.6g} more of"
        f" budget.{short[0]}, and {left[short[0]]:,.6g} is left ({spent.in_words(account)}); the"
        " same command with a larger budget goes on"
    )


def settings(contenders: Sequence[Contender], run: Run, sharing: int, at_once: bool) -> list[str]:
    """Return the budget of one run: what the others have left of it.

    `sharing`: runs that lack something; they share what is left where they are sampled at once, or
    while nothing is known of costs.
    """
    every = [of for contender in contenders for of in contender.runs]
    others = spent.spent(other for other in every if other.path != run.path)
    own = spent.rest(run.cfg, others).given
    if sharing > 1 and (at_once or not others.tokens):
        left = spent.left(run.cfg, spent.added([others, spent.spent([run])]))
        own |= {key: own[key] - left[key] + left[key] / sharing for key in left}
    return [f"budget.{key}={quoted(str(v)) if key == 'until' else v}" for key, v in own.items()]
