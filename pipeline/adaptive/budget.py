"""One budget for all runs of a race: what is left of it, and what a run may take of that.

The budget is of the run folders, over all their sessions. A block that it cannot pay is not begun,
for attempts without a look decide nothing. What is known of costs is the mean of what was made.
"""

from collections.abc import Sequence
from typing import Any

from bayes_at_n.pipeline.adaptive.plan import Contender, Plan
from bayes_at_n.pipeline.config.compose import quoted
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.spent import Spent


def told(plan: Plan, owed: Sequence[tuple[Contender, int]]) -> str:
    """Why the next look cannot be paid; empty where it can, or where no budget is set.

    `owed`: attempts that each model lacks for it. Of a model without any attempt the mean of all
    others counts; while nothing is made at all a look is tried.
    """
    cfg = plan.contenders[0].runs[0].cfg
    if not cfg.budget.given:
        return ""
    taken = {contender.name: spent.spent(contender.runs) for contender in plan.contenders}
    total, expected = spent.added(taken.values()), Spent()
    account = spent.account(cfg, total)
    if cfg.budget.past:
        return f"the time is over ({spent.in_words(account)})"
    for contender, lacking in owed:
        own = taken[contender.name]
        cost = own if own.attempts else total
        share = lacking / max(1, cost.attempts)
        expected = spent.added([expected, Spent(*(share * part for part in cost))])
    left, needed = spent.left(cfg, total), spent.account(cfg, expected)
    short = [key for key in left if not left[key] or needed[key]["spent"] > left[key]]
    if not short:
        return ""
    key = short[0]
    return (
        f"the budget is spent: the next look takes about {needed[key]['spent']:,.6g} more of"
        f" budget.{key}, and {left[key]:,.6g} is left ({spent.in_words(account)}); the same command"
        " with a larger budget goes on"
    )


def settings(plan: Plan, run: Run, lacking: int, at_once: bool) -> list[str]:
    """The budget of one run: what the others have left of it; none where none is set.

    As many runs as lack something share what is left where they are sampled at once, or while
    nothing is known of costs.
    """
    every = [of for contender in plan.contenders for of in contender.runs]
    others = spent.spent(other for other in every if other.path != run.path)
    found: dict[str, Any] = spent.rest(run.cfg, others).given
    if lacking > 1 and (at_once or not others.tokens):
        left = spent.left(run.cfg, spent.added([others, spent.spent([run])]))
        found |= {key: found[key] - left[key] + left[key] / lacking for key in left}
    return [f"budget.{key}={quoted(v) if key == 'until' else v}" for key, v in found.items()]
