"""Budgets: no more is begun than fits, what is kept and owed is said, and a larger one goes on.

Real engines for tokens, money and kills; limits in time on a clock of the test's own, and many
workers with long tails in `benchmarks/budget.py`, which has the project's own rule and no engine.
"""

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import SETTINGS as FORKED
from forked import Attempts, Command, Forker, stored
from helpers import Capsys, add_attempts, make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.generate import budget, record
from bayes_at_n.pipeline.generate.budget import Allowance, remaining
from bayes_at_n.pipeline.generate.record import Session
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat
from bayes_at_n.pipeline.workers.spent import Spent
from benchmarks.budget import simulate

TRIALS = 5
SETTINGS = [*FORKED, f"sampling.trials={TRIALS}"]
MARKS = {"a": "1100", "b": "10.."}  # six attempts of 3 + 5 tokens, two seconds each
# Dies with attempts under way, after so many have ended.
KILLED = """
import os, signal
from bayes_at_n.pipeline.generate.writer import AttemptWriter
flush = AttemptWriter.flush
def flushing(self):
    flush(self)
    if self.written > {number}:
        os.kill(os.getpid(), signal.SIGKILL)
AttemptWriter.flush = flushing
"""


def tokens(folder: Path) -> int:
    return sum(len(row["token_ids"]) for row in stored(folder).values())


def test_a_budget_of_tokens_is_kept_through_a_kill_and_a_larger_one_goes_on(
    forker: Forker,
    prepared: Path,
    reference: tuple[Path, Attempts],
    tmp_path: Path,
    capsys: Capsys,
) -> None:
    folder = shutil.copytree(prepared, tmp_path / "run")
    shutil.copy(reference[0] / "questions.parquet", folder)
    small = [*SETTINGS, "budget.tokens=1600"]
    killed = Command(folder, forker, *small, verb="generate", before=KILLED.format(number=40))
    assert killed.wait() < 0
    before = stored(folder)
    assert 40 < len(before) < 80
    said = Command(folder, forker, *small, "stages=[generate,grade,score]").finish()
    kept, owed = len(stored(folder)), 30 * TRIALS - len(stored(folder))
    assert 0.85 * 1600 < tokens(folder) <= 1.01 * 1600
    assert f"kept {kept} attempts of 150, {owed} are owed; the same command with" in said
    assert f"(budget: {tokens(folder):,} of 1,600 tokens)" in said and "Traceback" not in said
    assert json.loads((folder / "scores.json").read_text())["attempts"] == kept
    assert not (folder / "claims").exists() and not list((folder / "attempts").glob("*.journal"))
    assert json.loads((folder / "manifest.json").read_text())["generated"]["workers"] == 2
    # Again: nothing is loaded. A folder's own budget counts, and the jobs behind it go on.
    assert main.main(["generate", str(folder)]) == 0
    again = capsys.readouterr().err
    assert "the budget is spent" in again and "loading" not in again
    assert main.main(["grade", str(folder), "--complete"]) == 0
    large = Command(folder, forker, *SETTINGS, "budget.tokens=1e6", "stages=[generate]").finish()
    assert "generate: 150/150" in large and "spent" not in large
    found = stored(folder)
    assert found.items() >= before.items() and found.items() >= reference[1].items()
    assert len(found) == 150 and {key[1] for key in found} == set(range(TRIALS))


@pytest.mark.soak
def test_two_workers_share_one_budget(
    forker: Forker, prepared: Path, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    folder = shutil.copytree(prepared, tmp_path / "run")
    shutil.copy(reference[0] / "questions.parquet", folder)
    both = [*FORKED, "sampling.trials=40", "budget.tokens=15000"]
    two = [Command(folder, forker, *both, verb="generate") for _ in range(2)]
    said = [command.finish() for command in two]
    assert 0.97 * 15000 < tokens(folder) <= 1.01 * 15000
    assert any("the budget is spent" in text for text in said)


@pytest.mark.soak
def test_replicas_share_one_budget(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = [f"run_dir={folder}", "sampling.trials=30", "engine.batch_size=16", "verifier=none"]
    settings += ["engine.replicas=2", "budget.tokens=10000", "stages=[prepare,generate,grade]"]
    command = Command(folder, None, *settings)
    said = command.finish()
    assert 0.95 * 10000 < tokens(folder) <= 1.01 * 10000
    assert "the budget is spent" in said
    made = [record["attempts"] for record in sessions.sessions(folder).values()]
    assert len(made) == 2 and sum(made) == len(stored(folder))  # one may load too late for any


# --- lengths


def by_hand(
    finished: list[int], so_far: list[float], limit: int
) -> tuple[list[float], list[float]]:
    """The product-limit estimate, term by term; `so_far` with weights of a tenth each."""
    chance, left = [], 1.0
    for t in range(limit + 1):
        at_risk = sum(n >= t for n in finished) + sum(n >= t for n in so_far) / 10
        dies = left * finished.count(t) / at_risk if at_risk else 0.0
        chance.append(dies)
        left -= dies
    chance[limit] += left
    means, variances = [], []
    for t in range(limit):
        beyond = [(n, p) for n, p in enumerate(chance) if n > t]
        if not (total := sum(p for _, p in beyond)):
            break
        mean = sum(n * p for n, p in beyond) / total
        means.append(mean)
        variances.append(sum((n - mean) ** 2 * p for n, p in beyond) / total)
    return means, variances


def test_lengths_are_those_of_the_product_limit_estimate() -> None:
    rng = np.random.default_rng(3)
    for flying in (0, 5, 40):
        finished, so_far = rng.integers(1, 30, 25), rng.integers(0, 29, flying)
        spread = [
            min(float(np.rint(f * n)), 30) for n in so_far for f in np.linspace(0.8, 1.25, 10)
        ]
        found = remaining(np.bincount(finished, minlength=31), so_far)
        wanted = by_hand(finished.tolist(), spread, 30)
        assert len(wanted[0]) >= max(finished)
        for computed, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(computed[: len(expected)], expected, rtol=1e-9, atol=1e-9)
        if not flying:
            assert found[0][0] == pytest.approx(finished.mean())
            assert found[1][0] == pytest.approx(finished.var())
    nothing, long = np.zeros(31, int), np.array([4] * 9)
    assert remaining(nothing, long)[0].tolist() == [30.0] * 30


@pytest.mark.parametrize(
    ("shape", "case"),
    [
        ("heavy", (128, 2, 32)),
        *(
            pytest.param("heavy", case, marks=pytest.mark.soak)
            for case in [(512, 1, 256), (2400, 8, 256)]
        ),
        pytest.param("usual", (2400, 16, 16), marks=pytest.mark.soak),
    ],
)
def test_long_tails_and_many_workers_stay_within_one_percent(
    shape: str, case: tuple[int, int, int]
) -> None:
    over, _ = simulate(shape, *case, seed=0)
    assert -0.1 < over <= 0.01


# --- limits in time


class Clock(SimpleNamespace):
    """For the modules that look at it."""

    now = 1_700_000_000.0
    strftime = staticmethod(time.strftime)

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (budget, record):
        monkeypatch.setattr(module, "time", clock)
    return clock


def completed(seconds: float, number: int | None = 5, now: float = 0.0) -> Completion:
    request = Request("a", 0, [1, 2, 3], 8, None)
    end = "", "stop", None, None, now - seconds, None, now
    return Completion(request, *end, completion_tokens=number)


def working(run: Run, clock: Clock, name: str = "me", gpus: int = 0) -> Allowance:
    session = Session(run, name)
    session.record["gpus"] = gpus
    return Allowance(run, session)


@pytest.mark.parametrize(("limit", "gpus"), [("until", 0), ("gpu_hours", 0), ("gpu_hours", 4)])
def test_a_limit_in_time_goes_by_the_longest_attempt(
    tmp_path: Path, clock: Clock, limit: str, gpus: int
) -> None:
    run = make_run(tmp_path / "run", {"a": "." * 40}, "sampling.max_tokens=8")
    run.cfg.budget.gpu_hours = 100 * max(1, gpus) / 3600 if limit == "gpu_hours" else None
    if limit == "until":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(clock.now + 100))
        run.cfg.budget.until = stamp  # no zone: this machine's
    one = working(run, clock, gpus=gpus)
    assert one.may_begin(7) == 7  # nothing is known: all there is room for
    one.began(0)
    one.began(1)
    clock.now += 20
    one.ended(0, completed(20.0, now=clock.now))
    clock.now += 10  # one has taken 30 s by now
    assert one.may_begin(7) > 0 and not one.over()
    clock.now += 45  # 75 s, and 25 are left
    assert one.may_begin(7) == 0 and not one.over()  # what runs is finished
    one.ended(1, completed(75.0, now=clock.now))
    assert one.over()
    clock.now += 26
    one.session.end("done")  # type: ignore[union-attr]
    assert Allowance(run).told().startswith("the budget is spent: kept 0 attempts of 40, 40 are")


def test_gpus_of_others_count(tmp_path: Path, clock: Clock) -> None:
    run = make_run(tmp_path / "run", {"a": "." * 40})
    run.cfg.budget.gpu_hours = 100 / 3600
    other = Session(run, "another")
    other.record |= {"started": time.time(), "gpus": 4, "state": "sampling"}
    other.save()
    one = working(run, clock)
    one.began(0)
    clock.now += 10
    one.ended(0, completed(10.0, now=clock.now))
    clock.now += 10
    assert one.may_begin(1) == 1 and not one.over()
    with Heartbeat(run.path, "another"):
        clock.now += 60  # 20 device-seconds are left, for five devices
        assert one.may_begin(1) == 0
    clock.now += 6
    assert one.may_begin(1) == 1  # alone again


def test_steps_of_a_clock_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", {"a": "."})
    run.cfg.budget.gpu_hours = 4.0
    session, true = Session(run, "w"), time.time
    session.record["gpus"] = 2
    one = Allowance(run, session)
    session.loaded(1, {})
    one.began(0)
    monkeypatch.setattr(time, "time", lambda: true() + 86_400)
    said = session.now()
    assert said["wall_s"] < 3600 and said["gpu_s"] < 3600
    assert one._spent().device_s < 3600
    session.end("done")
    assert spent.spent([run]).device_s < 3600


# --- what is spent


def test_money_pays_prompts_too(tmp_path: Path, clock: Clock) -> None:
    run = make_run(tmp_path / "run", {"a": "." * 40}, "engine.price_in=1e6", "engine.price_out=2e6")
    run.cfg.budget.money = 300.0
    one = working(run, clock)
    assert one.may_begin(40) == 15  # of 3 + 2 * 8
    for position in range(15):
        one.began(position)
    clock.now += 1.0
    for position in range(15):
        one.ended(position, completed(1.0, 8))  # as long as may be: nothing is left to guess
    assert one.may_begin(40) == 0 and one.over()  # 15 are left
    run.cfg.budget.money = 304.0
    assert not one.over()
    assert spent.account(run.cfg, one._spent())["money"] == {"limit": 304.0, "spent": 285.0}


def test_spent_is_what_was_said_or_left_whichever_is_more(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", MARKS, "budget.tokens=1000")
    assert spent.spent([run]) == Spent(18, 30, 0.0)
    names = ["0000000000000001-n-1", "0000000000000002-n-2"]
    for name, made in zip(names, (7, 500), strict=True):
        session = Session(run, name)
        session.record |= {"completion_tokens": made, "prompt_tokens": 3, "gpus": 2}
        session.end("done")
        path = run.path / "sessions" / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"lived_s": 5.0}))
    add_attempts(run, {"b": "..11"}, part=f"{names[0]}-00000")
    # 30 of who knows, 10 that the first left, 500 that the second said and nobody has.
    assert spent.spent([run]) == Spent(18 + 6 + 3, 30 + 10 + 500, 20.0)
    assert spent.spent([run, run]).tokens == 2 * 540
    part = next(run.attempts.glob(f"{names[0]}-*.parquet"))
    rows = pq.read_table(part).drop_columns("continued_from")
    so_far = ATTEMPTS.field("continued_from")
    pq.write_table(rows.append_column(so_far, pa.array([4, None], pa.int32())), part)
    assert spent.spent([run]).tokens == 540 - 3  # 7 said of 6 left
    pq.write_table(rows.append_column(so_far, pa.array([0, 0], pa.int32())), part)
    assert spent.account(run.cfg, spent.spent([run])) == {"tokens": {"limit": 1000, "spent": 540}}
    left = spent.rest(run.cfg, spent.spent([run]))
    assert left.tokens == 460 and run.cfg.budget.tokens == 1000
    run.cfg.budget.tokens = 200
    assert Allowance(run).told().startswith("the budget is spent: kept 8 attempts of 8, 0 are owed")


def test_beside_others_nothing_is_begun_that_was_not_said(tmp_path: Path, clock: Clock) -> None:
    run = make_run(tmp_path / "run", {"a": "." * 200, "b": "." * 200})
    run.cfg.budget.tokens = 400.0  # of attempts with 8 at most, and of 5 when they are known
    names = [f"000000000000000{i}-n-{i}" for i in (1, 2)]
    one = working(run, clock, names[0])
    with contextlib.ExitStack() as alive:
        alive.enter_context(Heartbeat(run.path, names[0]))
        assert one.may_begin(3) == 3  # alone
        alive.enter_context(Heartbeat(run.path, names[1]))
        two = working(run, clock, names[1])
        for each in (one, two):
            each.session.save("sampling")  # type: ignore[union-attr]
        assert two.may_begin(100) == 0  # the first has not said that it knows
        clock.now += 6.0
        assert one.may_begin(100) == 25  # half of 404 / 8
        for position in range(20):
            one.began(position)
        clock.now += 0.2
        assert two.may_begin(100) == 13  # half of the rest; five of the first may begin still
        assert not one.over() and not two.over()
        clock.now += 2.0
        assert one.may_begin(100) == 9  # half of (404 - 20 * 8 - 13 * 8) / 8, its five among them
        clock.now += 2.0
        assert one.may_begin(100) == 0  # it used none of them, so others may
    clock.now += 6.0
    add_attempts(run, {"a": "." * 100 + "1" * 20}, part=f"{names[0]}-00000")
    assert two.may_begin(100) > 0
    assert two._spent().tokens == 100  # it had not said so


def test_what_nobody_counts_is_refused(tmp_path: Path, clock: Clock) -> None:
    run = make_run(tmp_path / "run", {"a": "...."})
    run.cfg.budget.tokens = 400.0
    one = working(run, clock)
    one.began(0)
    with pytest.raises(UserError, match=r"budget\.tokens: the server does not say how many tokens"):
        one.ended(0, completed(1.0, None))
    run.cfg.budget = compose.load(["budget.until=2100-01-01"]).budget
    one.began(1)
    one.ended(1, completed(1.0, None))


# --- settings, and what is shown


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["budget.until=2020-01-01"], r"^budget\.until=2020-01-01: is past; name a later moment$"),
        (["until=soon"], r"^budget\.until=soon: .* 2026-12-01T08:00"),
        (["budget.tokens=many"], r"^budget\.tokens: "),
        (["budget.money=5"], r"^budget\.money=5: .*engine\.price_in"),
        (["budget.token=5"], r"^budget\.token: no such key \(did you mean budget\.tokens"),
        (
            ["budget.gpu_hours=2", "engine=openai", "engine.url=http://n:8000/v1"],
            r"^budget\.gpu_hours=2: .*budget\.tokens",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_refused_with_its_remedy(settings: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        compose.load(settings)


def test_a_folder_keeps_its_budget_which_is_no_part_of_its_identity(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", MARKS)
    run.cfg.budget = compose.load(["budget.until=2100-01-01T08:00+02:00", "tokens=5e6"]).budget
    runfolder.save_config(run)
    again = load_folder(run.path, [])
    assert again.budget == run.cfg.budget and again.budget.tokens == 5e6
    assert runfolder.identity(again) == runfolder.identity(load_folder(run.path, []))
    assert not [key for key in runfolder.identity(again) if "budget" in key]
    # A moment that passed since stops no other verb; given anew it is refused.
    text = (run.path / "config.yaml").read_text().replace("2100-", "2020-")
    (run.path / "config.yaml").write_text(text)
    assert load_folder(run.path, ["sampling.trials=9"]).budget.past
    with pytest.raises(UserError, match=r"^budget\.until=2021-01-01: is past"):
        load_folder(run.path, ["budget.until=2021-01-01"])
    run = Run(load_folder(run.path, []))
    assert "2 are owed" in Allowance(run).told()


def test_status_and_a_dry_run_say_what_is_spent_and_fits(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", MARKS)
    run.cfg.budget.tokens, run.cfg.budget.until = 35.0, "2100-01-01"
    runfolder.save_config(run)
    assert main.main(["status", str(run.path)]) == 0
    assert "budget: 30 of 35 tokens, until 2100-01-01" in capsys.readouterr().out
    assert main.main(["status", str(tmp_path)]) == 0
    assert "run: budget: 30 of 35 tokens" in capsys.readouterr().out
    assert main.main(["status", str(run.path), "--json"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert shown["budget"]["tokens"] == {"limit": 35.0, "spent": 30}


def test_a_dry_run_says_how_many_fit(forker: Forker, reference: tuple[Path, Attempts]) -> None:
    folder = reference[0]
    used, mean = tokens(folder), tokens(folder) / len(reference[1])
    more = ["sampling.trials=6", f"budget.tokens={used + 10.5 * mean:.0f}", "--dry-run"]
    said = Command(folder, forker, *more).finish()
    assert "tokens; about 10 attempts fit" in said
    said = Command(folder.with_name("new"), forker, "budget.tokens=960", "--dry-run").finish()
    assert "budget: 0 of 960 tokens; at least 10 attempts fit" in said


def test_jobs_find_the_budget_in_the_folder(forker: Forker, tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 7\n")
    (tmp_path / "sbatch").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    folder = tmp_path / "run"
    Command(folder, forker, "budget.tokens=960", verb="submit", environment=path).finish()
    assert load_folder(folder, []).budget.tokens == 960
