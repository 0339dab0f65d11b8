"""settle while it samples: crashes, signals, several processes, and what runs are left with."""

import functools
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, add_attempts, make_run
from raced import coins, logged, seen_in

from bayes_at_n.pipeline.adaptive import live, looks, plan
from bayes_at_n.pipeline.adaptive import settle as settling
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.plan import Goal, Plan
from bayes_at_n.pipeline.adaptive.race import Course, upcoming
from bayes_at_n.pipeline.base import atomic, lease
from bayes_at_n.pipeline.base.console import MODES
from bayes_at_n.pipeline.base.errors import Interrupted, UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose, multirun
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.multirun import SettleConfig
from bayes_at_n.pipeline.generate import stage
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims
from bayes_at_n.pipeline.workers.claims import Heartbeat
from bayes_at_n.pipeline.workers.resident import Order, Residents
from bayes_at_n.scoring.sequential import MeanSequence

QUESTIONS, MOST = 12, 40
TRUTH = dict(zip("abc", (0.72, 0.5, 0.1), strict=True))
SUMS = [
    "model=custom", "dataset=jsonl", "dataset.path=sums.jsonl", "sampling.prompt_logprobs=false"
]  # fmt: skip
RACE = [
    *SUMS, "model.name=a,b,c", 'model.id="/nowhere/${model.name}"', "verifier=none",
    f"sampling.trials={MOST}", "block=4",
]  # fmt: skip
FOLDER = Path("runs/sums/_settle/best")


def marks(name: str, trials: int) -> dict[str, str]:
    """Outcomes of a model, the same whenever they are sampled."""
    rng = np.random.default_rng(ord(name))
    right = rng.random((QUESTIONS, MOST)) < TRUTH[name]
    return {f"q{q:02d}": "".join(map(str, row[:trials])) for q, row in enumerate(right.astype(int))}


def finished(name: str, trials: int) -> None:
    """The run of a model with so many trials."""
    config = Path("runs/sums", name, "config.yaml")
    if not config.exists():
        made(name, marks(name, trials))
        return
    config.write_text(re.sub(r"\n  trials: [0-9]+", f"\n  trials: {trials}", config.read_text()))
    add_attempts(Run(load_folder(config.parent, [])), marks(name, trials))


def made(name: str, lines: dict[str, str]) -> None:
    own = [f"model.name={name}", "sampling.seeds=independent"]
    make_run(Path("runs/sums", name), lines, *SUMS[3:], "verifier=none", *own)


class Children:
    """In place of resident processes: what they would leave in run folders, at once."""

    def __init__(self) -> None:
        self.sampled: list[tuple[str, int]] = []
        self.before: Callable[[str, int], int | None] = lambda name, trials: None
        self.statuses: dict[str, int] = {}

    def begin(self, order: Order) -> None:
        verb, *settings = order.command
        given = dict(setting.split("=", 1) for setting in settings)
        assert (verb, order.model) == ("run", given["model.name"])
        assert given["stages"] == "[prepare,generate]"
        assert int(given["sampling.trials"]) >= MOST
        name = order.model
        trials, idle = json.loads(Path(given["race"]).read_text())[f"runs/sums/{name}"]
        assert trials <= idle <= MOST
        status = self.before(name, trials)
        self.statuses[name] = status or 0
        if status is None:
            self.sampled.append((name, trials))
            finished(name, trials)

    def ended(self, order: Order) -> int | None:
        return self.statuses[order.model]


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Children:
    monkeypatch.chdir(tmp_path)
    found = Children()
    monkeypatch.setattr(Residents, "begin", lambda _, order: found.begin(order))
    monkeypatch.setattr(Residents, "ended", lambda _, order: found.ended(order))
    monkeypatch.setattr(live, "WAIT_S", 0.001)
    monkeypatch.setattr(live, "wanted_trials", up_to_the_next_look)
    return found


def up_to_the_next_look(seen: Course, turns: object = None) -> Any:
    trials, chosen = upcoming(seen.states, seen.goal)
    return np.where(chosen, trials, 0)


@functools.cache
def planned(*more: str) -> Plan:
    return plan.make(multirun.load_settle([*RACE, *more]))


def recorded(folder: Path = FOLDER) -> list[dict[str, Any]]:
    return logged(folder)


def in_rounds(sampled: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(sampled, key=lambda of: (of[1], of[0]))


def trials_of(name: str) -> int:
    return load_folder(Path("runs/sums", name), []).sampling.trials


def test_it_samples_what_is_open_and_records_looks(children: Children, capsys: Capsys) -> None:
    assert main.main(["settle", *RACE, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["best"] == "a"
    rows = recorded()
    assert rows[-1]["settled"] and len(rows) > 2
    sampled = [
        (model["model"], row["trials"]) for row in rows for model in row["models"]
        if model["sampled"]
    ]  # fmt: skip
    assert in_rounds(children.sampled) == sampled
    spent = {model["model"]: model["trials"] for model in found["models"]}
    assert {name: trials_of(name) for name in TRUTH} == spent
    for name, trials in spent.items():
        stopped = runfolder.read_json(Path("runs/sums", name, "manifest.json"))["stopped"]
        assert (stopped["until"], stopped["trials"]) == ("best", trials)

    # The last line makes the rest; the folder alone samples nothing more.
    *_, line = err.split("python -m pipeline ")
    assert line.startswith("run ") and "until=best" in line
    before = (FOLDER / looks.FILE).read_bytes()
    assert main.main(["settle", str(FOLDER), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert in_rounds(children.sampled) == sampled and (FOLDER / looks.FILE).read_bytes() == before
    assert main.main(["settle", *RACE, "confidence=0.9"]) == 2
    assert "was started with confidence=0.95" in " ".join(capsys.readouterr().err.split())


def killed(work: Callable[[], object]) -> None:
    """Do it in a process that is killed somewhere in it, by what the caller has put there."""
    if not (child := os.fork()):
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def or_soaked(*cases: Any, first: int) -> list[Any]:
    """The first of the cases always, the others where there is time."""
    rest = [of if isinstance(of, tuple) else (of,) for of in cases[first:]]
    return [*cases[:first], *(pytest.param(*of, marks=pytest.mark.soak) for of in rest)]


WHERE = or_soaked("half", "made", "child", "recorded", "mark", "begin", first=1)


@pytest.mark.parametrize("where", WHERE)
def test_a_kill_at_the_worst_moment_changes_nothing(
    children: Children, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    live.settle(planned("out=whole"))
    whole = recorded(Path("whole"))
    os.rename("runs", "earlier")

    def half(_: int) -> None:
        with (FOLDER / looks.FILE).open("ab") as file:
            file.write(b'{"look": 2, "tria')
        die()

    def in_child(name: str, trials: int) -> int | None:
        if trials == 8 or (where == "made" and name == "c"):  # which is sampled no more
            if where == "made":
                finished(name, trials)
                atomic.draft(Path("runs/sums", name, "grades", "x.parquet")).touch()
            die()
        return None

    with monkeypatch.context() as patch:
        if where in ("child", "made"):
            patch.setattr(children, "before", in_child)
        elif where in ("half", "recorded"):
            patch.setattr(looks.os, "fsync", half if where == "half" else die)
        elif where == "mark":
            patch.setattr(live, "mark", die)
        else:
            patch.setattr(runfolder, "write_json", die)
        killed(lambda: live.settle(planned()))
    atomic.sweep.cache_clear()  # as in another process
    seen, _ = live.settle(planned())
    assert recorded() == whole and len(seen.states) == len(whole)
    assert not [path for path in Path("runs").rglob("*") if path.suffix in (".lease", ".tmp")]
    assert [trials_of(name) for name in TRUTH] == seen.states[-1].spent.tolist()


@pytest.mark.parametrize("step", or_soaked(3, *range(3), *range(4, 7), first=1))
def test_two_processes_sample_and_record_nothing_twice(children: Children, step: int) -> None:
    """The second one does all its work in the middle of the first one's."""
    live.settle(planned("out=whole"))
    whole, alone = recorded(Path("whole")), children.sampled
    assert len(alone) > 4
    os.rename("runs", "earlier")
    children.sampled = []

    def other(name: str, trials: int) -> int | None:
        if len(children.sampled) < step:
            return None
        children.before = lambda name, trials: None
        live.settle(planned())
        return 0  # for what this child was to make is there

    children.before = other
    seen, _ = live.settle(planned())
    assert recorded() == whole and len(seen.states) == len(whole)
    assert sorted(children.sampled) == sorted(alone)


STATUSES = or_soaked(
    (137, 137, "failed"), (85, 85, "stopped"), (2, 2, "failed"), (143, 143, "stopped"), first=1
)  # fmt: skip


@pytest.mark.parametrize(("status", "code", "said"), STATUSES)
def test_a_run_that_fails_or_is_stopped_ends_it_with_its_status(
    children: Children, status: int, code: int, said: str
) -> None:
    children.before = lambda name, trials: status if name == "b" else None
    with pytest.raises(UserError, match=f"runs/sums/b: .*{said}") as error:
        live.settle(planned())
    assert error.value.exit_code == code and children.sampled == [("a", 4)]
    children.before = lambda name, trials: None
    assert live.settle(planned())[0].states[-1].known.settled  # and goes on


SIGNALS = or_soaked((signal.SIGUSR1, 85), (2, 130), (15, 143), first=1)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_stops_it(children: Children, number: int, code: int) -> None:
    children.before = lambda name, trials: os.kill(os.getpid(), number)
    with pytest.raises(Interrupted) as error:
        live.settle(planned())
    assert error.value.exit_code == code and children.sampled == [("a", 4)]
    assert not [*FOLDER.glob(".wanted*")]


def test_complete_runs_are_used_as_they_are(children: Children, capsys: Capsys) -> None:
    for name in "ab":
        finished(name, MOST)
    half = marks("b", MOST)
    half["q03"] = half["q03"][:6] + "+" * (MOST - 6)  # sampled; whoever graded it was killed
    made("b", half)
    seen, _ = live.settle(planned())
    assert {of for of in children.sampled if of[0] != "c"} <= {("b", MOST)}
    assert trials_of("a") == trials_of("b") == MOST
    assert "stopped" not in runfolder.read_json(Path("runs/sums/a/manifest.json"))
    assert trials_of("c") == seen.states[-1].spent[2] < MOST
    assert "stopped" in runfolder.read_json(Path("runs/sums/c/manifest.json"))


def test_whole_runs_with_shared_seeds_are_refused(children: Children, capsys: Capsys) -> None:
    """Nothing of theirs is pending, so no stage that would find out is run."""
    for name in TRUTH:
        made(name, marks(name, MOST))
    assert main.main(["settle", *RACE]) == 0 and not children.sampled
    manifest = Path("runs/sums/b/manifest.json")
    manifest.write_text(manifest.read_text().replace('"independent"', '"shared"'))
    capsys.readouterr()
    for command in (["settle", *RACE, "out=other"], ["submit", *RACE, "until=best", "--dry-run"]):
        assert main.main(command) == 2
        assert "sampling.seeds is 'shared' there" in " ".join(capsys.readouterr().err.split())
    assert not Path("other").exists()


def test_runs_that_were_graded_anew_are_looked_at_anew(children: Children) -> None:
    live.settle(planned())
    line = marks("a", trials_of("a"))
    line["q00"] = "".join(str(1 - int(mark)) for mark in line["q00"])
    made("a", line)
    before = recorded()
    assert live.settle(planned())[0].states  # of the grades there are; what was logged stays
    assert recorded()[: len(before)] == before
    (FOLDER / plan.RECORD).write_text("{")
    with pytest.raises(UserError, match="unreadable"):
        live.begin(planned())


def test_what_others_are_at_is_waited_for_without_an_engine(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose.load([*SUMS, "model.name=a", "model.id=/x", "sampling.trials=4"])
    made("a", dict.fromkeys(marks("a", 4), "1..."))
    run = Run(cfg)
    assert claims.any_free(Run(cfg))
    with Heartbeat(run.path, "other") as beat:
        assert claims.any_free(Run(cfg))  # it is loading, and takes sixteen of 48 at most
        other = claims.Claims(beat, lambda: range(48))
        other.read()
        for in_flight in range(20):
            other.take(in_flight, 48, 48)
        assert claims.any_free(Run(cfg))
        for in_flight in range(20, 48):
            other.take(in_flight, 48, 48)
        assert not claims.any_free(Run(cfg))
        with monkeypatch.context() as patch:
            patch.setenv(MODES, "several")
            assert stage.generate(Run(cfg)) is False  # one of several loads nothing for it either
        waited: list[float] = []

        def wait(seconds: float) -> None:
            if not waited:
                finished("a", 4)
            waited.append(seconds)

        monkeypatch.setattr(live.time, "sleep", wait)
        seen, _ = live.settle(planned())
        assert waited and ("a", 4) not in children.sampled and seen.states[-1].known.best == 0
        assert children.sampled[:2] == [("b", 4), ("c", 4)]  # which nobody is at
    assert claims.any_free(Run(cfg))
    assert lease.read(run.path / "claims" / "nobody.lease") is None


def test_run_until_makes_every_stage_with_the_trials_reached(
    children: Children, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    rest: list[list[str]] = []
    monkeypatch.setattr(
        settling.resident, "run_all", lambda commands: rest.extend(c[1:] for c in commands) or 0
    )
    stages = "stages=[prepare,generate,grade,score]"
    assert main.main(["run", *RACE, "until=best", stages]) == 0
    assert [compose.load(of).run_dir for of in rest] == [f"runs/sums/{name}" for name in TRUTH]
    for of, name in zip(rest, TRUTH, strict=True):
        cfg = compose.load(of)
        assert cfg.sampling.trials == trials_of(name) and cfg.stages[-1] == "score"
    assert "the stages after grade" not in capsys.readouterr().err
    one = [setting for setting in RACE if not setting.startswith("model.name")]
    assert main.main(["run", *one, "model.name=a", "until=width:0.3"]) == 0
    assert len(rest) == 4 and recorded(Path("runs/sums/_settle/width-0.3"))[-1]["settled"]
    for wrong in (["until=soon", *RACE], ["until=best", "--dry-run", *RACE], ["until=best", "."]):
        assert main.main(["run", *wrong]) == 2 and "until" in capsys.readouterr().err


def test_score_and_compare_say_what_may_be_read(children: Children, capsys: Capsys) -> None:
    live.settle(planned())
    folder, trials = Path("runs/sums/a"), trials_of("a")
    rounds = np.array([[int(m) for m in line] for line in marks("a", trials).values()])
    sequence = MeanSequence(QUESTIONS)
    for trial in range(trials):
        sequence.add(rounds[:, trial], np.ones(QUESTIONS, int))

    assert main.main(["score", str(folder)]) == 0
    assert "until=best" in " ".join(capsys.readouterr().err.split())
    found = json.loads((folder / "scores.json").read_text())["stopped"]
    assert (found["until"], found["rounds"]) == ("best", trials)
    assert found["mean"] == pytest.approx(rounds.mean())
    assert (found["low"], found["high"]) == pytest.approx(sequence.interval())
    assert main.main(["compare", "dataset=sums"]) == 0
    record = json.loads(Path("runs/sums/_compare-all/compare.json").read_text())["datasets"][0]
    assert record["stopped"]["a"]["low"] == pytest.approx(found["low"])
    assert any("until=best" in line for line in record["notes"]["leaderboard"])

    finished("a", MOST)  # with other trials nothing stopped it
    assert main.main(["score", str(folder)]) == 0
    assert "stopped" not in json.loads((folder / "scores.json").read_text())


def test_a_budget_is_of_all_runs_together(children: Children, capsys: Capsys) -> None:
    """An attempt has five tokens, so the first look takes 720 and the next at least 480."""
    assert main.main(["settle", *RACE, "budget.tokens=900"]) == 0
    assert "720 of 900 tokens" in " ".join(capsys.readouterr().err.split())
    assert [trials for _, trials in children.sampled] == [4, 4, 4] and len(recorded()) == 1
    # Nothing is begun that decides nothing; more of it goes on.
    assert main.main(["settle", *RACE, "budget.tokens=1e6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == "a"


def test_a_budget_that_is_spent_before_the_first_look_ends_it(
    children: Children, capsys: Capsys
) -> None:
    assert main.main(["settle", *RACE, "budget.tokens=300"]) == 2
    assert "480 of 300 tokens" in " ".join(capsys.readouterr().err.split())
    assert children.sampled == [("a", 4), ("b", 4)]


@pytest.mark.parametrize("until", ["best", "order", "width:0.05"])
def test_half_of_what_is_foretold_and_at_most_as_much_as_there_is(until: str) -> None:
    goal = Goal(SettleConfig(until=until), ["a", "b", "c"], 80, block=8)
    seen = seen_in(coins(0.62, 0.58, 0.2, trials=80), goal)
    assert len(seen.states) > 3
    assert live.wanted_trials(seen.upto(0)).tolist() == [8, 8, 8]
    for look in range(1, len(seen.states)):
        now, state = seen.upto(look), seen.states[look - 1]
        wanted, left, following = live.wanted_trials(now), forecast(now), goal.looks[look]
        assert left is not None and (wanted[~state.known.open] == 0).all()
        for k in np.flatnonzero(state.known.open):
            foretold = max(following, (following + int(left.trials[k])) // 2)
            assert following <= wanted[k] <= min(foretold, following + state.spent[k], 80)
    assert not live.wanted_trials(seen).any()


def test_a_turn_is_long_enough_for_its_load_and_no_longer_than_what_there_is() -> None:
    goal = Goal(SettleConfig(), ["a", "b"], 30, block=8)
    seen = seen_in(coins(0.6, 0.59, trials=30), goal).upto(2)
    assert seen.states[-1].spent.tolist() == [16, 16]
    assert live.wanted_trials(seen).tolist() == [27, 27]
    assert live.wanted_trials(seen, np.array([12, 500])).tolist() == [28, 30]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["engine.tensor_parallel_size=2"], ["0,1", "2,3"]),
        (["engine.replicas=4"], ["0,1,2,3"]),
        (["engine.tensor_parallel_size=auto"], [None]),
        (["engine=openai", "engine.url=http://x"], [None, None]),  # each on its server
    ],
)
def test_a_place_is_what_one_engine_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: list[str], expected: list[str | None]
) -> None:
    monkeypatch.setattr(live.devices, "on_gpus", lambda cfg: True)
    monkeypatch.setattr(live.devices, "visible_gpus", lambda: [*"01234"])
    monkeypatch.chdir(tmp_path)  # where no run of a demo is
    planned = plan.make(multirun.load_settle(["model=demo,qwen3-4b", "dataset=demo", *settings]))
    assert live.places(planned.contenders) == expected
