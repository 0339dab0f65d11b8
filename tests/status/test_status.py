"""status of one run, the workers it lists, and the summary in the manifest: real folders and files.

Workers are real heartbeats: of this process, and of one that is killed.
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run
from rich.console import Console

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.status import page
from bayes_at_n.pipeline.status.page import status
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat
from bayes_at_n.pipeline.workers.records import workers, write_summary

MARKS = {"q1": "1100", "q2": "1111", "q3": "0-~u"}
BEAT = """
import sys, time
from pathlib import Path
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat
with Heartbeat(Path(sys.argv[1]), sys.argv[2]):
    print("beating", flush=True)
    time.sleep(600)
"""


def session(run: Run, name: str, /, **told: Any) -> None:
    folder = run.path / "sessions"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"worker": name} | told))


def beating(run: Run, worker: str) -> Heartbeat:
    return Heartbeat(run.path, worker)


def killed(run: Run, worker: str) -> None:
    """A worker of this host that was killed while it lived."""
    command = [sys.executable, "-c", BEAT, str(run.path), worker]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "beating\n"
        assert [w.name for w in workers(run.path) if w.alive] == [worker]
        process.send_signal(signal.SIGKILL)


def everything(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {p: p.stat() for p in folder.rglob("*") if p.is_file()}
    return {p: (status.st_mtime_ns, status.st_size) for p, status in found.items()}


def printed(run: Run, capsys: pytest.CaptureFixture[str]) -> list[str]:
    status(run)
    return capsys.readouterr().out.splitlines()


def test_every_trial_is_a_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", {"q1": "10-~ut+.", "long-id": "1111(", "q3": ""})
    lines = printed(run, capsys)
    assert lines[1] == "q1      10-~??+.   1/7"
    assert lines[2] == "long-id 1111-...   4/5"
    assert lines[3] == "q3      ........   0/0"
    assert lines[4] == (
        "1 correct 5  0 wrong 1  - no_answer 2  ~ truncated 1  ? undecided 2"
        "  + generated, not graded 1  . owed 12"
    )
    assert lines[5].startswith("12/24 done, 12 owed, 60 tokens")
    # q1: 1 of 6, the second 4 of 5, the third nothing of nothing.
    mu, avg = (2 / 8 + 5 / 7 + 1 / 2) / 3, (1 / 6 + 4 / 5) / 2
    assert lines[6].startswith(f"score so far: avg {avg:.3f} (")
    assert f"), Bayes@N {mu:.3f} (" in lines[6] and lines[6].endswith(", of 11 attempts")


def test_what_is_wider_than_the_terminal_is_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", {"a": "1" * 90 + "0" * 29 + ".", "b": "-" * 120})
    out = io.StringIO()
    monkeypatch.setattr(page, "results", Console(file=out, force_terminal=True, width=60))
    status(run)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert "b   0/120: 120 no_answer" in lines
    at = lines.index("a  90/119: 90 correct, 29 wrong, 1 owed")
    assert [line.strip() for line in lines[at + 1 : at + 4]] == [
        "1" * 50,
        "1" * 40 + "0" * 10,
        "0" * 19 + ".",
    ]
    assert max(map(len, lines[1:])) <= 60


def test_complete_or_extended_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", MARKS)
    session(run, "old", wall_s=3.0, gpu_s=7200, attempts=12, completion_tokens=60, ended=True)
    before = everything(tmp_path)
    assert main(["status", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "12/12 done, " in out and "60 tokens" in out
    assert "2.0 GPU-hours used, about 0.0 left" in out
    assert main(["status", str(run.path), "sampling.trials=6"]) == 0
    out = capsys.readouterr().out
    assert "6 owed" in out and "alive" not in out
    assert "2.0 GPU-hours used, about 1.0 left" in out
    assert before == everything(tmp_path)


def test_workers_alive_and_dead_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", {"a": "11", "b": "1."}, "sampling.trials=20")
    killed(run, "w-killed")
    session(run, "w-killed", host="n1", attempts=7, state="sampling", ended=False, replica=3)
    session(run, "w-done", host="n2", attempts=3, state="done", ended=True)
    session(
        run, "w-lives", host="n3", attempts=1, state="sampling", ended=False, in_flight=9,
        tokens_per_s=1500.0, slurm={"job": "77", "task": 4}, updated=time.time() - 65,
    )  # fmt: skip
    with beating(run, "w-lives"), beating(run, "w-new"):
        found = {w.name: w for w in workers(run.path)}
        lines = printed(run, capsys)
    assert {name: (w.alive, w.state) for name, w in found.items()} == {
        "w-killed": (False, "dead"),
        "w-done": (False, "done"),
        "w-lives": (True, "sampling"),
        "w-new": (True, "loading"),  # it has written no record yet
    }
    assert found["w-lives"].task == "77_4" and found["w-lives"].tokens_per_s == 1500
    assert "37 owed, 9 in flight, workers 2 alive 1 dead" in "\n".join(lines)
    rows = [" ".join(line.split()) for line in lines]
    assert any(r.startswith("n3 job 77_4 sampling 1 9 1.5k ") for r in rows)
    assert any(re.fullmatch(r"n1 #3 dead 7 0 \d+ s ago", r) for r in rows)  # its heartbeat
    assert "n2 done 3 0 –" in rows
    assert [w.alive for w in workers(run.path)] == [False] * 3  # and both left as they should


def test_a_lone_live_worker_and_its_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", {"a": "1111"}, "sampling.trials=8")
    (run.attempts / "00000.parquet").rename(run.attempts / "w-00000.parquet")
    session(run, "w", state="sampling", ended=False, wall_s=100.0, updated=time.time())
    with beating(run, "w"):
        [line] = [x for x in printed(run, capsys) if "owed, " in x]
    assert "workers 1 alive" in line and "about 1 min 4" in line  # 4 in 100 s, 4 are left
    assert "workers 0 alive" in "\n".join(printed(run, capsys))


def test_a_fresh_record_without_a_heartbeat_is_of_a_dead_worker(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "1"})
    session(run, "w", ended=False, updated=time.time(), state="sampling")
    [worker] = workers(run.path)
    assert worker.state == "dead"


JUNK: list[Any] = [
    None,
    "x",
    [],
    {},
    -1,
    1e300,
    float("nan"),
    float("inf"),
    True,
    10**400,
    "\x1b[2J[/red]",
]
KEYS = [
    "worker", "gpus", "host", "pid", "replica", "slurm", "state", "wall_s", "gpu_s", "attempts",
    "completion_tokens", "tokens_per_s", "in_flight", "started", "updated", "ended", "hardware",
]  # fmt: skip


def test_a_torn_session_file_counts_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "1."})
    session(run, "sound", ended=True, attempts=2)
    (run.path / "sessions" / "torn.json").write_text("{")
    assert {w.name: w.attempts for w in workers(run.path)} == {"sound": 2, "torn": 0}


def test_the_score_so_far_is_what_grade_and_score_find(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "a": [r"\boxed{1/2}", r"\boxed{\frac{2}{4}}", r"\boxed{0.5}", r"\boxed{3}"],
        "b": ["no box", r"\boxed{5", r"\boxed{\sqrt{8}}", r"\boxed{2\sqrt{2}}"],
        "c": [r"\boxed{2}</think>", r"<think>\boxed{2}</think>\boxed{7}", r"\boxed{2}", ""],
    }
    gold = {"a": r"\frac{1}{2}", "b": r"2\sqrt{2}", "c": "2"}
    marks = {"a": "++++", "b": "++++", "c": "++~."}
    run = make_run(tmp_path / "run", marks, gold=gold, texts=texts)
    grade(run)
    score(run)
    scores = json.loads((run.path / "scores.json").read_text())["metrics"]
    shown = [
        f"{name} {of['value']:.3f} ({level}{of['low']:.3f} to {of['high']:.3f})"
        for name, level, of in (("avg", "95%: ", scores["avg"]), ("Bayes@N", "", scores["bayes"]))
    ]
    capsys.readouterr()
    [line] = [x for x in printed(run, capsys) if x.startswith("score so far")]
    assert line == f"score so far: {', '.join(shown)}, of 11 attempts"


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
        "preemptions": 0, "gpu_hours": 1.0, "engines": [{"engine": "vllm"}, {"engine": "hf"}],
    }  # fmt: skip
    times = [datetime.fromisoformat(text).timestamp() for text in (first, last)]
    assert times == [1795298001, 1795300000]
    write_summary(run)
    assert runfolder.read_manifest(run)["generated"]["attempts"] == 7


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", {"a": "+."})
    for folder in (tmp_path, run.path, run.attempts):
        folder.chmod(0o500)
    assert "of 1 attempts" in "\n".join(printed(run, capsys))
