"""The table of runs, its remarks, and the map of one run: figures of real folders and workers."""

import json
import re
import time
from pathlib import Path

import pytest
from helpers import Capsys, make_run
from progressing import FIRST, SECOND, THIRD, row, session, writing

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.generate.writer import AttemptWriter
from bayes_at_n.pipeline.status.progress import Progress
from bayes_at_n.pipeline.status.watch import Observer
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat
from bayes_at_n.pipeline.workers.records import workers


def killed(run: Run, worker: str) -> None:
    """What kill -9 leaves of a worker of this host: its heartbeat, and no such process."""
    beat = Heartbeat(run.path, worker).__enter__()
    fields = json.loads(beat.path.read_text())
    beat.path.write_text(json.dumps(fields | {"pid": 2**22 + 1}))


def progress(*sources: Path) -> list[Progress]:
    return Observer(list(sources)).poll()


def printed(run: Run, capsys: Capsys) -> list[str]:
    assert main(["status", str(run.path)]) == 0
    out = capsys.readouterr().out.replace(f"{run.path.parent.name}/run", "run")
    return [" ".join(line.split()) for line in out.splitlines()]


def test_a_run_in_figures(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", {"q1": "10-~ut+.", "long-id": "1111(", "q3": ""})
    lines = printed(run, capsys)
    # q1: 1 of 6, the second 4 of 5, the third nothing of nothing.
    avg = (1 / 6 + 4 / 5) / 2  # two questions have no prior that could be estimated
    [found] = [line for line in lines if line.startswith("run 12/24 12 60 ")]
    assert f" {avg:.3f} 0.194 to 0.772 {avg:.3f}" in found
    assert "scores: 1 attempts are not graded yet" in lines


def test_complete_or_extended_and_nothing_is_written(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", {"q1": "1100", "q2": "1111", "q3": "0-~u"})
    session(run, "old", wall_s=3.0, gpu_s=7200, attempts=12, completion_tokens=60, ended=True)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}
    for more, figures in (([], "run 12/12 60 2.0+0.0 "), (["sampling.trials=6"], "run 12/18 6 ")):
        assert main(["status", str(run.path), *more]) == 0
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        [found] = [line.partition("/")[2] for line in lines if "/run 12/" in line]
        assert found.startswith(figures) and "alive" not in found
    assert "2.0+1.0" in found
    assert before == {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}


# Workers


def test_workers_alive_and_dead_are_listed(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", {"a": "11", "b": "1."}, "sampling.trials=20")
    killed(run, "w-killed")
    session(run, "w-killed", host="n1", attempts=7, state="sampling", ended=False, replica=3)
    session(run, "w-done", host="n2", attempts=3, state="done", ended=True)
    session(
        run, "w-lives", host="n3", attempts=1, state="sampling", ended=False, in_flight=9,
        tokens_per_s=1500.0, slurm={"job": "77", "task": 4}, updated=time.time() - 65,
    )  # fmt: skip
    with Heartbeat(run.path, "w-lives"), Heartbeat(run.path, "w-new"):
        found = {w.name: w for w in workers(run.path)}
        lines = printed(run, capsys)
    assert {name: (w.alive, w.state) for name, w in found.items()} == {
        "w-killed": (False, "dead"),
        "w-done": (False, "done"),
        "w-lives": (True, "sampling"),
        "w-new": (True, "loading"),  # it has written no record yet
    }
    assert found["w-lives"].task == "77_4" and found["w-lives"].tokens_per_s == 1500
    assert any(line.startswith("run 3/40 37 9 2+1 dead ") for line in lines)
    assert any(r.startswith("n3 job 77_4 sampling 1 9 1.5k ") for r in lines)
    assert any(re.fullmatch(r"n1 #3 dead 7 0 \d+ s ago", r) for r in lines)  # its heartbeat
    assert "n2 done 3 0 –" in lines
    assert [w.alive for w in workers(run.path)] == [False] * 3  # and both left as they should


def test_the_rate_is_that_of_live_workers_now(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=100")
    now = time.time()
    for worker in (FIRST, SECOND, THIRD):
        session(run, worker, wall_s=1e5, updated=now, gpu_s=360.0, attempts=20, ended=False)
    with writing(run, FIRST) as one, writing(run, SECOND) as two:
        gone = AttemptWriter(run.attempts, THIRD)
        for trial in range(10):
            one.append([row("a", trial, finished=now - 10 * trial)])
            two.append([row("a", 20 + trial, finished=now - 3e5)])  # days ago
            gone.append([row("a", 40 + trial)])
        [found] = progress(run.path)
        gone.close()
    assert found.done == 30 and found.attempts_per_s == pytest.approx(10 / 1800, rel=0.02)
    assert found.seconds_left == pytest.approx(70 / (10 / 1800), rel=0.02)
    assert (found.workers_alive, found.workers_dead) == (2, 1)
    assert found.gpu_hours == pytest.approx(0.3)
    assert found.gpu_hours_left == pytest.approx(70 * 0.3 / 60, abs=1e-4)
    assert not found.is_finished


# Several runs
