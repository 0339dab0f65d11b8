"""plan: what it expects, held against races that were run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys
from raced import coins, folders

from bayes_at_n.pipeline.adaptive import forecast, plan
from bayes_at_n.pipeline.adaptive.race import states
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import multirun as config
from bayes_at_n.pipeline.config.multirun import PlanConfig
from bayes_at_n.scoring.sequential import Target, simulate


def told(capsys: Capsys, *arguments: str) -> dict[str, Any]:
    assert main.main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_plan_expects_what_other_orders_take(tmp_path: Path, capsys: Capsys) -> None:
    outcomes, rng = coins(0.9, 0.7, 0.2), np.random.default_rng(0)
    place = str(folders(tmp_path, outcomes))
    for until in ("best", "above:b"):
        goal = plan.Goal(config.SettleConfig(until=until), [*"abc"], 40, block=1)
        last = [[*states(rng.permuted(outcomes, axis=2), goal)][-1] for _ in range(20)]
        found = told(capsys, "plan", place, "trials=40", f"until={until}", "block=1")
        share = np.mean([state.spent.sum() for state in last]) / (3 * 40)
        assert found["attempts"] / found["fixed"] == pytest.approx(share, rel=0.15)
        assert found["settled"] > 0.95 and sum(state.known.settled for state in last) >= 19
        assert found["tokens"] == pytest.approx(5 * found["attempts"], abs=5)
    assert {m["model"]: m["above"] > 0.95 for m in found["models"]} == {
        "a": True,
        "b": False,
        "c": False,
    }


def test_a_race_ends_before_it_costs_more_than_its_budget() -> None:
    p = coins(0.7, 0.6, 0.5).mean(axis=-1)
    cost = [[1.0], [2.0], [3.0]]
    free, tight = (
        simulate(p, Target("order"), runs=100, looks=range(4, 80, 4), cost=cost, budget=budget)
        for budget in (np.inf, 3000.0)
    )
    assert tight.total.max() <= 3000 < free.total.max() and tight.settled < free.settled
    assert tight.cost == pytest.approx(tight.attempts * np.ravel(cost))
    each = simulate(
        np.stack([p] * 100), Target("order"), runs=100, looks=range(4, 80, 4), cost=cost
    )
    assert (each.total == free.total).all() and (each.better == free.better).all()
    undecided = 1 - each.better - each.better.T - each.tied - np.eye(3)
    assert each.open.tolist() == pytest.approx([0.01, 0.02, 0.01])
    assert undecided == pytest.approx(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 100)


def test_assumed_accuracies_are_met_and_costs_follow(capsys: Capsys) -> None:
    basis = forecast.assumed(
        PlanConfig(accuracies=[0.999, 0.3, 0.0], tokens=[100], speed=[10], questions=7)
    )
    assert basis.accuracies == pytest.approx([0.999, 0.3, 0.0]) and (basis.p <= 1).all()
    assert (np.diff(basis.p) >= 0).all()  # what is hard is hard for all
    assert basis.costs["gpu_hours"] == pytest.approx(100 / 10 / 3600)
    asked = ["plan", "accuracies=[0.9,0.5]", "tokens=1000", "speed=100", "trials=40", "price=2"]
    found = told(capsys, *asked, "budget.gpu_hours=3")
    assert 0 < found["gpu_hours"] <= 3 and found["gpu_hours"] == pytest.approx(
        found["tokens"] / 100 / 3600
    )
    assert found["money"] == pytest.approx(2 * found["tokens"] / 1e6)
    assert told(capsys, *asked, "until=width:0.2")["settled"] == 1
    assert told(capsys, *asked, "until=width:0.02", "budget.tokens=480000")["settled"] == 0
    assert main.main([*asked, "until=order"]) == 0
    said = capsys.readouterr().out
    assert "GPU-hours" in said and "model-1 minus model-2" in said
    # Of 30 questions and two models; at 40 trials a question more takes 80 attempts.
    more = found["next_attempts"]
    assert more["trials"] == pytest.approx(1000 / 60) and more["questions"] == 12.5
    assert 0 < more["elsewhere"] < more["here"] < 0.2 and more["sentence"] in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "accuracies"),
        (["accuracies=[0.5,0.4]", "tokens=[1,2,3]"], "3 values for 2 models"),
        (["accuracies=[0.5,0.4]", "budget.gpu_hours=3"], "tokens= and speed="),
        (["accuracies=[0.5,0.4]", "tokens=9", "budget.tokens=99"], "first look"),
    ],
)
def test_what_cannot_be_planned(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        forecast.plan(compose.load_as(config.PlanConfig, arguments))
