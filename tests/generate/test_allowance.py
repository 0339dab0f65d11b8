"""Budgets: what stops new attempts, what is kept and pending, and that a larger one goes on.

The rule is simulated with a clock, an engine and workers of the test's own; then real workers have
a function as their engine, and one test the real vLLM.
"""

import heapq
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forked import IN_FLIGHT, Attempts, Command, Forker, stored
from forked import SETTINGS as FORKED
from helpers import Capsys, add_attempts, make_run

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.api.verbs import evaluate
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.engines.callable import CallableEngine, registered
from bayes_at_n.pipeline.generate import allowance, job, stage
from bayes_at_n.pipeline.generate.allowance import Allowance
from bayes_at_n.pipeline.store import provenance, runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import session as record
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.session import Session
from bayes_at_n.pipeline.workers.spent import Spent

TRIALS = 5
SETTINGS = [*FORKED, f"sampling.trials={TRIALS}"]
MARKS = {"a": "1100", "b": "10.."}  # six attempts of 3 + 5 tokens, two seconds each
# Dies with attempts under way, after so many have ended.
KILLED = """
import os, signal
from bayes_at_n.pipeline.generate.attempts import AttemptWriter
append = AttemptWriter.append
def appending(self, rows):
    append(self, rows)
    if self.written > {number}:
        os.kill(os.getpid(), signal.SIGKILL)
AttemptWriter.append = appending
"""


def tokens(folder: Path) -> int:
    return sum(len(row["token_ids"]) for row in stored(folder).values())


def test_a_budget_of_tokens_is_kept_through_a_kill_and_a_larger_one_goes_on(
    forker: Forker, prepared: Path, reference: tuple[Path, Attempts], tmp_path: Path, capsys: Capsys
) -> None:
    folder = shutil.copytree(prepared, tmp_path / "run")
    shutil.copy(reference[0] / "questions.parquet", folder)
    small = [*SETTINGS, "budget.tokens=1600"]
    killed = Command(folder, forker, *small, verb="generate", before=KILLED.format(number=40))
    assert killed.wait() < 0
    before = stored(folder)
    assert 40 < len(before) < 80
    said = Command(folder, forker, *small, "stages=[generate,grade,score]").finish()
    kept, pending = len(stored(folder)), 30 * TRIALS - len(stored(folder))
    run = Run(load_folder(folder, []))
    used, cap = spent.spent([run]).tokens, run.cfg.sampling.max_tokens
    assert 1600 <= used < 1600 + IN_FLIGHT * cap
    assert f"the budget is spent: kept {kept} attempts of 150, {pending} are pending" in said
    assert "Traceback" not in said
    assert json.loads((folder / "scores.json").read_text())["attempts"] == kept
    # Again: nothing is loaded.
    assert main.main(["generate", str(folder)]) == 0
    again = capsys.readouterr().err
    assert "the budget is spent" in again and "loading" not in again
    large = Command(folder, forker, *SETTINGS, "budget.tokens=1e6", "stages=[generate]").finish()
    assert "generate: 150/150" in large and "spent" not in large
    found = stored(folder)
    assert found.items() >= before.items() and found.items() >= reference[1].items()
    assert len(found) == 150 and {key[1] for key in found} == set(range(TRIALS))


# --- the rule, simulated


class Clock(SimpleNamespace):
    """For the modules that look at it."""

    now = float(int(time.time()))
    strftime, localtime = staticmethod(time.strftime), staticmethod(time.localtime)

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (allowance, record, engines):
        monkeypatch.setattr(module, "time", clock)
    return clock


def completed(seconds: float, number: int | None = 5, now: float = 0.0) -> Completion:
    request = Request("a", 0, [1, 2, 3], 8, None)
    end = "", "stop", None, None, now - seconds, None, now
    return Completion(request, *end, completion_tokens=number)


SHAPES = {"usual": (400.0, 0.7), "heavy": (120.0, 1.2)}  # median, sigma of the logarithm
CAP = 2048  # tokens, of which a second makes ten


class Simulated:
    """A run with a budget of tokens by so many workers with so many places each."""

    def __init__(self, patch: pytest.MonkeyPatch, clock: Clock, lengths: list[int]) -> None:
        self.clock, self.lengths, self.notes = clock, enumerate(lengths), list[str]()
        self.said, self.alive = dict[str, dict[str, Any]](), set[str]()
        self.in_flight = dict[int, int]()
        self.spent = self.first = self.last = 0  # tokens; begun at first; in flight at the last
        patch.setattr(
            Session, "save", lambda one, _="": self.said.update({one.worker: {**one.record}})
        )
        patch.setattr(runfolder, "sessions", lambda folder: dict(self.said))
        patch.setattr(runfolder, "alive", lambda folder: set(self.alive))
        patch.setattr(allowance, "note", self.notes.append)

    def run(self, run: Run, number: int, places: int) -> None:
        rng, numbers = np.random.default_rng(1), itertools.count()
        events: list[Any] = []  # when, a number that orders them, whose, the attempt that ends
        for worker in (Session(run.path, run.cfg, str(n)) for n in range(number)):
            self.alive.add(worker.worker)
            one = worker, Allowance(run, worker)
            heapq.heappush(events, (self.clock.now + rng.random(), next(numbers), one, None))
        while events:
            self.clock.now, _, (session, allowance), ended = heapq.heappop(events)
            if ended is not None:
                self.spent += (tokens := self.in_flight.pop(ended))
                allowance.ended(ended, completed(tokens / 10, tokens))
                session.add(tokens / 10, **job.counts(completed(tokens / 10, tokens)))
            while allowance.may_begin(places - len(allowance.in_flight)):
                position, tokens = next(self.lengths)
                allowance.began(position)
                self.in_flight[position] = tokens
                self.first, self.last = self.first + (not self.spent), sum(self.in_flight.values())
                at = self.clock.now + tokens / 10 * rng.uniform(0.9, 1.1)
                heapq.heappush(events, (at, next(numbers), (session, allowance), position))
            if ended is None and not allowance.over():
                again = self.clock.now + 0.5, next(numbers), (session, allowance), None
                heapq.heappush(events, again)
            elif ended is None:
                self.alive.discard(session.worker)
                session.save()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("attempts", "number", "places"), [(30, 1, 8), (512, 1, 256), (100, 8, 32), (512, 8, 32)]
)
def test_what_is_spent_more_was_in_flight_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, shape: str, attempts: int,
    number: int, places: int,
) -> None:  # fmt: skip
    run = make_run(tmp_path / "run", {"a": "." * 4000})
    run.questions[0]["max_tokens"] = CAP
    median, sigma = SHAPES[shape]
    drawn = median * np.exp(np.random.default_rng(attempts).normal(0.0, sigma, 4000))
    lengths = np.clip(drawn, 1, CAP).astype(int)
    run.cfg.budget.tokens = limit = float(attempts * lengths.mean())
    found = Simulated(monkeypatch, clock, lengths.tolist())
    found.run(run, number, places)
    assert limit <= found.spent < limit + found.last
    # At first each may take the cap, and a worker's share is rounded up.
    assert found.first <= min(limit // CAP + number, number * places)
    assert 1 <= len(found.notes) <= number and f" of {limit:,.0f} tokens" in found.notes[0]


# --- real workers whose engine is a function


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a run by an engine that counts a prompt as three tokens, a byte as one."""
    made = CallableEngine.generate

    def generate(self: CallableEngine, requests: Any) -> Iterator[Completion | None]:
        for one in made(self, requests):
            yield one and replace(one, prompt_tokens=3, completion_tokens=len(one.text))

    monkeypatch.setattr(CallableEngine, "generate", generate)
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"{n} + {n}?", "answer": 2 * n} for n in range(1, 5)]
    few = {"batch_size": 4, "in_flight": 4}
    settings = {"dataset": rows, "name": "f", "trials": 50, "max_tokens": 20, "engine": few}
    return settings | {"stages": ["prepare", "generate"], "run_dir": "run"}


class Answers:
    """A function that takes an hour, and texts of 10 to 19 bytes."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock, self.asked = clock, 0

    def __call__(self, prompts: list[str]) -> list[str]:
        if self.clock:
            self.clock.now += 3600.0
        self.asked += len(prompts)
        return [
            rf"\boxed{{{'1' * (2 + n % 10)}}}" for n in range(self.asked, self.asked + len(prompts))
        ]


@pytest.mark.parametrize(
    ("key", "limit", "cost", "prices"),
    [("tokens", 705, (0, 1), {}), ("money", 1500, (1, 2), {"price_in": 1e6, "price_out": 2e6})],
)
def test_tokens_and_money_stop_a_worker_and_more_goes_on(
    counting: dict[str, Any], capsys: Capsys, key: str, limit: float, cost: tuple[int, int],
    prices: dict[str, float],
) -> None:  # fmt: skip
    asked = counting | {"engine": counting["engine"] | prices, "model": Answers()}
    run = evaluate(**asked, **{f"budget.{key}": limit})
    rows = stored(run.path)
    used = sum(cost[0] * 3 + cost[1] * len(row["text"]) for row in rows.values())
    assert limit <= used < limit + 4 * (cost[0] * 3 + cost[1] * 19)
    said = " ".join(capsys.readouterr().err.split())
    assert f"kept {len(rows)} attempts of 200, {200 - len(rows)} are pending" in said
    evaluate(**asked, **{f"budget.{key}": 1e6})
    assert len(stored(run.path)) == 200 and stored(run.path).items() >= rows.items()
    assert "budget" not in capsys.readouterr().err


@pytest.mark.parametrize("key", ["until", "gpu_hours"])
def test_limits_in_time_begin_nothing_that_would_end_after_them(
    counting: dict[str, Any], clock: Clock, capsys: Capsys, key: str
) -> None:
    ask = Answers(clock)
    run = Run(load_folder(evaluate(**counting | {"model": ask, "stages": ["prepare"]}).path, []))
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(clock.now + 10 * 3600))  # no zone
    setattr(run.cfg.budget, key, 10.0 if key == "gpu_hours" else end)
    with registered(ask):
        assert stage.generate(run)
    assert len(stored(run.path)) == ask.asked == 36  # four an hour, the last in the ninth
    assert "the budget is spent: kept 36 attempts of 200" in capsys.readouterr().err


def test_spent_is_what_workers_report_and_what_others_left(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", MARKS, "budget.tokens=1000")
    assert spent.spent([run]) == Spent(18, 30, 0.0, 6)
    name = "0000000000000001-n-1"
    session = Session(run.path, run.cfg, name)
    session.record |= {"completion_tokens": 500, "prompt_tokens": 3, "gpus": 2, "attempts": 2}
    session.save()
    path = run.path / "sessions" / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lived_s": 5.0}))
    add_attempts(run, {"b": "..11"}, part=f"{name}-00000")
    assert spent.spent([run]) == Spent(18 + 3, 30 + 500, 10.0, 8)
    assert spent.account(run.cfg, spent.spent([run])) == {"tokens": {"limit": 1000, "spent": 530}}
    assert spent.left(run.cfg, spent.spent([run])) == {"tokens": 470}
    run.cfg.budget.tokens = 30
    assert "kept 8 attempts of 8, 0 are pending" in Allowance(run).message()


def test_what_nobody_counts_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "...."})
    run.cfg.budget.tokens = 400.0
    with pytest.raises(UserError, match=r"budget\.tokens: "):
        Allowance(run).ended(0, completed(1.0, None))
    run.cfg.budget = compose.load(["budget.until=2100-01-01"]).budget
    Allowance(run).ended(0, completed(1.0, None))


# --- settings, and what is shown


def test_a_folder_keeps_its_budget_which_is_no_part_of_its_identity(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", MARKS)
    run.cfg.budget = compose.load(["budget.until=2100-01-01T08:00+02:00", "tokens=5e6"]).budget
    runfolder.save_config(run)
    again = load_folder(run.path, [])
    assert again.budget == run.cfg.budget and again.budget.tokens == 5e6
    assert provenance.identity(again) == provenance.identity(load_folder(run.path, []))
    assert not [key for key in provenance.identity(again) if "budget" in key]
    # A moment that passed since stops no other verb; given anew it is refused.
    text = (run.path / "config.yaml").read_text().replace("2100-", "2020-")
    (run.path / "config.yaml").write_text(text)
    assert load_folder(run.path, ["sampling.trials=9"]).budget.past
    with pytest.raises(UserError, match=r"^budget\.until=2021-01-01: is in the past"):
        load_folder(run.path, ["budget.until=2021-01-01"])
