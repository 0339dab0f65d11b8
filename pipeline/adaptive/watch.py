"""status of a race: its leaderboard and what is left, above the table of its runs."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from bayes_at_n.pipeline.adaptive import looks, plan, tables
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.race import Course, ended
from bayes_at_n.pipeline.base.console import duration, results, si
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.status import watch
from bayes_at_n.pipeline.status.progress import Progress
from bayes_at_n.pipeline.status.watch import Header
from bayes_at_n.pipeline.store import selection


def status(folder: Path, watching: bool, every: float | None) -> None:
    """Show a race once, or until it is decided or Ctrl-C; reads only, beside any workers.

    Raises UserError: the folder holds no race, or a damaged one.
    """

    def runs() -> list[Path]:
        planned = plan.opened(folder)
        paths = [run.path for contender in planned.contenders for run in contender.runs]
        return [path for path in paths if selection.is_run(path)]

    about = partial(_about, folder)
    about([])
    if watching:
        watch.watch(runs, every or watch.EVERY_S, about)
    else:
        watch.show(runs, about)


def _about(folder: Path, runs: Sequence[Progress]) -> Header:
    planned = plan.opened(folder)
    (seen, _), goal = looks.look(planned.contenders, planned.goal), planned.goal
    record = {"settle": str(folder), "until": goal.cfg.until, "settled": False, "looks": 0}
    if not seen.states:
        first = f"{tables.question(goal)}; first look after {goal.looks[0]} trials"
        return Header(Text(f"{folder}: {first}"), record, False)
    board, (left, words) = tables.leaderboard(seen), _left(seen, runs)
    lines = [f"{folder}: {tables.line(seen)}", *filter(None, [words])]
    record = {"settle": str(folder), **tables.record(seen), "left": left}
    drawn = Group(display.to_rich(board, results.width), *map(Text, lines), Text())
    return Header(drawn, display.plain(record), ended(seen.states[-1], goal))


def _left(seen: Course, running: Sequence[Progress]) -> tuple[dict[str, Any], str]:
    """Return what is left by the forecast, at the speed of the workers, also in words."""
    left, speed = forecast(seen), sum(s.tokens_per_s for s in running)
    if left is None or ended(seen.states[-1], seen.goal):
        return {}, ""
    last, most = int(left.trials.max()), seen.goal.trials
    seconds = left.tokens / speed if speed and left.tokens else None
    parts = [
        f"settled after about {last} of {most} trials" if last < most else f"up to {most} trials",
        f"{si(left.tokens)} more tokens" if left.tokens else "",
        f"{duration(seconds)} at the current speed" if seconds else "",
    ]
    trials = dict(zip(seen.goal.names, left.trials.tolist(), strict=True))
    words = f"forecast, if evidence keeps growing like this: {', '.join(filter(None, parts))}"
    return {"trials": trials, "tokens": left.tokens, "seconds": seconds}, words
