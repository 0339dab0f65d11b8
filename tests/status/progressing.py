"""Workers that write attempts and say what they did, for tests of status."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from helpers import attempt_row

from bayes_at_n.pipeline.generate.attempts import AttemptWriter
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.claims import Heartbeat

FIRST, SECOND, THIRD = (f"{1795298536000000 + i}-n{i}-{11 + i}" for i in range(3))  # workers


def row(question: str, trial: int, answer: str = "2", **more: Any) -> dict[str, Any]:
    own = {"question_id": question, "text": rf"\boxed{{{answer}}}", "finished": time.time()}
    return attempt_row(trial, tokens=5) | own | more


@contextmanager
def writing(run: Run, worker: str) -> Iterator[AttemptWriter]:
    """A worker that is alive and writes."""
    with Heartbeat(run.path, worker):
        writer = AttemptWriter(run.attempts, worker)
        try:
            yield writer
        finally:
            writer.close()


def session(run: Run, name: str, /, **told: Any) -> None:
    (run.path / "sessions").mkdir(exist_ok=True)
    (run.path / "sessions" / f"{name}.json").write_text(json.dumps({"worker": name} | told))
