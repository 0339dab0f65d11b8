"""How far ahead of the next look a race is sampled."""

from pathlib import Path

import numpy as np
import pytest
from raced import QUESTIONS, coins, seen_in

from bayes_at_n.pipeline.adaptive import live, plan, schedule
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.config import settle
from bayes_at_n.pipeline.config.settle import SettleConfig


@pytest.mark.parametrize("until", ["best", "order", "width:0.05"])
def test_half_of_what_is_foretold_and_at_most_as_much_as_there_is(until: str) -> None:
    goal = Goal(SettleConfig(until=until), ["a", "b", "c"], 80, block=8)
    seen = seen_in(coins(0.62, 0.58, 0.2, trials=80), goal)
    assert len(seen.states) > 3
    assert schedule.wanted(seen.upto(0)).tolist() == [8, 8, 8]
    for look in range(1, len(seen.states)):
        now, state = seen.upto(look), seen.states[look - 1]
        wanted, left, following = schedule.wanted(now), forecast(now), goal.looks[look]
        assert left is not None and (wanted[~state.known.open] == 0).all()
        for k in np.flatnonzero(state.known.open):
            foretold = max(following, (following + int(left.trials[k])) // 2)
            assert following <= wanted[k] <= min(foretold, following + state.spent[k], 80)
    assert not schedule.wanted(seen).any()


def test_a_turn_is_long_enough_for_its_load_and_no_longer_than_what_there_is() -> None:
    goal = Goal(SettleConfig(), ["a", "b"], 30, block=8)
    seen = seen_in(coins(0.6, 0.59, trials=30), goal).upto(2)
    assert seen.questions == QUESTIONS and seen.states[-1].spent.tolist() == [16, 16]
    assert schedule.wanted(seen).tolist() == [27, 27]
    assert schedule.wanted(seen, np.array([12, 500])).tolist() == [28, 30]


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
    planned = plan.make(settle.load(["model=demo,qwen3-4b", "dataset=demo", *settings]))
    assert live.places(planned.contenders) == expected
