"""A race with real workers: limits that rise while they sample, and models that leave."""

from pathlib import Path

import numpy as np
import pytest
from helpers import make_run
from raced import chance, forked, logged

from bayes_at_n.pipeline.adaptive import live, plan, schedule
from bayes_at_n.pipeline.adaptive.race import states
from bayes_at_n.pipeline.config import settle
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS

QUESTIONS, MOST = 8, 24
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
    names = [f"q{q}" for q in range(QUESTIONS // len(sets))]
    for name in TRUTH:
        Path("models", name).mkdir(parents=True)
        Path("models", name, "config.json").write_text("{}")
        for of in sets:
            own = [f"model.name={name}", "sampling.seeds=independent", *RACE[3:4], *RACE[8:9]]
            lines = {f"{of}-{question}": "." for question in names}
            make_run(Path("runs", of, name), lines, *own, f"dataset.name={of}")
    planned = plan.make(settle.load([*RACE, f"dataset.name={','.join(sets)}"]))
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
            assert max(trial for _, trial in sampled) < min(2 * spent + schedule.IDLE, MOST)
