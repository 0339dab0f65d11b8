"""What workers leave in a run folder, and the summary of it in the manifest."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from helpers import make_run

from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.session import workers, write_summary


def session(run: Run, name: str, /, **told: Any) -> None:
    folder = run.path / "sessions"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"worker": name} | told))


def test_a_fresh_record_without_a_heartbeat_is_of_a_dead_worker(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "1"})
    session(run, "w", ended=False, updated=time.time(), state="sampling")
    [worker] = workers(run.path)
    assert worker.state == "dead"


def test_the_summary_keeps_all_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "1."})
    before = runfolder.read_manifest(run)
    session(run, "1795298536000000-n1-1", wall_s=10, gpu_s=1800, attempts=3, completion_tokens=30,
            ended=True, state="done", updated=1795300000.0, engine={"engine": "hf"})  # fmt: skip
    session(run, "1795298000000000-n2-2", wall_s=20, gpu_s=1800, attempts=4, completion_tokens=40,
            state="sampling", started=1795298001.0, engine={"engine": "vllm"})  # fmt: skip
    session(run, "1795298900000000-n3-3", engine={"engine": "vllm"}, ended=True)
    session(run, "1795298900000001-n3-4", ended=True, state="failed")  # before it had an engine
    write_summary(run)
    found = runfolder.read_manifest(run)
    summary = found.pop("generated")
    assert found == before
    first, last = summary.pop("first"), summary.pop("last")
    assert summary == {
        "attempts": 7, "completion_tokens": 70, "workers": 4, "workers_killed": 1, "wall_s": 30.0,
        "gpu_hours": 1.0, "engines": [{"engine": "vllm"}, {"engine": "hf"}],
    }  # fmt: skip
    times = [datetime.fromisoformat(text).timestamp() for text in (first, last)]
    assert times == [1795298001, 1795300000]
    write_summary(run)
    assert runfolder.read_manifest(run)["generated"]["attempts"] == 7
