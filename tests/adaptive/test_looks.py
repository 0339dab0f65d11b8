"""Looks of a race: in the log and in `status`."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from helpers import Capsys
from raced import QUESTIONS, TRIALS, begun, coins, logged, seen_in

from bayes_at_n.pipeline.adaptive import looks
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.adaptive.race import Course, states
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config.multirun import SettleConfig


def test_looks_stay_in_the_log(tmp_path: Path) -> None:
    goal = Goal(SettleConfig(), ["a", "b"], TRIALS, block=4)
    seen = seen_in(coins(0.6, 0.5), goal)
    assert len(seen.states) > 2
    looks.record(tmp_path, seen.upto(2))
    before = (tmp_path / looks.FILE).read_bytes()
    with (tmp_path / looks.FILE).open("ab") as file:
        file.write(b'{"look": 3, "tri')  # a crash in the middle of a line
    looks.record(tmp_path, seen)
    assert (tmp_path / looks.FILE).read_bytes().startswith(before)
    rows = logged(tmp_path)
    assert [row["look"] for row in rows] == [state.look for state in seen.states]
    assert rows[0]["models"][0]["tokens"] == 4 * 5 * QUESTIONS
    looks.record(tmp_path, seen.upto(1))  # of a process that has not seen the others yet
    assert logged(tmp_path) == rows


def test_status_shows_a_race_and_writes_nothing(tmp_path: Path, capsys: Capsys) -> None:
    folder = begun(tmp_path, "best", (0.7, 0.6, 0.1), trials=8)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main.main(["status", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "look 1, 8 trials" in shown and "of 2,400 attempts (20.0%)" in shown
    assert "out at 8 trials" in shown and " 160/800 " in shown and " 480/2400 " in shown
    assert main.main(["status", str(folder), "--json"]) == 0
    race, *runs = map(json.loads, capsys.readouterr().out.splitlines())
    assert (race["settled"], race["trials"], len(runs)) == (False, 8, 3)
    assert race["left"]["trials"]["c"] == 8 < race["left"]["trials"]["a"]
    assert race["models"][1]["log_e"] > -5 and race["log_needed"] > 3
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main.main(["status", str(folder), "model=a"]) == 2
    assert "model=a" in capsys.readouterr().err


def test_watching_ends_with_the_race(tmp_path: Path, capsys: Capsys) -> None:
    folder = begun(tmp_path, "top:1", (0.9, 0.2), trials=TRIALS)  # its runs owe the other trials
    assert main.main(["status", str(folder), "--watch"]) == 0
    assert "settled on these 20 questions: a is the best" in capsys.readouterr().out
    (folder / looks.FILE).unlink()
    for run in "ab":  # nor has any run been begun
        shutil.rmtree(tmp_path / "sums" / run)
    assert main.main(["status", str(folder)]) == 0
    assert "first look after 8 trials" in capsys.readouterr().out


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
