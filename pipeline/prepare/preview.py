"""`run --dry-run`: the first prompt, what is owed and what it may cost."""

import statistics
import textwrap

from pipeline.base.console import count, results
from pipeline.prepare import questions_table, raising
from pipeline.store import outcomes, runfolder, spent
from pipeline.store.runfolder import Run
from pipeline.store.spent import Spent


def preview(run: Run) -> None:
    """Print the first prompt, what is owed, and what that may cost; writes nothing.

    Raises UserError: whatever `prepare` would refuse.
    """
    built = questions_table.build(run)
    rows = built.rows()
    identity = questions_table.identity(run, built)
    runfolder.check_same(run, identity, raising=True)
    cut = raising.check(run, built, identity)
    planned = len(rows) * run.cfg.sampling.trials
    usage = outcomes.usage(run, [row["question_id"] for row in rows])
    owed = planned - usage.attempts
    mean, basis = usage.completion_mean, f"mean of {usage.attempts} attempts so far"
    if not mean:
        mean = statistics.fmean(row["max_tokens"] for row in rows)
        basis = "upper limit, sampling.max_tokens"
    tokens = owed * mean
    # Ids and log-probs take 8 bytes a token; text of mathematics about 3 bytes a token.
    size = f"{count(tokens)} tokens ({basis}), {count(11 * tokens)}B on disk before compression"
    # Of chat turns nobody knows the tokens; four bytes make about one.
    lengths = [len(row["prompt_token_ids"] or row["prompt"].encode()[::4]) for row in rows]
    # Known to the token, but for attempts that came without the length of their prompt.
    unsaid = (usage.attempts - usage.prompts_known) * statistics.fmean(lengths)
    prompts = run.cfg.sampling.trials * sum(lengths) - usage.prompt_tokens - unsaid
    paid = outcomes.price(run.cfg.engine, prompts, tokens)
    results.print(f"first prompt ({rows[0]['question_id']}, gold answer {rows[0]['gold']}):")
    results.print(textwrap.indent(rows[0]["prompt"], "  | ", lambda line: True))
    results.print(f"questions: {len(rows)}, prompts of up to {max(lengths)} tokens")
    results.print(f"owed: {owed} of {planned} attempts, into {run.path}")
    if cut:
        limits = {row["question_id"]: row["max_tokens"] for row in rows}
        most = count(sum(limits[key[0]] - tokens for key, tokens in cut.items()))
        told = raising.told(run.cfg, cut.values())
        results.print(f"{told}, at most {most} tokens beside the estimate")
    results.print(f"estimate: {size}")
    known = bool(usage.completion_mean)
    if run.cfg.budget.given:
        so_far = spent.spent([run])
        whole = Spent(prompts, tokens, owed * so_far.device_s / max(1, usage.attempts))
        needed, left = spent.account(run.cfg, whole), spent.left(run.cfg, so_far)
        shares = [left[key] / needed[key]["spent"] for key in left if needed[key]["spent"]]
        fit = f"; {'about' if known else 'at least'} {int(owed * min([1.0, *shares]))} attempts fit"
        results.print(spent.in_words(spent.account(run.cfg, so_far)) + fit * bool(shares))
    if paid is not None:
        bound = "about" if known else "at most"
        results.print(f"price: {bound} {paid:,.2f}, with {count(prompts)} tokens of prompts")
