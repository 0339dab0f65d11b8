"""What may still be begun within a budget, by any number of workers and without a coordinator.

An attempt that is begun is finished, so the question comes before it begins: what is spent, what is
under way and what would be begun must, as expected, end within the budget, and within 1 % more of
it with a chance of 99.9 %. Near its end fewer attempts are under way at once: then that is known
better. A limit in time goes by the longest attempt instead of the mean one, for it waits for the
last of hundreds.

The mean of those that finished first would be too small, and the more so the more are under way.
Here those count for what they have already (`remaining`), and while nothing is known every attempt
is as long as it may be. Lengths are those that this worker saw: what is stored when it begins, and
its own; how much the others have spent, and expect of what they have under way, they say in their
sessions. Beside others a worker begins only what it has said before that it will, and says so while
it alone may, under a lease: nothing is counted on twice. A worker that was alone looks for others
now and then; who comes waits until all have said that they know of it.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.generate.record import Session
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.columns import FINISHED
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.spent import Spent

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MOST = 1.01  # of the budget, is passed
LOG = -np.log(1e-3)  # of the chance of that
LOOK_S, ALONE_S = 1.0, 5.0  # between two looks at other workers, and whether there are any
_AGAIN_S = 0.1  # between two grants while little is left
_CHUNK = 64  # attempts that are granted at once beside others, where so many may begin
_SPREAD = np.linspace(0.8, 1.25, 10)
_RECENT = 64  # attempts: their speed is that of those under way


def remaining(finished: Ints, so_far: Ints) -> tuple[Floats, Floats]:
    """Mean and variance of the length of an attempt that is longer than t tokens, for every t.

    The product-limit estimate (Kaplan and Meier 1958, Nonparametric Estimation from Incomplete
    Observations): an attempt under way is one that is longer than what it has. Where nothing is
    known of longer ones, they reach the limit.

    `finished`: how many attempts had so many tokens, from 0 to the limit: shape (limit + 1,).
    `so_far`: tokens of those under way, each below the limit.

    Returns two arrays of shape (limit,).

    >>> mean, _ = remaining(np.array([0, 0, 1, 0, 1]), np.array([], int))
    >>> mean.tolist()
    [3.0, 3.0, 4.0, 4.0]
    >>> remaining(np.array([0, 0, 1, 0, 1]), np.array([3, 3]))[0].tolist()
    [3.5, 3.5, 4.0, 4.0]
    """
    # What those under way have is an estimate itself: of each a part counts for a bit less or more.
    spread = np.minimum(np.rint(np.outer(_SPREAD, so_far)).astype(np.int64), len(finished) - 1)
    under_way = np.bincount(spread.ravel(), minlength=len(finished)) / len(_SPREAD)
    at_risk = _tail(finished + under_way)
    longer = np.cumprod(1 - finished / np.maximum(at_risk, 1))  # P(length > t)
    share, t = -np.diff(longer, prepend=1.0), np.arange(len(finished))
    share[-1] += longer[-1]
    above, first, second = (_tail(share * t**power)[1:] for power in range(3))
    mean = first / np.maximum(above, 1e-300)
    return mean, np.maximum(second / np.maximum(above, 1e-300) - mean**2, 0.0)


def _tail(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Sums from each place to the end."""
    return values[::-1].cumsum()[::-1]


class Allowance:
    """What one worker may still begin; without a session, what one that came now might.

    Without a budget that is anything, and nothing is read or counted.
    """

    def __init__(self, run: Run, session: Session | None = None) -> None:
        self.run, self.session, self.budget = run, session, run.cfg.budget
        self.me = session.worker if session else "nobody"
        self.own = Spent()
        self.flying: dict[int, float] = {}  # attempts under way, and since when
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT)  # tokens, seconds
        self._left = self._granted = 0  # attempts that may begin, of how many
        self._changed = True  # an attempt ended since `_left` was counted
        self._grant_at = 0.0  # when there may be another grant
        self._others: dict[str, Mapping[str, Any]] = {}  # what those say who are alive
        self._dead: set[str] | None = None  # who ended without a last word
        self._looked = self._longest = 0.0
        if self.budget.given:
            # Of chat turns nobody knows the tokens; four bytes make about one.
            prompts = [
                len(r["prompt_token_ids"] or r["prompt"].encode()[::4]) for r in run.questions
            ]
            self._prompt = sum(prompts) / len(prompts)
            self._look()

    def may_begin(self, most: int) -> int:
        """How many attempts may be begun now, at most so many."""
        if not self.budget.given:
            return most
        looked = self._look(LOOK_S if self._others else ALONE_S)
        if self._others and self.session:
            if looked or (self._left <= 0 and time.monotonic() >= self._grant_at):
                self._grant(self.session)
        elif looked or (self._changed and self._left <= 0):
            self._left, self._changed = self._count(most), False
        return max(0, min(most, self._left))

    def _grant(self, session: Session) -> None:
        """Count what may begin, and take a share of it before anybody else counts.

        Of a grant that it could not use a worker takes none for a while: others may be able to.
        """
        unused = 0 < self._granted == self._left
        self._left = self._granted = 0
        self._say("may_begin", 0)
        self._say("beside", sorted(self._others))
        self._grant_at = time.monotonic() + _AGAIN_S
        path = self.run.path / "budget.lease"
        with contextlib.suppress(lease.Taken), lease.held(path, "counting what is left"):
            self._look()
            self._say("beside", sorted(self._others))
            if unused:
                self._grant_at += 2 * LOOK_S
            elif self._known_to_all():
                everyone = 1 + len(self._others)
                found = self._count(everyone * _CHUNK)
                self._left = self._granted = min(_CHUNK, -(-found // everyone))
                self._say("may_begin", self._left)
            session.save()

    def _known_to_all(self) -> bool:
        """Whether all who sample have said that they know of this worker."""
        sampling = [one for one in self._others.values() if one["state"] != "loading"]
        return all(self.me in one.get("beside", ()) for one in sampling)

    def began(self, position: int) -> None:
        """An attempt is under way."""
        self.flying[position] = time.monotonic()
        self._left -= 1
        self._say("in_flight", len(self.flying))
        self._say("may_begin", self._left)

    def ended(self, position: int, completion: Completion) -> None:
        """An attempt has ended, whatever becomes of it.

        Raises UserError: the engine does not say its tokens, and the budget counts them.
        """
        self.flying.pop(position, None)
        self._say("in_flight", len(self.flying))
        if not self.budget.given:
            return
        if completion.tokens is None and spent.costs(self.run.cfg):
            raise UserError(
                f"budget.{next(iter(self.budget.given))}: the server does not say how many tokens"
                " an attempt took; set budget.until instead"
            )
        tokens, prompt = completion.tokens or 0, completion.request.prompt_token_ids
        asked = completion.prompt_tokens or 0 if prompt is None else len(prompt)
        self.own = spent.added([self.own, Spent(asked, tokens)])
        self._say("prompt_tokens", self.own.prompt_tokens)
        if completion.finish_reason in FINISHED:
            seconds = completion.finished - completion.started
            self._recent.append((tokens, seconds))
            self._longest = max(self._longest, seconds)
            self._lengths[min(tokens, len(self._lengths) - 1)] += 1
        self._changed = True

    def over(self) -> bool:
        """Whether nothing may be begun, and nobody is at anything whose end might change that."""
        if not self.budget.given or self.flying:
            return False
        self._look(LOOK_S)
        if self._late():
            return True
        if self._count(1) or self._at_work():
            return False
        self._read()  # the lengths of what others made
        return not self._count(1)

    def told(self) -> str:
        """What a run keeps and owes whose budget is spent; empty where it is not, or not yet."""
        if not self.over() or self._at_work():
            return ""
        total, owed = len(self.run.keys), len(runfolder.owed(self.run))
        account = spent.in_words(spent.account(self.run.cfg, self._spent()))
        return (
            f"the budget is spent: kept {total - owed} attempts of {total}, {owed} are owed; the"
            f" same command with a larger budget goes on ({account})"
        )

    def _say(self, key: str, value: Any) -> None:
        """What others read with the next word of this worker's session."""
        if self.session:
            self.session.record[key] = value

    def _look(self, pause: float = 0.0) -> bool:
        """See what other workers say, unless that was done just now; read what the dead left."""
        if time.monotonic() - self._looked < pause:
            return False
        self._looked, said = time.monotonic(), sessions.sessions(self.run.path)
        ended = {name for name, record in said.items() if record.get("ended")} | {self.me}
        alive = sessions.alive(self.run.path) - ended
        if (dead := {*said} - ended - alive) != self._dead:
            self._dead = dead
            self._read()
        taken = spent.by_worker(self.run, self._made)
        self._theirs = spent.added(one for name, one in taken.items() if name != self.me)
        self._others = {name: said.get(name, {"state": "loading"}) for name in alive}
        return True

    def _read(self) -> None:
        """Take lengths and times from what is stored."""
        self._made = spent.made(self.run)
        limit = max(row["max_tokens"] for row in self.run.questions)
        tokens = self._made["completion_tokens"].drop_null().to_numpy()
        if runfolder.continuing(self.run):  # what they lack may be as much as is allowed
            tokens = tokens[:0]
        self._lengths: Ints = np.bincount(np.minimum(tokens, limit), minlength=limit + 1)
        seconds = pc.subtract(self._made["finished"], self._made["started"]).drop_null().to_numpy()
        self._longest = max(self._longest, float(seconds.max(initial=0.0)))

    def _at_work(self) -> int:
        """Attempts that other workers have under way or will begin, as they say."""
        keys = ("in_flight", "may_begin")
        return sum(record.get(key, 0) for record in self._others.values() for key in keys)

    def _spent(self) -> Spent:
        """What is spent by now, but for what is under way."""
        if self.session is None:
            return self._theirs
        record = self.session.record
        seconds = (time.monotonic() - self.session.began) * spent.devices(record)
        return spent.added([self._theirs, self.own._replace(device_s=seconds)])

    def _late(self) -> bool:
        """Whether an attempt as long as the longest so far would end after a limit in time."""
        now, left = time.monotonic(), []
        if self.budget.moment is not None:
            left.append(self.budget.moment - time.time())
        if self.budget.gpu_hours is not None:
            engine = self.run.cfg.engine
            sizes = [n for n in (engine.replicas, engine.tensor_parallel_size) if n != AUTO]
            own = self.session.record if self.session else {"gpus": math.prod(sizes)}
            devices = sum(map(spent.devices, [own, *self._others.values()]))
            left.append((3600 * self.budget.gpu_hours - self._spent().device_s) / devices)
        longest = max([self._longest, *(now - began for began in self.flying.values())])
        return any(longest >= seconds for seconds in left)

    def _count(self, most: int) -> int:
        """How many attempts all workers together may begin, at most so many."""
        if self._late():
            return 0
        speed = sum(n for n, _ in self._recent) / max(sum(s for _, s in self._recent), 1e-9)
        ages = time.monotonic() - np.array([*self.flying.values()], np.float64)
        limit = len(self._lengths) - 1
        so_far = np.clip(ages * speed, 0, limit - 1).astype(np.int64)
        mean, variance = remaining(self._lengths, so_far)
        # Of the mean; a few attempts tell less of how much they differ than most do.
        error = max(variance[0], mean[0] ** 2) / max(1, self._lengths.sum())
        own = len(so_far)
        begun, tokens, spread = own, mean[so_far].sum(), variance[so_far].sum()
        if own:
            self._say("under_way", (float(tokens / own), float(spread / own + own * error)))
        for record in self._others.values():
            n, each = record.get("in_flight", 0), record.get("under_way", (mean[0], variance[0]))
            begun, tokens, spread = begun + n, tokens + n * each[0], spread + n * each[1]
            n = record.get("may_begin", 0)
            begun, tokens, spread = begun + n, tokens + n * mean[0], spread + n * variance[0]
        taken, more = self._spent(), np.arange(1, most + 1)
        prompts = taken.prompt_tokens + (begun + more) * self._prompt
        expected = taken.tokens + tokens + more * mean[0]
        # Bernstein's inequality for the sum; nor can it be more than all limits together.
        squared, part = spread + more * variance[0] + (own + more) ** 2 * error, LOG * limit / 3
        above = part + np.sqrt(part**2 + 2 * LOG * squared)
        at_most = np.minimum(expected + above, taken.tokens + (begun + more) * limit)
        for key, cost in spent.costs(self.run.cfg).items():
            budget = getattr(self.budget, key)
            fits = cost(prompts, expected) <= budget
            most = min(most, int((fits & (cost(prompts, at_most) <= MOST * budget)).sum()))
        return most
