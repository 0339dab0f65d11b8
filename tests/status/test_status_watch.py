"""status of many runs, once and again and again: real folders, workers and terminals."""

import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest
from helpers import Capsys, make_run, run_of
from progressing import FIRST, SECOND, THIRD, row, session, writing

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.generate.attempts import AttemptWriter
from bayes_at_n.pipeline.status.progress import Progress
from bayes_at_n.pipeline.status.watch import Observer
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.claims import Heartbeat
from bayes_at_n.pipeline.workers.session import workers

COMMAND = [sys.executable, "-m", "pipeline", "status"]


def progress(*sources: Path) -> list[Progress]:
    return Observer(list(sources)).poll()


def folder_of_runs(root: Path) -> Path:
    run_of(root, "good", {"a": "11", "b": "10"})
    ungraded = run_of(root, "model-with-a-really-long-name", {"a": "+.", "b": ".."})
    session(ungraded, "dead", attempts=1, gpu_s=3600.0, gpus=1, ended=False, state="sampling")
    run_of(root, "good", {"z": "1"}, dataset="other")
    (root / "sums" / "broken").mkdir()
    (root / "sums" / "broken" / "config.yaml").write_text("nonsense: 1\n")
    unprepared = run_of(root, "unprepared", {"a": "."}).path
    (unprepared / "questions.parquet").unlink()
    (root / "sums" / "_compare").mkdir()
    return root


def test_a_folder_of_runs_as_text_and_json(tmp_path: Path, capsys: Capsys) -> None:
    root = folder_of_runs(tmp_path / "runs")
    assert main(["status", str(root)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", out[0])
    lines = {line.split()[0]: " ".join(line.split()) for line in out[1:] if line}
    long = lines["sums/model-with-a-really-long-name"]
    assert long == "sums/model-with-a-really-long-name 1/4 3 0+1 dead 5 – 1.0+3.0"
    assert lines["sums/good"].startswith("sums/good 4/4 ")
    assert lines["5"].startswith("5 runs 6/9 3 ")
    assert "nonsense" in lines["sums/broken:"] and "not prepared" in lines["sums/unprepared:"]

    assert main(["status", str(root), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_run = {Path(one["run"]).name: one for one in found if "other" not in one["run"]}
    long = by_run["model-with-a-really-long-name"]
    assert (long["done"], long["pending"], long["workers_dead"]) == (1, 3, 1)
    assert long["gpu_hours_left"] == 3.0 and long["score"] is None
    assert (by_run["good"]["score"]["value"], by_run["good"]["score"]["prior"]) == (0.75, "none")
    assert by_run["broken"]["fault"] and by_run["good"]["fault"] is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--every", "5"], "--every: needs --watch"),
        (["--watch", "--every", "nan"], "--every"),
        (["--watch"], "not a run folder"),
    ],
)
def test_refused(arguments: list[str], named: str, tmp_path: Path, capsys: Capsys) -> None:
    assert main(["status", str(tmp_path), *arguments]) == 2
    assert named in capsys.readouterr().err


class Terminal:
    """A command on a real terminal of so many columns and lines."""

    def __init__(self, arguments: list[str], columns: int = 80, lines: int = 40) -> None:
        self.output = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
            os.execve(sys.executable, [*COMMAND, *arguments], environment | {"TERM": "xterm"})

    def read(self, seconds: float = 0.2) -> bool:
        """Read for a while; False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.output += data
        return bool(data)

    def wait_for(self, what: str, seconds: float = 60) -> list[str]:
        """The screen once it shows a text."""
        until = time.monotonic() + seconds
        while what not in "\n".join(self.screen()):
            assert time.monotonic() < until, self.output.decode(errors="replace")
            assert self.read(), self.output.decode(errors="replace")
        return self.screen()

    def end(self, seconds: float = 60) -> int:
        until = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < until, "it does not end"
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def screen(self) -> list[str]:
        """What was drawn last, without colours."""
        last = self.output.decode(errors="replace").split("\x1b[2K")[-1]
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).replace("\r", "")
        return [line.rstrip() for line in plain.split("\n") if line.strip()]


def test_a_terminal_of_80_columns_until_the_run_is_done(tmp_path: Path) -> None:
    run = run_of(tmp_path, "model-with-a-really-long-name", {"question": "1+" + "." * 2398})
    run_of(tmp_path, "another", {"question": "11"})
    session(run, FIRST, host="gpu-node-0001", attempts=998, tokens_per_s=123456, in_flight=250,
            gpu_s=3.6e5, wall_s=900.0, updated=time.time(), ended=False, state="sampling",
            slurm={"job": "123456", "task": 78}, replica=7)  # fmt: skip
    with writing(run, FIRST) as writer:
        for trial in range(2, 1000):
            writer.append([row("question", trial)])
        terminal = Terminal([str(tmp_path), "--watch"])
        screen = terminal.wait_for("are not graded yet")
        assert max(map(len, screen)) <= 80
        text = " ".join(" ".join(screen).split())
        for figure in (
            "1000/2400", "1400", "250", "123k", "100.0+140.3", "1.000", "2 runs", "1002/2402",
            "intervals: 95%",
        ):  # fmt: skip
            assert figure in text, (figure, screen)
        assert "━" in text and "1002/2402, 42%" in text, screen  # the bar
        assert re.search(r"\b2[01] min \d\d s", text), screen  # 1400 at 998 in 900 s
        assert "model-with-a-really-long-" in text and " name " in text
        lone = Terminal([str(run.path), "--watch"])
        text = "\n".join(lone.wait_for("123456_78"))
        assert "gpu-node-0001 #7" in text and "sampling" in text
        assert max(map(len, text.splitlines())) <= 80
        for trial in range(1000, 2400):
            writer.append([row("question", trial, "3")])
    session(run, FIRST, host="gpu-node-0001", attempts=2400, ended=True, state="done")
    for one in (terminal, lone):
        assert one.end() == 0
        text = "\n".join(one.screen())
        assert "2400/2400" in text and "done" in text, text


def killed(run: Run, worker: str) -> None:
    """What kill -9 leaves of a worker of this host: its heartbeat, and no such process."""
    beat = Heartbeat(run.path, worker).__enter__()
    fields = json.loads(beat.path.read_text())
    beat.path.write_text(json.dumps(fields | {"pid": 2**22 + 1}))


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


def test_the_rate_is_that_of_live_workers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=100")
    now = time.time()
    for worker in (FIRST, SECOND, THIRD):
        session(run, worker, wall_s=1e5, updated=now, gpu_s=360.0, attempts=20, ended=False)
    with writing(run, FIRST) as one, writing(run, SECOND) as two:
        gone = AttemptWriter(run.attempts, THIRD)
        for trial in range(10):
            one.append([row("a", trial)])
            two.append([row("a", 20 + trial)])
            gone.append([row("a", 40 + trial)])
        [found] = progress(run.path)
        gone.close()
    assert found.done == 30 and found.attempts_per_s == pytest.approx(2 * 20 / 1e5)
    assert found.seconds_left == pytest.approx(70 / (2 * 20 / 1e5))
    assert (found.workers_alive, found.workers_dead) == (2, 1)
    assert found.gpu_hours == pytest.approx(0.3)
    assert found.gpu_hours_left == pytest.approx(70 * 0.3 / 60, abs=1e-4)
    assert not found.is_finished
