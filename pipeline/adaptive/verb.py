"""settle: plan, sample until it is decided, and say and write the result."""

import itertools
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.adaptive import bank, data, live, looks, luck, plan, preview, tables
from bayes_at_n.pipeline.adaptive.data import Outcomes
from bayes_at_n.pipeline.adaptive.plan import Goal, Plan
from bayes_at_n.pipeline.adaptive.race import Course, State, ended, order, states
from bayes_at_n.pipeline.base.console import Meter, note, percent, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config import settle as config
from bayes_at_n.pipeline.config.settle import Assumed, Request, SettleConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.workers import resident


def run(settings: Sequence[str], dry_run: bool = False) -> None:
    """Decide between models with no more attempts than that takes; `dry_run`: say what that is.

    Raises UserError: a setting, a model or a folder cannot work; or a run failed or was stopped,
    with its exit status. OSError: a folder cannot be written.
    """
    requested = config.load(settings)
    if requested.cfg.replay and dry_run:
        raise UserError("--dry-run: not available with replay=FOLDER, which samples nothing")
    if requested.cfg.bank and dry_run:
        raise UserError("--dry-run: not available with bank=true")
    if requested.cfg.replay:
        replay(requested)
    elif requested.cfg.bank:
        bank.settle(plan.make(requested), requested.cfg)
    elif decided := _decided(requested, dry_run):
        arguments, goal = decided[0].arguments, decided[0].goal
        rest = [a for a in arguments if a not in config.of_key("until", arguments)]
        again = shlex.join([*rest, f"until={goal.cfg.until}"])
        note(f"for the stages after grade: {PROGRAM} run {again}")


def run_until(settings: Sequence[str], dry_run: bool = False) -> int:
    """Settle, then make every stage of each model with the trials it has reached: `run ... until=`.

    Returns the exit status of the stages. Raises UserError and OSError: as `run`.
    """
    stages = config.of_key("stages", settings)
    requested = config.load([setting for setting in settings if setting not in stages])
    if requested.cfg.replay or requested.cfg.folders or requested.cfg.bank:
        raise UserError("until=: needs settings such as model=a dataset=b, not folders or bank")
    if not (decided := _decided(requested, dry_run)):
        return 0
    commands = []
    for contender, spent in zip(decided[0].contenders, decided[1].states[-1].spent, strict=True):
        for made, of_run in zip(contender.runs, contender.settings, strict=True):
            trials = data.reached(made, int(spent))
            commands.append(["run", *of_run, f"sampling.trials={trials}", *stages])
    return resident.run_all(commands)


def _decided(requested: Request[SettleConfig], dry_run: bool) -> tuple[Plan, Course] | None:
    """Settle, and say and write the result; None of a dry run, which says what to expect."""
    if requested.cfg.assume != Assumed() and not dry_run:
        raise UserError("assume: applies to --dry-run only; `settle` uses what it samples")
    planned = plan.make(requested)
    if dry_run:
        preview.dry_run(planned, requested.cfg.assume)
        return None
    seen, known = live.settle(planned)
    written, last = tables.write(planned.folder, seen, known), seen.states[-1]
    if ended(last, planned.goal) and not last.known.settled:
        most = planned.goal.trials
        warn(f"all {most} trials are used; continue with sampling.trials=N and out=FOLDER")
    _tell(seen, tables.record(seen, known))
    note(f"saved {written[-1]}, leaderboard and looks.jsonl")
    return planned, seen


def replay(requested: Request[SettleConfig]) -> None:
    """Decide from complete runs as if they were being sampled; nothing is written but into `out`.

    Raises UserError: folders that hold no runs that can be compared.
    """
    known = data.of_complete(requested.cfg.replay)
    for (a, x), (b, y) in itertools.combinations(zip(known.names, known.codes, strict=True), 2):
        if np.array_equal(x, y):
            warn(f"{a} and {b} have identical outcomes; if they are the same run, leave one out")
    goal = plan.goal(requested.cfg, known.names, known.codes.shape[2], block=1)
    seen = looks.course(known, goal)
    record = tables.record(seen, known)
    if requested.cfg.permutations:
        record["permutations"] = _permuted(known, goal, requested.cfg.permutations)
    if requested.cfg.out:
        folder = Path(requested.cfg.out).expanduser()
        note(f"saved {tables.write(folder, seen, known)[-1]}")
    _tell(seen, record)


def _permuted(known: Outcomes, goal: Goal, number: int) -> dict[str, Any]:
    """How often other orders of the trials of each question decide what, and with how many."""
    rng = np.random.default_rng(goal.cfg.seed)
    decided: Counter[str] = Counter()
    shares = []
    with Meter("permutations", number) as meter:
        for _ in range(number):
            *_, last = states(rng.permuted(scoring.values(known.codes), axis=2), goal)
            decided[_decision(last, goal)] += 1
            shares.append(last.spent.sum() / (len(goal.names) * goal.trials))
            meter.advance(1)
    return {
        "number": number,
        "decided": dict(decided.most_common()),
        "attempts": float(np.mean(shares)),
        "attempts_quantiles": np.quantile(shares, [0.05, 0.5, 0.95]).tolist(),
    }


def _decision(state: State, goal: Goal) -> str:
    """Say what is decided, short enough to be counted."""
    if not state.known.settled:
        return "not settled"
    groups = order(state.known, goal)
    if goal.until.kind in ("best", "top"):
        groups = groups[:1]
    return " > ".join(" = ".join(sorted(group)) for group in groups)


def _tell(seen: Course, record: dict[str, Any]) -> None:
    """The result as one JSON object, or as a table and three sentences."""
    display.print_json(record)
    display.show(tables.leaderboard(seen))
    results.print(tables.verdict(seen))
    if seen.basis:
        results.print(luck.sentence(seen.basis, seen.goal))
    more = record.get("basis", {}).get("next_attempts")
    if more and not record["settled"]:
        results.print(more["sentence"])
    results.print(f"spent {tables.spent_line(record)}")
    if permuted := record.get("permutations"):
        orders = ", ".join(
            f"{name} {share / permuted['number']:.1%}"
            for name, share in [*permuted["decided"].items()][:5]
        )
        results.print(
            f"in {permuted['number']} orders of the trials: {orders}; with"
            f" {permuted['attempts']:.1%} of the attempts, {percent(0.9)} of them between"
            f" {permuted['attempts_quantiles'][0]:.1%} and {permuted['attempts_quantiles'][2]:.1%}"
        )
