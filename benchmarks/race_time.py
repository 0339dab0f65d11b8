"""How long a race takes beside one go for the same attempts, simulated with the real schedule.

    python -m benchmarks.race_time              four races of each setting: two minutes on one core

`settle` samples up to the next look, looks when that is complete, and lets workers sample ahead
meanwhile; which model, and how far, `pipeline/adaptive/live.py` decides here, too.
One go samples the same numbers of trials of each model, known beforehand, on the same devices by
the same rules, without a look.

Why the targets are out of reach where a round of the open models does not fill the seats: there a
stretch of sampling takes as long as its longest attempt, l, however few attempts it has.
- On many devices one go takes little more than l. A race that takes 1.12 l must have begun its last
  round before 0.12 l, when no round was complete: without a look. To be that fast whenever it ends
  it must begin all 80 rounds of all models blindly, and spend all the tokens that it could save.
- On one device a model that goes on after a look has a second turn: another tail, of about l less a
  mean length, and another load. 28 rounds of 30 questions in 256 seats take 36,000 steps and a tail
  of 22,000; the second turn adds 22,000 and a minute, so more than a third.
Looking 0, 1, 2, 4 or 8 rounds ahead instead (two races each) takes 1.55, 1.57, 1.52, 1.34, 1.28 for
8 models on 8 devices of 64 seats with 30 questions (now 1.33), and 1.36, 1.44, 1.51, 1.47, 1.59 for
the best of 20 on one (now 1.37). Free seats that other datasets fill are rounds of more questions:
with 120 instead of 30 the first takes 1.19.

Lengths are lognormal, 11,000 tokens in the mean and cut at 32,768, half of their variance between
questions. A step takes what `run --dry-run` reckons for a model of 7.6 billion parameters on an
H100, which was fitted to a measurement: w + c x running. Loading takes a minute.
"""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.adaptive import live
from bayes_at_n.pipeline.adaptive.looks import course
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.adaptive.race import Course, Outcomes
from bayes_at_n.pipeline.config.multirun import SettleConfig
from bayes_at_n.pipeline.prepare import estimate
from benchmarks import common
from benchmarks.settle import ACCURACIES, truth

TRIALS, MEAN, CAP, LOAD_S, SEED = 80, 11_000, 32_768, 60.0, 20261128
MOST = {8: 1.12, 1: 1.1}  # the targets by devices, of races of 16 rounds and more
# Models, devices, sequences at once on each, questions, until.
SETTINGS = [
    (20, 8, 256, 120, "best"),
    (20, 8, 256, 120, "order"),
    (8, 8, 64, 120, "order"),
    (8, 8, 64, 30, "order"),
    (8, 8, 256, 30, "order"),
    (20, 1, 256, 120, "best"),
    (8, 1, 64, 30, "order"),
    (20, 1, 256, 30, "best"),
    (20, 1, 256, 30, "order"),
]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Device:
    """An engine: sequences that run, all a token further each step."""

    def __init__(self) -> None:
        self.now, self.steps, self.ready = 0.0, 0.0, 0.0
        self.model: int | None = None
        self.running: list[tuple[float, int, int]] = []  # step of the end, model, trial

    def advance(self, now: float, step: tuple[float, float]) -> None:
        if self.running:
            self.steps += (now - self.now) / (step[0] + step[1] * len(self.running))
        self.now = now

    def next(self, step: tuple[float, float]) -> float:
        """When something happens next: an attempt ends, or the model is loaded."""
        if not self.running:
            return self.ready if self.ready > self.now else np.inf
        left = self.running[0][0] - self.steps
        return self.now + left * (step[0] + step[1] * len(self.running))


class Race:
    """K models on devices, until all looks are seen or all that is wanted is sampled.

    Args:
        lengths: (K, M, N) tokens.
        looks: the race; of one go the numbers of trials (K,).
    """

    def __init__(self, lengths: Floats, looks: "Course | Ints", devices: int, seats: int) -> None:
        self.lengths, self.looks, self.seats = lengths, looks, seats
        models, self.questions, trials = lengths.shape
        self.devices = [Device() for _ in range(devices)]
        self.begun, self.in_flight = np.zeros((2, models), int)
        self.left = np.full((models, trials), self.questions)
        self.whole = np.zeros(models, int)  # rounds that are complete
        self.seen, self.tokens = 0, 0.0
        self.step = step_s()

    def run(self) -> tuple[float, float]:
        """Return the seconds until it is over, and the attempts begun."""
        self._want()
        self._assign(0.0, self.devices)
        while True:
            times = [device.next(self.step) for device in self.devices]
            at = int(np.argmin(times))
            device, now = self.devices[at], times[at]
            assert np.isfinite(now)
            device.advance(now, self.step)
            if device.running and device.running[0][0] <= device.steps + 1e-6:
                _, model, trial = heapq.heappop(device.running)
                self.in_flight[model] -= 1
                self.left[model, trial] -= 1
                while (
                    self.whole[model] < len(self.left[0])
                    and not self.left[model, self.whole[model]]
                ):
                    self.whole[model] += 1
            looked = False
            while (self.whole >= self.first)[self.first > 0].all():
                self.seen, looked = self.seen + 1, True
                if not isinstance(self.looks, Course) or self.seen == len(self.looks.states):
                    return now, float(self.begun.sum())
                self._want()
                for one in self.devices:
                    if one.model is not None and not self.first[one.model]:
                        one.advance(now, self.step)
                        self.in_flight[one.model] -= len(one.running)
                        one.running, one.model = [], None
            self._assign(now, self.devices if looked else [device])

    def _want(self) -> None:
        """Trials for the next look, and those that may be begun, by model."""
        if isinstance(self.looks, Course):
            upto = self.looks.upto(self.seen)
            trials, chosen = live.upcoming(upto.states, upto.goal)
            self.first = np.where(chosen, trials, 0)
            self.wanted, self.idle = live.wanted_trials(upto), live.IDLE
        else:
            self.first, self.wanted, self.idle = self.looks, self.looks, 0

    def _assign(self, now: float, free: Sequence[Device]) -> None:
        for device in free:
            self._fill(device, now)
            if device.running or now < device.ready:
                continue
            at_work = np.array(
                [sum(one.model == k for one in self.devices) for k in range(len(self.first))]
            )
            if device.model is not None:
                at_work[device.model] -= 1
            pending = np.maximum(self.first * self.questions - self.begun, 0)
            later = np.maximum(self.wanted * self.questions - self.begun, 0)
            few = 16 * (at_work > 0)  # as `claims.any_free`
            model = live.choose(device.model, at_work, pending > few, later > few)
            waits = ((pending > 0) & (at_work == 0)).any()
            if model is not None and model != device.model:
                device.model, device.ready, device.now = model, now + LOAD_S, now
            elif device.model is not None and self.first[device.model] and model is None:
                idle = 0 if waits else self.idle
                self._fill(device, now, min(TRIALS, int(self.wanted[device.model]) + idle))
            self._fill(device, now)

    def _fill(self, device: Device, now: float, upto: int = 0) -> None:
        """Begin what a worker would: beside others a fair share of what is left."""
        k = device.model
        if k is None or now < device.ready:
            return
        left = (upto or self.wanted[k]) * self.questions - self.begun[k]
        mates = sum(one.model == k for one in self.devices)
        room = min(self.seats, -(-(left + self.in_flight[k]) // mates)) - len(device.running)
        device.advance(now, self.step)
        for _ in range(min(room, left)):
            trial, question = divmod(int(self.begun[k]), self.questions)
            end = device.steps + self.lengths[k, question, trial]
            heapq.heappush(device.running, (end, k, trial))
            self.begun[k] += 1
            self.in_flight[k] += 1


def step_s() -> tuple[float, float]:
    """Seconds of a step, and what each running sequence adds: 7.6 B, 57 kB of cache a token."""
    hardware = estimate.gpu_hardware("H100", 1, "here")
    alone = estimate.step_s(hardware, 15.2e9, 15.2e9, 0, 0)
    caches = 57_344 * 8_000  # at a length that is met half way, long ones more often
    return alone, estimate.step_s(hardware, 15.2e9, 15.2e9, 100 * caches, 100) / 100 - alone / 100


def drawn(seed: int, models: int, questions: int) -> Floats:
    """Lengths (K, M, N), the same questions long for all models."""
    rng, spread = np.random.default_rng([SEED, seed]), 0.78 / 2**0.5
    long = rng.normal(0, spread, (1, questions, 1)) + rng.normal(0, 0.2, (models, 1, 1))
    free = rng.normal(0, spread, (models, questions, TRIALS))
    lengths: Floats = np.minimum(np.exp(np.log(MEAN) - spread**2 + long + free), CAP)
    return lengths


def raced(seed: int, models: int, questions: int, until: str) -> Course:
    """A race among some of twenty models, those looks that it needs."""
    some = np.linspace(0, len(ACCURACIES) - 1, models).round().astype(int)
    p = truth([ACCURACIES[k] for k in some], "contest", seed, questions)
    codes = (np.random.default_rng([SEED, seed]).random((*p.shape, TRIALS)) < p[..., None]) * 1
    goal = Goal(SettleConfig(until=until), [f"m{k}" for k in range(models)], TRIALS)
    tokens = np.ones((models, TRIALS), int)
    return course(Outcomes(goal.names, codes, tokens, "independent", []), goal)


def main() -> None:
    """Simulate and report."""
    parser = common.parser(__doc__, races=4)
    args = parser.parse_args()
    rows: list[list[Any]] = []
    for models, devices, seats, questions, until in SETTINGS:
        found = []
        for seed in range(args.races):
            looks, lengths = raced(seed, models, questions, until), drawn(seed, models, questions)
            spent = looks.states[-1].spent
            if spent.max() < 16:
                continue
            time, begun = Race(lengths, looks, devices, seats).run()
            once, least = Race(lengths, spent, devices, seats).run()
            found.append((spent.max(), time / once, begun / least))
        if found:
            longest, ratio, more = np.mean(found, axis=0)
            verdict = f"{MOST[devices]}: {'met' if ratio <= MOST[devices] else 'NOT met'}"
            cells = [f"{longest:.0f}", f"{ratio:.2f}", f"{more:.2f}", verdict]
            rows.append([models, devices, seats, questions, until, *cells])
    common.table(
        "Time of a race / time of one go for the same attempts, races of 16 rounds and more",
        ["models", "GPUs", "seats", "questions", "until", "rounds", "race", "begun", ""],
        rows,
    )
    common.finish(args, {"settings": rows, "races": args.races})


if __name__ == "__main__":
    common.main(main)
