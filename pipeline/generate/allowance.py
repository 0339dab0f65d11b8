"""How many attempts a race and a budget still allow, for any number of workers.

The file of a race holds for each run how many trials it needs, and how many an idle worker may
begin; 0: the model has left. Of a bank it also lists the questions, of judgements their trials.

A budget stops new attempts when spent + in flight × mean reaches it. Attempts in flight finish, so
overshoot is at most theirs. Short attempts finish first: while fewer have finished than are in
flight, each counts as the longest possible, which keeps overshoot small. A time limit stops new
attempts when one as long as the longest so far would end after it. Workers read one another's
sessions every second; in between each begins at most an equal share of what is left.
"""

import math
import time
from pathlib import Path

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.session import Session
from bayes_at_n.pipeline.workers.spent import Spent


def trials(run: Run, idle: bool = False, before: int = 0) -> int:
    """Return how many trials of each question may begin now; `before` if the file is missing."""
    if run.cfg.race is None:
        return run.cfg.sampling.trials
    if (limits := runfolder.read_json(Path(run.cfg.race)).get(str(run.path))) is None:
        return before  # a file server may not show a file while it is being replaced
    return min(run.cfg.sampling.trials, int(limits[idle]))


def allowed(run: Run, keys: list[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """Keep the keys of the first trials, at most so many, and of the questions that are listed."""
    limits = runfolder.read_json(Path(run.cfg.race)).get(str(run.path)) if run.cfg.race else None
    if not limits or len(limits) < 3:
        return [key for key in keys if key[1] < most]
    each = limits[2] if isinstance(limits[2], dict) else dict.fromkeys(limits[2], most)
    return [key for key in keys if key[1] < min(most, each.get(key[0], 0))]


def pending(run: Run) -> list[tuple[str, int]]:
    """Return the keys that may be sampled now and have no finished attempt."""
    return allowed(run, runfolder.pending(run), trials(run))


class Allowance:
    """How many attempts one worker may still begin; without a session, a worker that starts now."""

    def __init__(self, run: Run, session: Session | None = None) -> None:
        self.run, self.session, self.budget = run, session, run.cfg.budget
        self.in_flight: dict[int, float] = {}  # by position of an attempt, when it began
        self._refreshed_at, self._announced, self._share = -math.inf, False, 0
        self._alive = set[str]()  # the other workers
        engine = run.cfg.engine
        sizes = [n for n in (engine.replicas, engine.tensor_parallel_size) if n != AUTO]
        self._record = session.record if session else {"gpus": math.prod(sizes)}
        if self.budget.given:
            prompt = max(len(row["prompt_token_ids"] or ()) for row in run.questions)
            tokens = max(row["max_tokens"] for row in run.questions)
            self._imported = spent.without_session(run, runfolder.sessions(run.path))
            self._most = Spent(prompt, tokens, attempts=1)  # the most that one attempt may take

    def may_begin(self, most: int) -> int:
        """Return how many attempts may begin now, at most `most`."""
        if not self.budget.given:
            return most
        allowed, n = self._allowed(), self._all_in_flight()
        if allowed == 0 and n and not self._announced and self._spent().attempts > n:
            self._announced = True
            note(f"budget reached: {self._summary()}; {n} in flight will finish")
        return min(most, allowed, self._share if self._alive else most)

    def began(self, position: int) -> None:
        """Count an attempt as in flight."""
        self.in_flight[position] = time.monotonic()
        self._record["in_flight"] = len(self.in_flight)
        self._share -= 1
        if self._share == 0 and self._alive and self.session:
            self.session.save()  # for the others

    def ended(self, position: int, completion: Completion) -> None:
        """Count an attempt as no longer in flight. Raises UserError: its tokens are not known."""
        self.in_flight.pop(position, None)
        self._record["in_flight"] = len(self.in_flight)
        if completion.tokens is None and (keys := list(spent.costs(self.run.cfg))):
            raise UserError(
                f"budget.{keys[0]}: the server does not report tokens; use budget.until"
            )

    def over(self) -> bool:
        """Return whether nothing may begin, and nothing in flight anywhere may change that."""
        if not self.budget.given or self.in_flight:
            return False
        return self._allowed() == 0 and (self._late() or not self._all_in_flight())

    def message(self) -> str:
        """Summarize a run whose budget is spent; empty while anything is in flight."""
        if not self.over() or self._all_in_flight():
            return ""
        return f"the budget is spent: {self._summary()}; a larger budget continues"

    def _summary(self) -> str:
        kept = len(self.run.keys) - len(runfolder.pending(self.run))
        left = len(pending(self.run))
        words = spent.in_words(spent.account(self.run.cfg, self._spent())).removeprefix("budget: ")
        return f"kept {kept} attempts of {kept + left}, {left} are pending, spent {words}"

    def _refresh(self) -> None:
        """Save this worker's session and read the others', at most once a second."""
        if time.monotonic() - self._refreshed_at < 1.0:
            return
        if self.session:
            self.session.save()
        self._refreshed_at, records = time.monotonic(), runfolder.sessions(self.run.path)
        me = self._record.get("worker", "")
        self._alive = runfolder.alive(self.run.path) - {me}
        self._longest = max((one.get("longest_s", 0.0) for one in records.values()), default=0.0)
        records.pop(me, None)
        self._spent_by_others = spent.added(
            [self._imported, *map(spent.reported, records.values())]
        )
        others = [records[name] for name in self._alive & records.keys()]
        self._in_flight_of_others = sum(int(one.get("in_flight", 0)) for one in others)
        self._devices = sum(map(spent.devices, [self._record, *others]))
        # Workers that are still loading get a share, too: they may begin soon.
        self._share = -(-self._allowed() // (1 + len(self._alive)))

    def _all_in_flight(self) -> int:
        return len(self.in_flight) + self._in_flight_of_others

    def _spent(self) -> Spent:
        lived = self.session.lived() if self.session else 0.0
        own = spent.reported(self._record | {"lived_s": lived})
        return spent.added([self._spent_by_others, own])

    def _late(self) -> bool:
        """Return whether an attempt as long as the longest so far would end after a time limit."""
        now, moment, hours = time.monotonic(), self.budget.moment, self.budget.gpu_hours
        longest = max(self._longest, now - next(iter(self.in_flight.values()), now))
        spent_s = self._spent().device_s + longest * self._devices
        late = moment is not None and time.time() + longest >= moment
        return late or (hours is not None and spent_s >= 3600 * hours)

    def _allowed(self) -> int:
        """Return how many attempts all workers together may begin."""
        self._refresh()
        used, allowed = self._spent(), 0.0 if self._late() else 1e9
        typical = used if used.attempts > self._all_in_flight() else self._most
        for key, cost in spent.costs(self.run.cfg).items():
            mean = max(cost(*typical[:2]) / typical.attempts, 1e-9)
            left = getattr(self.budget, key) - cost(*used[:2])
            allowed = min(allowed, left / mean - self._all_in_flight())
        return math.ceil(max(0.0, allowed))
