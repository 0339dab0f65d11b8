"""A race with real workers: claims, limits that rise while they sample, and how they leave."""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Capsys, make_run

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.adaptive import live, looks, plan
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import settle
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.generate import stage
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.workers.resident import Order, Residents

QUESTIONS, MOST = 8, 24
TRUTH = {"a": 0.9, "b": 0.75, "c": 0.1}
SUMS = ["model=custom", "dataset=jsonl", "dataset.path=sums.jsonl", "sampling.prompt_logprobs=false"]
RACE = [
    *SUMS, "model.name=a,b,c", 'model.id="models/${model.name}"', "verifier=none",
    f"sampling.trials={MOST}", "block=4", "engine.batch_size=4", "engine.replicas=1",
]  # fmt: skip


def chance(*of: object) -> float:
    """A number in [0, 1) that is the same whenever it is drawn."""
    return int(hashlib.sha256(repr(of).encode()).hexdigest()[:8], 16) / 2**32


class Drawn(engines.Engine):
    """An engine that answers at once what :func:`chance` says, and now and then late."""

    def __init__(self, name: str) -> None:
        self.name = name

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion | None]:
        waiting: list[tuple[float, Request]] = []
        source, more = iter(requests), True
        while more or waiting:
            if more:
                taken, more = engines.pull(source, 8 - len(waiting))
                for one in taken:
                    late = 0.3 * (chance(self.name, one.question_id, one.trial, "late") < 0.1)
                    waiting.append((time.monotonic() + 0.01 + late, one))
            time.sleep(0.005)
            now = time.monotonic()
            for end, one in [of for of in waiting if of[0] <= now]:
                waiting.remove((end, one))
                right = chance(self.name, one.question_id, one.trial) < TRUTH[self.name]
                text = rf"\boxed{{{2 if right else 3}}}"
                yield Completion(one, text, "stop", [1, 2, 3], [-0.5] * 3, now, now, now)
            yield None

    def describe(self) -> dict[str, Any]:
        return {"device": "cpu"}


class Forked(Residents):
    """Commands in forked processes, each with an engine of :class:`Drawn`."""

    def __init__(self, *_: object, **__: object) -> None:
        self.children: dict[str, int] = {}

    def begin(self, order: Order) -> None:
        if pid := os.fork():
            self.children[order.model] = pid
            return
        status = 1
        try:
            engines.load = lambda cfg, longest, rows: Drawn(order.model)  # type: ignore[assignment]
            stage._fitted = lambda runs: [*runs]
            try: status = main.main([*order.command])
            except BaseException:
                import traceback; traceback.print_exc(file=open("/tmp/adaptive/tb","a")); raise
            open("/tmp/adaptive/tb","a").write(f"{status} {order.command}")
        finally:
            os._exit(status)

    def ended(self, order: Order) -> int | None:
        pid, status = os.waitpid(self.children[order.model], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def stop(self, number: int) -> None:
        for pid in self.children.values():
            os.kill(pid, number)

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def racing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> None:
    monkeypatch.chdir(tmp_path)
    for name in TRUTH:
        Path("models", name).mkdir(parents=True)
        Path("models", name, "config.json").write_text("{}")
        own = [f"model.name={name}", "sampling.seeds=independent"]
        lines = {f"q{q}": "." for q in range(QUESTIONS)}
        make_run(Path("runs/sums", name), lines, *SUMS[3:], "verifier=none", *own)
    monkeypatch.setattr(live, "Residents", Forked)
    monkeypatch.setattr(live, "STAGES", "stages=[generate]")
    monkeypatch.setattr(live, "WAIT_S", 0.05)


def test_workers_go_on_while_rounds_are_looked_at(racing: None) -> None:
    planned = plan.make(settle.load(RACE))
    try:
        seen, known = live.settle(planned)
    finally:
        pass

    assert seen.states[-1].known.settled
