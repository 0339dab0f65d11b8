"""settle: plan, sample until it is decided, and say and write the result."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.adaptive import bank, data, live, looks, luck, plan, tables
from bayes_at_n.pipeline.adaptive.plan import Plan
from bayes_at_n.pipeline.adaptive.race import Course, ended
from bayes_at_n.pipeline.base.console import note, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config import settle as config
from bayes_at_n.pipeline.config.settle import Request, SettleConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.workers import resident


def run(settings: Sequence[str]) -> None:
    """Decide between models with no more attempts than that takes.

    Raises UserError: a setting, a model or a folder cannot work; or a run failed or was stopped,
    with its exit status. OSError: a folder cannot be written.
    """
    requested = config.load(settings)
    if requested.cfg.replay:
        replay(requested)
    elif requested.cfg.bank:
        bank.settle(plan.make(requested), requested.cfg)
    else:
        planned, _ = _decided(requested)
        until = f"until={planned.goal.cfg.until}"
        note(f"for the stages after grade: {PROGRAM} run with the same settings and {until}")


def run_until(settings: Sequence[str], dry_run: bool = False) -> int:
    """Settle, then make every stage of each model with the trials it has reached: `run ... until=`.

    Returns the exit status of the stages. Raises UserError and OSError: as `run`.
    """
    stages = config.of_key("stages", settings)
    requested = config.load([setting for setting in settings if setting not in stages])
    if requested.cfg.replay or requested.cfg.folders or requested.cfg.bank:
        raise UserError("until=: needs settings such as model=a dataset=b, not folders or bank")
    if dry_run:
        raise UserError("--dry-run: not available with until=; `plan` simulates what it takes")
    planned, seen = _decided(requested)
    commands = []
    for contender, spent in zip(planned.contenders, seen.states[-1].spent, strict=True):
        for made, of_run in zip(contender.runs, contender.settings, strict=True):
            trials = data.reached(made, int(spent))
            commands.append(["run", *of_run, f"sampling.trials={trials}", *stages])
    return resident.run_all(commands)


def _decided(requested: Request[SettleConfig]) -> tuple[Plan, Course]:
    """Settle, and say and write the result."""
    planned = plan.make(requested)
    seen, known = live.settle(planned)
    written, last = tables.write(planned.folder, seen, known), seen.states[-1]
    if ended(last, planned.goal) and not last.known.settled:
        most = planned.goal.trials
        warn(f"all {most} trials are used; to continue: sampling.trials=N and a new out=FOLDER")
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
    if requested.cfg.out:
        folder = Path(requested.cfg.out).expanduser()
        note(f"saved {tables.write(folder, seen, known)[-1]}")
    _tell(seen, record)


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
