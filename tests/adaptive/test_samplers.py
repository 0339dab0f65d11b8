"""Which model a free place takes, how far ahead of the next look; and with real workers."""

from pathlib import Path

import numpy as np
import pytest
from helpers import make_run
from raced import QUESTIONS, chance, coins, forked, logged, seen_in

from bayes_at_n.pipeline.adaptive import live, plan
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.adaptive.race import states
from bayes_at_n.pipeline.config import multirun
from bayes_at_n.pipeline.config.multirun import SettleConfig
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS

ASKED, MOST = 8, 24
TRUTH = {"a": 0.9, "b": 0.7, "c": 0.1}
RACE = [
    "model=custom", "model.name=a,b,c", 'model.id="models/${model.name}"', "verifier=none",
    "dataset=jsonl", "dataset.path=sums.jsonl", f"sampling.trials={MOST}", "block=2",
    "sampling.prompt_logprobs=false", "engine.batch_size=4", "engine.replicas=1",
]  # fmt: skip


def is_right(name: str, question: str, trial: int) -> bool:
    return chance(name, question, trial) < TRUTH[name]


def test_what_is_decided_is_that_of_the_same_rounds_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    places, sets = 2, ["sums", "more"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "Residents", forked(is_right))
    monkeypatch.setattr(live, "STAGES", "stages=[generate]")
    monkeypatch.setattr(live, "WAIT_S", 0.05)
    monkeypatch.setattr(live, "places", lambda contenders: [None] * places)
    names = [f"q{q}" for q in range(ASKED // len(sets))]
    for name in TRUTH:
        Path("models", name).mkdir(parents=True)
        Path("models", name, "config.json").write_text("{}")
        for of in sets:
            own = [f"model.name={name}", "sampling.seeds=independent", *RACE[3:4], *RACE[8:9]]
            lines = {f"{of}-{question}": "." for question in names}
            make_run(Path("runs", of, name), lines, *own, f"dataset.name={of}")
    planned = plan.make(multirun.load_settle([*RACE, f"dataset.name={','.join(sets)}"]))
    seen, _ = live.settle(planned)

    questions = [f"{of}-{question}" for of in sets for question in names]
    every = [[[is_right(m, q, t) for t in range(MOST)] for q in questions] for m in TRUTH]
    expected = [*states(np.array(every, np.int8), planned.goal)]
    assert len(seen.states) == len(expected) > 1
    for one, other in zip(seen.states, expected, strict=True):
        assert one.spent.tolist() == other.spent.tolist()
        assert one.known.log_e.tolist() == other.known.log_e.tolist()
    assert expected[-1].known.best == 0 and expected[-1].spent[2] < expected[-1].spent[0]
    assert len(logged(planned.folder)) == len(seen.states)
    assert not [*planned.folder.glob(".wanted*")]
    for contender, spent in zip(planned.contenders, seen.states[-1].spent, strict=True):
        for run in (runfolder.open_run(run.path) for run in contender.runs):
            assert run.cfg.sampling.trials == spent and not runfolder.pending(run)
            assert not runfolder.alive(run.path) and not (run.path / runfolder.CLAIMS).exists()
            sampled = shards.keys(run.attempts, ATTEMPTS, shards.Damage())
            assert max(trial for _, trial in sampled) < min(2 * spent + live.IDLE, MOST)


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
    assert seen.questions == QUESTIONS and seen.states[-1].spent.tolist() == [16, 16]
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
