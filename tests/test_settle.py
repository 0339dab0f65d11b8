"""settle: what is decided from complete runs, and what is on record of it."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, add_grades, run_of
from rich.console import Console
from rich.text import Text

from bayes_at_n.pipeline.adaptive import RECORD, live, looks, plan, tables
from bayes_at_n.pipeline.adaptive.data import Outcomes
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.looks import Course
from bayes_at_n.pipeline.adaptive.plan import Contender, Goal, Plan, record_of
from bayes_at_n.pipeline.adaptive.race import states
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.config import settle
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settle import SettleConfig
from bayes_at_n.pipeline.display import table
from bayes_at_n.pipeline.report import panels
from bayes_at_n.pipeline.status import watch
from bayes_at_n.pipeline.status.watch import Above
from bayes_at_n.pipeline.store import find, parquet, runfolder
from bayes_at_n.pipeline.store.columns import GRADES
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.sequential import Race, Target

QUESTIONS, TRIALS = 20, 40


def coins(*accuracies: float, trials: int = TRIALS) -> Any:
    """Outcomes (K, M, N) of models that are right so often at every question."""
    rng, shape = np.random.default_rng(7), (len(accuracies), QUESTIONS, trials)
    return (rng.random(shape) < np.array(accuracies)[:, None, None]).astype(np.int8)


def folders(root: Path, outcomes: Any, names: str = "abcdef") -> Path:
    """Complete runs that hold outcomes."""
    for name, of_model in zip(names, outcomes, strict=False):
        lines = {f"q{q:02d}": "".join(map(str, line)) for q, line in enumerate(of_model)}
        run_of(root, name, lines, "sampling.seeds=independent")
    return root / "sums"


def told(capsys: Capsys, *arguments: str) -> dict[str, Any]:
    assert main.main(["settle", *arguments, "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_replay_decides_as_a_race_fed_by_hand(tmp_path: Path, capsys: Capsys) -> None:
    outcomes = coins(0.9, 0.6, 0.55, 0.1)
    place = folders(tmp_path, outcomes)
    found = told(capsys, f"replay={place}", "until=best")
    race, attempts = Race(4, QUESTIONS, Target("best")), 0
    while not race.look().settled:
        sampled = np.repeat(race.look().open[:, None].astype(int), QUESTIONS, axis=1)
        race.add(outcomes[:, :, race.look().round] * sampled, sampled)
        attempts += int(sampled.sum())
    assert found["settled"] and found["best"] == "a" and found["order"][0] == ["a"]
    assert sorted(found["order"][1]) == ["b", "c", "d"]
    assert found["attempts"] == attempts < found["fixed"] == 4 * QUESTIONS * TRIALS
    assert found["tokens"] == 5 * attempts
    assert [m["mean"] for m in found["models"]] == pytest.approx(race.look().mean.tolist())
    assert not [path for path in place.iterdir() if path.name.startswith("_")]


def test_questions_that_not_all_models_have_are_told(tmp_path: Path, capsys: Capsys) -> None:
    for name, questions in (("a", 9), ("b", 7)):
        run_of(tmp_path, name, {f"q{q}": "10" * 5 for q in range(questions)})
    found = told(capsys, f"replay={tmp_path / 'sums'}")
    assert (found["questions"], found["fixed"]) == (7, 140)
    assert main.main(["settle", f"replay={tmp_path / 'sums'}"]) == 0
    assert "only the 7 questions count" in " ".join(capsys.readouterr().err.split())


def test_a_folder_that_is_not_there_is_named(capsys: Capsys) -> None:
    assert main.main(["settle", "replay=nowhere"]) == 2
    assert capsys.readouterr().err.strip() == "error: nowhere: no such folder"


def test_every_target_in_words_and_files(tmp_path: Path, capsys: Capsys, undrawn: None) -> None:
    place = folders(tmp_path, coins(0.95, 0.6, 0.2))
    found = told(capsys, f"replay={place}", "until=order")
    assert found["order"] == [["a"], ["b"], ["c"]] and found["best"] == "a"
    assert told(capsys, f"replay={place}", "until=top:2")["order"] == [["a", "b"], ["c"]]
    assert told(capsys, f"replay={place}", "until=above:b")["order"] == [["a"], ["b"], ["c"]]
    wide = told(capsys, f"replay={place}", "until=width:0.3")
    assert wide["settled"] and all(m["high"] - m["low"] <= 0.3 for m in wide["models"])
    assert not told(capsys, f"replay={place}", "until=width:0.001")["settled"]
    planned = told(capsys, f"replay={place}", "until=best", "method=looks")
    assert planned["best"] == "a" and planned["trials"] in (4, 8, 12, 16)  # of 40
    out, orders = tmp_path / "out", ["permutations=5", f"out={tmp_path / 'out'}"]
    assert main.main(["settle", f"replay={place}", *orders]) == 0
    shown = capsys.readouterr().out
    assert "a is the best" in shown and "in 5 orders of the trials: a 100.0%" in shown
    saved = json.loads((out / "settle.json").read_text())
    assert saved["files"] == [
        *(f"leaderboard.{end}" for end in ("csv", "json", "md", "tex")),
        "race.pdf",
        "race.png",
    ]


def test_seeds_that_are_shared_are_warned_of(tmp_path: Path, capsys: Capsys) -> None:
    for name, mark in (("a", "1"), ("b", "0")):
        run_of(tmp_path, name, {f"q{q}": mark * 10 for q in range(9)}, "sampling.seeds=shared")
    assert told(capsys, f"replay={tmp_path / 'sums'}")["shared_seeds"]
    assert main.main(["settle", f"replay={tmp_path / 'sums'}"]) == 0
    assert "share seeds" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["until=first"], "until=first"),
        (["until=top:0"], "top:0"),
        (["until=width:2"], "width:2"),
        (["model=demo,qwen3-4b", "until=top:2"], "of 2 models"),
        (["model=demo,qwen3-4b", "until=above:x"], "no such model"),
        (["model=demo"], "two or more"),
        (["model=demo,qwen3-4b", "sampling.seeds=shared"], "not independent"),
        (["model=demo,demo"], "tag="),
        (["model=demo,qwen3-4b", "run_dir=x"], "leave it out"),
        (["permutations=3"], "replay"),
        (["replay=x", "model=demo"], "model=demo"),
        (["modle=demo"], "model"),
    ],
)
def test_what_cannot_be(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan.make(settle.load(arguments))


def seen_in(outcomes: Any, goal: Goal) -> Course:
    """The course of a race through outcomes, of five tokens an attempt."""
    tokens = np.full((len(outcomes), outcomes.shape[2]), 5 * QUESTIONS)
    known = Outcomes(goal.names, outcomes, tokens, False)
    return looks.course([*states(outcomes, goal)], known, goal)


def test_looks_stay_on_record(tmp_path: Path) -> None:
    goal = Goal(SettleConfig(), ["a", "b"], TRIALS, block=4)
    seen = seen_in(coins(0.6, 0.5), goal)
    assert len(seen.states) > 2
    looks.record(tmp_path, seen._replace(states=seen.states[:2]))
    before = (tmp_path / looks.FILE).read_bytes()
    with (tmp_path / looks.FILE).open("ab") as file:
        file.write(b'{"look": 3, "tri')  # a crash in the middle of a line
    assert len(looks.read(tmp_path)) == 2
    rows = looks.record(tmp_path, seen)
    assert (tmp_path / looks.FILE).read_bytes().startswith(before)
    assert [row["look"] for row in rows] == [state.look for state in seen.states]
    assert rows[0]["models"][0]["tokens"] == 4 * 5 * QUESTIONS
    with pytest.raises(UserError, match="on record"):
        looks.record(tmp_path, seen_in(coins(0.0, 1.0), goal))


@pytest.mark.parametrize("until", ["best", "top:2", "order", "above:b", "width:0.3"])
@pytest.mark.parametrize("method", ["anytime", "looks"])
def test_a_record_says_all_that_was_seen(tmp_path: Path, until: str, method: str) -> None:
    goal = Goal(SettleConfig(until=until, method=method), ["a", "b", "c"], TRIALS, block=5)
    seen = seen_in(coins(0.9, 0.6, 0.5), goal)
    runfolder.write_json(tmp_path / RECORD, record_of(Plan(goal, [], tmp_path, [])))
    assert looks.load(tmp_path).states == []
    looks.record(tmp_path, seen)
    there = looks.load(tmp_path)
    assert (there.goal.looks, there.questions) == (goal.looks, QUESTIONS)
    assert there.tokens.tolist() == seen.tokens.tolist()
    for old, new in zip(seen.states, there.states, strict=True):
        assert (old.look, old.trials) == (new.look, new.trials)
        np.testing.assert_array_equal(old.sampled, new.sampled)
        for name, value in old.known._asdict().items():
            pairs = ~np.eye(3, dtype=bool)  # a model against itself is not recorded
            both = (value, getattr(new.known, name))
            if isinstance(value, np.ndarray) and value.ndim == 2:
                both = (value[pairs], both[1][pairs])
            np.testing.assert_array_equal(*map(str, both) if name == "groups" else both)
    assert table.to_csv(tables.leaderboard(there)) == table.to_csv(tables.leaderboard(seen))
    assert table.plain(tables.record(there)) == table.plain(tables.record(seen))
    (tmp_path / looks.FILE).write_text('{"look": 1}\n')
    with pytest.raises(UserError, match="damaged"):
        looks.load(tmp_path)
    (tmp_path / RECORD).unlink()
    with pytest.raises(UserError, match="holds no plan"):
        looks.load(tmp_path)


def begun(root: Path, until: str, accuracies: tuple[float, ...], trials: int) -> Path:
    """The folder of a race whose looks up to so many trials are on record, and its runs."""
    names, outcomes = [*"abcde"[: len(accuracies)]], coins(*accuracies)
    goal = Goal(SettleConfig(until=until), names, TRIALS, block=8)
    seen = [state for state in states(outcomes, goal) if state.trials <= trials]
    contenders = []
    for k, name in enumerate(names):
        made = int(seen[-1].spent[k]) if seen else 0
        lines = {
            f"q{q:02d}": "".join(map(str, line[:made])) + "." * (TRIALS - made)
            for q, line in enumerate(outcomes[k])
        }
        contenders.append(Contender(name, [run_of(root, name, lines)], []))
    folder = root / "sums" / "_settle" / until.replace(":", "-")
    planned = Plan(goal, contenders, folder, [])
    live.begin(planned)
    assert len(live.look(planned)[0].states) == len(seen)
    return folder


def test_status_shows_a_race_and_writes_nothing(tmp_path: Path, capsys: Capsys) -> None:
    folder = begun(tmp_path, "best", (0.7, 0.6, 0.1), trials=8)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main.main(["status", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "look 1, 8 trials: not settled: a and b are open" in shown
    assert "of 2,400 attempts (20.0%)" in shown and "forecast" in shown
    assert "\nc " in shown and "out at 8 trials" in shown and "% there" in shown
    assert " 160/800 " in shown and " 480/2400 " in shown
    assert main.main(["status", str(folder), "--json"]) == 0
    race, *runs = map(json.loads, capsys.readouterr().out.splitlines())
    assert (race["settled"], race["trials"], len(runs)) == (False, 8, 3)
    assert race["left"]["trials"]["c"] == 8 < race["left"]["trials"]["a"]
    assert race["models"][1]["log_e"] > -5 and race["log_needed"] > 3
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main.main(["status", str(folder), "model=a"]) == 2
    assert "one folder of `settle`" in capsys.readouterr().err


def test_watching_ends_with_the_race(tmp_path: Path, capsys: Capsys) -> None:
    folder = begun(tmp_path, "top:1", (0.9, 0.2), trials=TRIALS)  # its runs owe the other trials
    assert main.main(["status", str(folder), "--watch"]) == 0
    assert "settled: a is the best" in capsys.readouterr().out
    (folder / looks.FILE).unlink()
    for run in "ab":  # nor has any run been begun
        shutil.rmtree(tmp_path / "sums" / run)
    assert main.main(["status", str(folder)]) == 0
    assert "the first look is after 8 trials" in capsys.readouterr().out


def test_looks_at_outcomes_that_changed_are_stale(tmp_path: Path, capsys: Capsys) -> None:
    folder = begun(tmp_path, "best", (0.9, 0.2), trials=TRIALS)
    runs = [str(run) for run in find.within(tmp_path / "sums")]
    notices: list[str] = []
    for graded in ("anew", "not"):
        for path in (tmp_path / "sums" / "a" / "grades").glob("*.parquet"):
            rows = parquet.whole(path, GRADES).to_pylist()
            anew = [row | {"outcome": "wrong"} for row in rows[: 9 if graded == "not" else None]]
            add_grades(Run(load_folder(tmp_path / "sums" / "a", [])), path.stem, anew)
        assert main.main(["status", str(folder)]) == 0
        shown = capsys.readouterr().out
        assert "stale: " in shown and "settled" not in shown and "a is the best" not in shown
        assert main.main(["status", str(folder), "--json", "--watch"]) == 0
        race, *_ = map(json.loads, capsys.readouterr().out.splitlines())
        assert not race["settled"] and "look 1 is on record" in race["stale"]
        if graded == "anew":
            cohorts = cohort.load(AnalysisConfig(folders=runs))
            assert not [*panels.settled(cohorts, notices)] and "stale: " in notices[0]


def test_no_line_above_the_runs_is_cut() -> None:
    screen = Console(file=io.StringIO(), width=30, soft_wrap=True)  # as a live display prints
    screen.print(watch._drawn([], Above(Text("word " * 20), {}, False)))
    assert screen.file.getvalue().count("word") == 20  # type: ignore[attr-defined]
    assert max(map(len, screen.file.getvalue().splitlines())) <= 30  # type: ignore[attr-defined]


def test_a_forecast_draws_evidence_on(tmp_path: Path) -> None:
    goal = Goal(SettleConfig(), ["a", "b", "c"], 80, block=8)
    [first, *_] = states(coins(0.9, 0.8, 0.7, trials=80), goal)

    def at(look: int, b: float, c: float) -> Any:
        known = first.known._replace(log_out=np.array([-9.0, b, c]), open=np.full(3, True))
        known = known._replace(groups=[[0, 1, 2]], settled=False, log_needed=4.0)
        return first._replace(look=look, trials=8 * look, spent=np.full(3, 8 * look), known=known)

    tokens = np.array([[80, 160, 240], [160, 320, 480]])
    seen = Course(goal, [at(1, 0.5, 1.0), at(2, 1.0, 3.0)], tokens, QUESTIONS)
    # b needs 3 more at 0.5 in 8 trials, to 64; c needs 1 at 2 in 8 trials; a waits for b.
    found = forecast(seen)
    assert found is not None
    assert found.trials.tolist() == [64, 64, 24]
    assert found.tokens == 48 * 10 + 48 * 20 + 8 * 30
    stuck = forecast(seen._replace(states=[at(1, 0.5, 1.0), at(2, 0.4, 3.0)]))
    assert stuck is not None and stuck.trials.tolist() == [80, 80, 24]


def test_the_report_has_a_tab_for_each_race_of_its_models(tmp_path: Path) -> None:
    folder = begun(tmp_path, "order", (0.9, 0.2), trials=TRIALS)
    for name, marks in (("damaged", "{}"), ("of-others", '"a"')):
        shutil.copytree(folder, folder.parent / name)
        record = folder.parent / name / RECORD
        record.write_text(marks if marks == "{}" else record.read_text().replace('"a"', '"x"'))
    looked = (folder.parent / "of-others" / looks.FILE).read_text().replace('"a"', '"x"')
    (folder.parent / "of-others" / looks.FILE).write_text(looked)
    notices: list[str] = []
    runs = [str(run) for run in find.within(tmp_path / "sums")]
    cohorts = cohort.load(AnalysisConfig(folders=runs))
    [page] = panels.settled(cohorts, notices)
    assert (page["title"], page["counts"]) == ("settle order", None)
    board, left = page["tables"]
    assert board["title"] == "In which order are they? 95 % sure"
    assert "settled, from the best: a > b" in board["notes"][0]
    assert [row[0][0] for row in left["rows"]] == ["a, b"]
    assert "<svg" in page["figures"][0]["svg"]
    assert len(notices) == 1 and "damaged" in notices[0]
