"""`run --dry-run`: the first prompt, what is owed and what it may cost."""

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import clock, count, results
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import estimate, questions_table, raised_cap, sizing
from bayes_at_n.pipeline.prepare.estimate import Cost, Hardware, Judging
from bayes_at_n.pipeline.prepare.hub import NotHere
from bayes_at_n.pipeline.store import outcomes, runfolder
from bayes_at_n.pipeline.store.graded import VERDICTS_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.spent import Spent

_ASSUMED = 30  # questions, where they are not known, with prompts of 200 tokens
Rows = Sequence[Mapping[str, Any]]


def preview(run: Run, used: Hardware) -> None:
    """Print the first prompt, what is owed, and what that may cost; writes nothing.

    Raises UserError: whatever `prepare` would refuse.
    """
    try:
        built = questions_table.build(run)
    except NotHere as error:
        results.print(f"{error}; until then by what is known, for {_ASSUMED} questions:")
        one: dict[str, Any] = {"prompt": " " * 800, "prompt_token_ids": None}
        rows = [one | {"question_id": "", "max_tokens": run.cfg.sampling.max_tokens}] * _ASSUMED
        cut: raised_cap.Cut = {}
    else:
        rows = built.rows()
        identity = questions_table.identity(run, built)
        runfolder.check_same(run, identity, raising=True)
        cut = raised_cap.check(run, built, identity)
        results.print(f"first prompt ({rows[0]['question_id']}, gold answer {rows[0]['gold']}):")
        results.print(textwrap.indent(rows[0]["prompt"], "  | ", lambda line: True))
        results.print(f"questions: {len(rows)}, prompts of up to {max(_lengths(rows))} tokens")
    found = estimate_run(run, rows, used)
    results.print(f"owed: {found.owed} of {found.planned} attempts, into {run.path}")
    parts: dict[str, Any] = found._asdict()
    for name in ("cost", "judging"):
        parts[name] = parts[name] and parts[name]._asdict()
    answer({"run": run.path, "questions": len(rows), **parts})
    if not found.owed and not (found.judging and found.judging.attempts):
        return
    if cut:
        limits = {row["question_id"]: row["max_tokens"] for row in rows}
        most = count(sum(limits[key[0]] - tokens for key, tokens in cut.items()))
        words = raised_cap.told(run.cfg, cut.values())
        results.print(f"{words}, at most {most} tokens beside the estimate")
    for line in told(run, found, used):
        results.print(line)


def _lengths(rows: Rows) -> list[int]:
    """Tokens of prompts; of chat turns nobody knows them: four bytes make about one."""
    return [len(row["prompt_token_ids"] or row["prompt"].encode()[::4]) for row in rows]


class Estimate(NamedTuple):
    """What a run owes, and what that takes."""

    planned: int  # attempts
    owed: int
    known: bool  # how long attempts are, from those that are there
    prompts: float  # tokens, once an attempt
    cost: Cost
    judging: Judging | None
    paid: float | None  # at the engine's prices, of the most tokens; None: there are none


def estimate_run(run: Run, rows: Rows, used: Hardware) -> Estimate:
    """By the attempts so far where there are any, else by assumptions (`costs`)."""
    cfg, lengths = run.cfg, _lengths(rows)
    planned = len(rows) * cfg.sampling.trials
    usage = outcomes.usage(run, [row["question_id"] for row in rows])
    owed, mean = planned - usage.attempts, usage.completion_mean
    # Known to the token, but for attempts that came without the length of their prompt.
    unsaid = (usage.attempts - usage.prompts_known) * statistics.fmean(lengths)
    prompts = cfg.sampling.trials * sum(lengths) - usage.prompt_tokens - unsaid
    judged = VERDICTS_TABLE.read(run, [], None).table.num_rows if mean else 0

    cost = estimate.expected(cfg, rows, owed, used, mean, usage.spent)
    each = (mean or cost.tokens / max(1, owed)) + statistics.fmean(lengths)
    judging = estimate.judging(cfg, max(0, planned - judged), each, used)
    paid = outcomes.price(cfg.engine, prompts, cost.most)
    return Estimate(planned, owed, bool(mean), prompts, cost, judging, paid)


def told(run: Run, found: Estimate, used: Hardware) -> Iterator[str]:
    """Tokens, disk, time, money and the verifier, a line each."""
    cost, cfg = found.cost, run.cfg
    most = "" if found.known else f"; at most {count(cost.most)}"
    yield f"tokens: about {count(cost.tokens)} ({cost.basis}){most}; prompts {count(found.prompts)}"
    yield f"disk: about {count(estimate.BYTES_PER_TOKEN * cost.tokens)}B"
    yield f"time: {_time(cost.seconds, used)} ({cost.how})"
    if cfg.budget.given:
        so_far = spent.spent([run])
        already = max(1, found.planned - found.owed)
        whole = Spent(found.prompts, cost.most, found.owed * so_far.device_s / already)
        needed, left = spent.account(cfg, whole), spent.left(cfg, so_far)
        shares = [left[key] / needed[key]["spent"] for key in left if needed[key]["spent"]]
        most = f"{'about' if found.known else 'at least'} {int(found.owed * min([1.0, *shares]))}"
        fit = f"; {most} attempts fit" * bool(shares)
        yield spent.in_words(spent.account(cfg, so_far)) + fit
    if found.paid is not None:
        bound = "about" if found.known else "at most"
        yield f"price: {bound} {found.paid:,.2f}, with {count(found.prompts)} tokens of prompts"
    if (judge := found.judging) and judge.attempts:
        needs = [f"{sizing.gib(judge.memory)} of memory", _time(judge.seconds, used)]
        needs = [*(needs if judge.seconds else []), *filter(None, [judge.how])]
        asked = f"{judge.attempts:,} attempts, about {count(judge.tokens)} tokens to read"
        yield f"verifier: {cfg.verifier.name}, {asked}; {', '.join(needs)}"


def _time(seconds: float | None, used: Hardware) -> str:
    if seconds is None:
        return "not known"
    hours = f", {seconds * used.gpus / 3600:.2g} GPU-hours" * bool(used.gpus)
    return f"about {clock(seconds)}{hours} on {used.told}"


def in_short(found: Mapping[str, Estimate], used: Hardware) -> Iterator[str]:
    """What several runs take, a line each, and all of them; for `submit --dry-run`."""
    total = [0.0, 0.0, 0.0]
    for name, one in found.items():
        times = one.cost.seconds, one.judging and one.judging.seconds
        row = [one.owed, one.cost.tokens, sum(filter(None, times)) * max(1, used.gpus) / 3600]
        total = [a + b for a, b in zip(total, row, strict=True)]
        yield f"{name}: {_short(*row)} ({one.cost.basis}; {one.cost.how})"
    yield f"about {_short(*total)} on {used.told}, with the verifier"


def _short(owed: float, tokens: float, hours: float) -> str:
    size = count(estimate.BYTES_PER_TOKEN * tokens)
    return f"{owed:,.0f} attempts, {count(tokens)} tokens, {size}B, {hours:.2g} GPU-hours"
