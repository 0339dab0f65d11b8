"""What may still be begun within a budget, by any number of workers and without a coordinator.

A budget stops new attempts when spent + in flight × mean reaches it. What is begun is finished, so
overshoot is at most what is in flight then. While fewer have finished than are in flight, these the
short ones, an attempt counts with the most that it may take: that keeps overshoot small. A limit in
time stops them when the longest so far would end after it. Workers read one another's sessions
every second; between, each begins at most an equal share of what is left, then says so at once.
"""

import math
import time

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.session import Session
from bayes_at_n.pipeline.workers.spent import Spent


class Allowance:
    """What one worker may still begin; without a session, what one that came now might."""

    def __init__(self, run: Run, session: Session | None = None) -> None:
        self.run, self.session, self.budget = run, session, run.cfg.budget
        self.in_flight: dict[int, float] = {}  # attempts in flight, and since when
        self._looked, self._announced, self._share = -math.inf, False, 0
        self._alive: set[str] | None = None  # the other workers
        self._others = list[spent.Record]()  # what those say
        engine = run.cfg.engine
        sizes = [n for n in (engine.replicas, engine.tensor_parallel_size) if n != AUTO]
        self._record = session.record if session else {"gpus": math.prod(sizes)}
        if self.budget.given:
            prompt = max(len(row["prompt_token_ids"] or ()) for row in run.questions)
            tokens = max(row["max_tokens"] for row in run.questions)
            self._most = Spent(prompt, tokens, attempts=1)  # that one may take

    def may_begin(self, most: int) -> int:
        """Return how many attempts may be begun now, at most so many."""
        if not self.budget.given:
            return most
        room, n = self._room(), self._everywhere()
        if room == 0 and n and not self._announced and self._spent().attempts > n:
            self._announced, (prompt, tokens, *_) = True, self._most
            more = Spent(n * prompt, n * tokens, self._longest * self._devices)
            then = self._words(spent.added([self._spent(), more]))
            note(f"budget reached: {self._standing()}; {n} in flight may make it {then}")
        return min(most, room, self._share if self._others else most)

    def began(self, position: int) -> None:
        """Count an attempt as in flight."""
        self.in_flight[position] = time.monotonic()
        self._record["in_flight"] = len(self.in_flight)
        self._share -= 1
        if self._share == 0 and self._others and self.session:
            self.session.save()

    def ended(self, position: int, completion: Completion) -> None:
        """Count an attempt as in flight no more. Raises UserError: nobody says its tokens."""
        self.in_flight.pop(position, None)
        self._record["in_flight"] = len(self.in_flight)
        if completion.tokens is None and (keys := list(spent.costs(self.run.cfg))):
            raise UserError(f"budget.{keys[0]}: the server says no tokens; use budget.until")

    def over(self) -> bool:
        """Return whether nothing may be begun, and nothing in flight anywhere may change that."""
        if not self.budget.given or self.in_flight:
            return False
        return self._room() == 0 and (self._late() or not self._everywhere())

    def message(self) -> str:
        """Say what a run keeps and owes whose budget is spent; empty until nothing is in flight."""
        if not self.over() or self._everywhere():
            return ""
        return f"the budget is spent: {self._standing()}; the same command with more goes on"

    def _standing(self) -> str:
        total, pending = len(self.run.keys), len(runfolder.pending(self.run))
        words = self._words(self._spent())
        return f"kept {total - pending} attempts of {total}, {pending} are pending, spent {words}"

    def _words(self, so_far: Spent) -> str:
        return spent.in_words(spent.account(self.run.cfg, so_far)).removeprefix("budget: ")

    def _look(self) -> None:
        """Say what this worker does and read what others say, unless that was done just now."""
        if time.monotonic() - self._looked < 1.0:
            return
        if self.session:
            self.session.save()
        self._looked, said = time.monotonic(), sessions.sessions(self.run.path)
        me = {self._record.get("worker", "")}
        if (alive := sessions.alive(self.run.path) - me) != self._alive:
            self._alive, self._stored = alive, spent.made(self.run)  # the killed left more, perhaps
        theirs = spent.by_worker(self.run, self._stored)
        self._theirs = spent.added(theirs[name] for name in theirs.keys() - me)
        self._others = [said[name] for name in alive & said.keys()]
        self._devices = sum(map(spent.devices, [self._record, *self._others]))
        self._longest = max((one.get("longest_s", 0.0) for one in said.values()), default=0.0)
        self._share = -(-self._room() // (1 + len(alive)))  # also those that load may begin soon

    def _everywhere(self) -> int:
        return len(self.in_flight) + sum(int(o.get("in_flight", 0)) for o in self._others)

    def _spent(self) -> Spent:
        lived = self.session.lived() if self.session else 0.0
        return spent.added([self._theirs, spent.reported(self._record | {"lived_s": lived})])

    def _late(self) -> bool:
        """Return whether an attempt as long as the longest so far would end after a limit."""
        now, moment, hours = time.monotonic(), self.budget.moment, self.budget.gpu_hours
        longest = max(self._longest, now - next(iter(self.in_flight.values()), now))
        taken = self._spent().device_s + longest * self._devices
        late = moment is not None and time.time() + longest >= moment
        return late or (hours is not None and taken >= 3600 * hours)

    def _room(self) -> int:
        """Return how many attempts all workers together may begin."""
        self._look()
        taken, room = self._spent(), 0.0 if self._late() else 1e9
        each = taken if taken.attempts > self._everywhere() else self._most
        for key, cost in spent.costs(self.run.cfg).items():
            mean = max(cost(*each[:2]) / each.attempts, 1e-9)
            left = getattr(self.budget, key) - cost(*taken[:2])
            room = min(room, left / mean - self._everywhere())
        return math.ceil(max(0.0, room))
