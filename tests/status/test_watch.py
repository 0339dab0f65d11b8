"""status of many runs, again and again: what is read when, real terminals, runs that go on."""

import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, add_attempts, make_run, run_of

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.cluster.jobs import UNKNOWN, Job
from bayes_at_n.pipeline.generate.writer import AttemptWriter
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.status import board
from bayes_at_n.pipeline.status.standing import RunStanding, of
from bayes_at_n.pipeline.status.tally import Tally
from bayes_at_n.pipeline.status.watch import Observer
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.outcomes import words
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat

COMMAND = [sys.executable, "-m", "pipeline", "status"]


def row(question: str, trial: int, answer: str = "2", **more: Any) -> dict[str, Any]:
    return {
        "question_id": question,
        "trial": trial,
        "seed": 1,
        "text": rf"\boxed{{{answer}}}",
        "finish_reason": "stop",
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "token_ids": np.arange(5, dtype=np.int32),
        "logprobs": np.zeros(5, dtype=np.float32),
        "started": 1.0,
        "first_token": 2.0,
        "finished": time.time(),
    } | more


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


def read(tally: Tally) -> list[str]:
    """Everything there is to know, as the outcomes of all trials."""
    tally.look()
    short = {"correct": "1", "wrong": "0", "no_answer": "-", "owed": "+"}
    marks = np.vectorize(short.get)(words(tally.outcomes)).astype(object)
    marks[~tally.done] = "."
    return ["".join(line) for line in marks.tolist()]


def standings(*sources: Path) -> list[RunStanding]:
    return Observer(list(sources)).look()


# What is read, and how often


def test_a_journal_is_followed_and_then_found_sealed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "", "b": ""}, "sampling.trials=3")
    tally = Tally(run)
    assert read(tally) == ["...", "..."]
    with writing(run, "w") as writer:
        for trial, answer in enumerate(("2", "3")):
            writer.put(row("a", trial, answer))
            writer.flush()
            assert read(tally)[0] == "++."[: trial + 1] + "." * (2 - trial)
        writer.put(row("b", 2, finish_reason="length"))
        writer.put(row("b", 7))  # more trials than the run has now
        writer.put(row("x", 0))  # no question of the run
        writer.flush()
        assert read(tally) == ["++.", "..+"]
        assert tally.finish_times("w").size == 3 and tally.tokens.sum() == 15
    assert not list(run.attempts.glob("*.journal"))
    assert read(tally) == ["++.", "..+"] and tally.done.sum() == 3


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "+1", "b": "0+"})
    with writing(run, "w") as writer:
        writer.put(row("a", 0))
        writer.flush()
        [growing] = run.attempts.glob("*.journal")
        tally = Tally(run)
        before = read(tally)
        spoilt = [*run.attempts.glob("*.parquet"), *run.grades.glob("*.parquet"), growing]
        kept = {path: (path.read_bytes(), path.stat()) for path in spoilt}
        for path, (content, status) in kept.items():
            path.write_bytes(bytes(len(content)))  # neither the size nor the time tells
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert read(tally) == before == ["+1", "0+"]
        for path, (content, _) in kept.items():
            path.write_bytes(content)


def test_a_torn_frame_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=2")
    with writing(run, "w") as writer:
        writer.put(row("a", 0))
        writer.flush()
        [path] = run.attempts.glob("*.journal")
        first = path.stat().st_size
        writer.put(row("a", 1))
        writer.flush()
        whole = path.read_bytes()
        copy = make_run(tmp_path / "copy", {"a": ""}, "sampling.trials=2")
        copy.attempts.mkdir()
        torn, tally = copy.attempts / path.name, Tally(copy)
        for size in (first - 1, first, first + 1, first + 20, len(whole) - 1):
            torn.write_bytes(whole[:size])
            assert read(tally) == [".." if size < first else "+."]
        torn.write_bytes(whole)
        assert read(tally) == ["++"]


@pytest.mark.parametrize("order", [("w1", "w2"), ("w2", "w1")])
def test_of_two_equal_attempts_the_first_counts(order: tuple[str, str], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=2")
    tally = Tally(run)
    for worker in order:
        with writing(run, worker) as writer:
            writer.put(row("a", 0, "2" if worker == "w1" else "3", completion_tokens=9))
            writer.flush()
            tally.look()  # as a journal
        read(tally)
    for one in (tally, Tally(run)):
        assert read(one) == ["+."] and one.tokens.sum() == 9
    assert tally.finish_times("w1").size == 1 and tally.finish_times("w2").size == 0


def test_attempts_and_grades_that_go_are_forgotten(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "10"}, texts={"a": [r"\boxed{2}"] * 2})
    add_attempts(run, {"a": "..1"}, part="00001")
    tally = Tally(run)
    assert read(tally) == ["10"] and tally.graded.all()
    for part in run.grades.glob("*.parquet"):
        part.unlink()
    assert read(tally) == ["++"] and not tally.graded.any()
    (run.attempts / "00000.parquet").rename(run.attempts / "_00000.parquet.damaged")
    assert read(tally) == [".."]


def test_a_damaged_part_costs_its_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "++"})
    add_attempts(run, {"b": "+"}, part="00001")
    part = run.attempts / "00000-ungraded.parquet"
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    assert read(Tally(run)) == [".."]


def test_grades_are_taken_from_the_table_once_it_has_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "++"}, texts={"a": [r"\boxed{2}", "none"]})
    tally = Tally(run)
    assert read(tally) == ["++"]
    grade(run)
    assert read(tally) == ["1-"] and tally.graded.all()


# Figures


def test_the_rate_is_that_of_live_workers_now(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=100")
    now = time.time()
    for worker in ("w1", "w2", "gone"):
        session(run, worker, wall_s=1e5, updated=now, gpu_s=360.0, attempts=20, ended=False)
    with writing(run, "w1") as one, writing(run, "w2") as two:
        gone = AttemptWriter(run.attempts, "gone")
        for trial in range(10):
            one.put(row("a", trial, finished=now - 10 * trial))
            two.put(row("a", 20 + trial, finished=now - 3e5))  # days ago
            gone.put(row("a", 40 + trial))
        for writer in (one, two, gone):
            writer.flush()
        tally = Tally(run)
        tally.look()
        found = of("run", tally, [])
        gone.close()
    assert found.done == 30 and found.rate == pytest.approx(10 / 1800, rel=0.02)
    assert found.left_s == pytest.approx(70 / (10 / 1800), rel=0.02)
    assert (len(found.alive), len(found.dead)) == (2, 1)
    assert found.gpu_h == pytest.approx(0.3)
    assert found.gpu_h_left == pytest.approx(70 * 0.3 / 60)
    assert not found.over


def test_a_worker_that_just_began_counts_from_its_beginning(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=10")
    now = time.time()
    session(run, "w", wall_s=50.0, updated=now, ended=False)
    with writing(run, "w") as writer:
        for trial in range(5):
            writer.put(row("a", trial, finished=now))
        writer.flush()
        [found] = standings(run.path)
    assert found.left_s == pytest.approx(50, rel=0.1)


def test_a_worker_keeps_its_shards_by_name(tmp_path: Path) -> None:
    """Names that begin alike are different workers."""
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=4")
    for worker, trial in (("w1", 0), ("w11", 1), ("w1-x", 2)):
        with writing(run, worker) as writer:
            writer.put(row("a", trial))
    tally = Tally(run)
    tally.look()
    assert {shards.stem(path) for path in shards.files(run.attempts)} == {
        "w1-00000", "w11-00000", "w1-x-00000",
    }  # fmt: skip
    assert tally.finish_times("w11").size == 1


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
    lines = dict(line.split(": ", 1) for line in out[1:])
    long = lines["model-with-a-really-long-name"]
    assert long.startswith("1/4 done, 3 owed, workers 0 alive 1 dead, 5 tokens")
    assert "1.0 GPU-hours used, about 3.0 left" in long
    assert lines["sums/good"].startswith("4/4 done, ") and "left" not in lines["sums/good"]
    assert lines["5 runs"].startswith("6/9 done, 3 owed")
    assert "nonsense" in lines["broken"] and "not prepared" in lines["unprepared"]

    assert main(["status", str(root), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_run = {Path(one["run"]).name: one for one in found if "other" not in one["run"]}
    long = by_run["model-with-a-really-long-name"]
    assert (long["done"], long["owed"], long["workers_dead"]) == (1, 3, 1)
    assert long["gpu_hours_left"] == 3.0 and long["score"] is None
    assert by_run["good"]["score"]["mu"] == pytest.approx((3 / 4 + 2 / 4) / 2)
    assert by_run["broken"]["fault"] and by_run["good"]["fault"] is None

    assert main(["status", str(root / "sums" / "good"), "--json"]) == 0
    [one] = map(json.loads, capsys.readouterr().out.splitlines())
    assert one["run"] == str(root / "sums" / "good")
    assert main(["status", str(root / "other"), str(root / "sums" / "good")]) == 0
    assert "2 runs: 5/5 done" in capsys.readouterr().out


def test_prices_of_runs_and_their_sum(tmp_path: Path, capsys: Capsys) -> None:
    paid = "engine.price_in=1000000"  # 1 a token; prompts have 3
    run_of(tmp_path, "m1", {"a": "1."}, paid, "engine.price_out=2000000")
    run_of(tmp_path, "m2", {"a": "11"}, paid)
    (tmp_path / "sums" / "broken").mkdir()
    (tmp_path / "sums" / "broken" / "config.yaml").write_text("nonsense: 1\n")
    assert main(["status", str(tmp_path)]) == 0
    told = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines()[1:])
    assert ", price 13.00 so far, about 26.00 in total," in told["m1"]
    assert ", price 6.00," in told["m2"]
    assert told["3 runs"].endswith(", price 19.00 so far, about 32.00 in total")
    found = standings(tmp_path)
    assert "price 19.00 so far, about 32.00 in total" in text_of(found, 80, None)
    assert main(["status", str(tmp_path / "sums" / "m1"), "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["price"], one["price_total"]) == (13, 26)
    run_of(tmp_path, "m3", {"a": "1"})
    found = standings(tmp_path)
    assert not any(line.startswith("price") for line in text_of(found, 80, None))  # of m3 unknown


def test_runs_appear_extend_and_go_while_they_are_watched(tmp_path: Path) -> None:
    run_of(tmp_path, "m1", {"a": "1"})
    observer = Observer([tmp_path])
    assert [s.total for s in observer.look()] == [1]
    second = run_of(tmp_path, "m2", {"a": "11", "b": "1."})
    assert [(s.name, s.done, s.total) for s in observer.look()] == [("m1", 1, 1), ("m2", 3, 4)]
    make_run(second.path, {"a": "", "b": ""}, "sampling.trials=5")
    assert [(s.done, s.total) for s in observer.look()] == [(1, 1), (3, 10)]
    shutil.rmtree(tmp_path / "sums" / "m1")
    assert [s.name for s in observer.look()] == ["sums/m2"]
    (second.path / "config.yaml").write_text("")
    [broken] = observer.look()
    assert broken.fault is not None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--every", "5"], "--every: is for --watch"),
        (["--watch", "--every", "nan"], "--every"),
        (["--watch"], "no run folder"),
    ],
)
def test_refused(arguments: list[str], named: str, tmp_path: Path, capsys: Capsys) -> None:
    assert main(["status", str(tmp_path), *arguments]) == 2
    assert named in capsys.readouterr().err


# What people see


def test_slurm_jobs_are_counted_once() -> None:
    shared = [Job("generate", f"7_{i}", "RUNNING", "n1", "1:00", "") for i in range(2)]
    waits = Job("grade", "8", "PENDING", "", "0:00", "Dependency")
    found = [RunStanding("a", "a", jobs=shared), RunStanding("b", "b", jobs=[*shared, waits])]
    assert board.lines(found)[-1] == "Slurm: 2 running, 1 pending"
    lost = Job("", "", UNKNOWN, "", "", "squeue did not answer within 15 s")
    assert board.lines([*found, RunStanding("c", "c", jobs=[lost])])[-1] == f"Slurm: {lost.reason}"


def text_of(found: list[RunStanding], width: int, height: int | None) -> list[str]:
    from rich.console import Console

    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(board.table(found, width, height))
    return capture.get().splitlines()


def test_a_low_terminal_counts_what_it_cannot_show(tmp_path: Path) -> None:
    found = [RunStanding(f"m{i:02d}", "x", done=4, total=4) for i in range(60)]
    found[50] = RunStanding("owes", "x", done=1, total=4)
    found[55] = RunStanding("bad", "x", fault="a fault " * 100)
    for width, height in ((80, 24), (80, 12), (130, 24)):
        lines = text_of(found, width, height)
        text = "\n".join(lines)
        assert len(lines) <= height and max(map(len, lines)) <= width
        assert "owes" in text and "60 runs" in text and "bad: a fault" in text
        hidden = int(re.search(r"and .*?(\d+) done", text)[1])  # type: ignore[index]
        assert hidden + text.count("4/4") + text.count("owes") + text.count("bad ") >= 58


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
    session(run, "w", host="gpu-node-0001", attempts=998, tokens_per_s=123456, in_flight=250,
            gpu_s=3.6e5, wall_s=900.0, updated=time.time(), ended=False, state="sampling",
            slurm={"job": "123456", "task": 78}, replica=7)  # fmt: skip
    with writing(run, "w") as writer:
        for trial in range(2, 1000):
            writer.put(row("question", trial))
        writer.flush()
        terminal = Terminal([str(tmp_path), "--watch"])
        screen = terminal.wait_for("are not graded yet")
        assert max(map(len, screen)) <= 80
        text = " ".join(" ".join(screen).split())
        for figure in (
            "1000/2400", "1400", "250", "123k", "100.0+140.3", "1.000", "2 runs", "1002/2402",
            "95 % interval",
        ):  # fmt: skip
            assert figure in text, (figure, screen)
        assert "━" in text and "1002/2402, 42%" in text, screen  # the bar
        assert re.search(r"\b2[01] min \d\d s", text), screen  # 1400 at 998 in 900 s
        assert "model-with-a-really" in text and "-long-name" in text
        lone = Terminal([str(run.path), "--watch"])
        text = "\n".join(lone.wait_for("123456_78"))
        assert (
            "gpu-node-0001 #7 job" in text
            and "sampling" in text
            and max(map(len, text.split("\n"))) <= 80
        )
        for trial in range(1000, 2400):
            writer.put(row("question", trial, "3"))
    session(run, "w", host="gpu-node-0001", attempts=2400, ended=True, state="done")
    for one in (terminal, lone):
        assert one.end() == 0
        text = "\n".join(one.screen())
        assert "2400/2400" in text and "done" in text, text


def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "+++", "b": "1."})
    terminal = Terminal([str(run.path), "--watch"])
    terminal.wait_for("are not graded yet")
    os.write(terminal.fd, b"\x03")
    began = time.monotonic()
    assert terminal.end() == 0
    assert time.monotonic() - began < 60
    said = terminal.output.decode(errors="replace")
    assert "Traceback" not in said and "error" not in said and said.rstrip().endswith("\x1b[?25h")


def test_without_a_terminal_blocks_of_lines_until_it_is_done(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "1."})
    name = f"{tmp_path.name}/run"
    command = [*COMMAND, str(run.path), "--watch", "--every", "0.5"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with Heartbeat(run.path, "w"):
            seen = [process.stdout.readline() for _ in range(6)]
            add_attempts(run, {"a": ".1"}, part="00001")
            while "2/2 done" not in seen[-1]:
                seen.append(process.stdout.readline())
            seen += [process.stdout.readline() for _ in range(4)]
            assert process.poll() is None  # nothing is owed, and somebody is alive
        rest = process.stdout.read()
        assert process.wait(30) == 0
    assert sum(f"{name}: 1/2 done, 1 owed" in line for line in seen) >= 2
    assert any(line.startswith(f"{name}: 2/2 done, ") for line in rest.splitlines()[-2:])
    assert "\x1b" not in "".join(seen)


def test_json_again_and_again(tmp_path: Path) -> None:
    run_of(tmp_path, "m1", {"a": "1."})
    run_of(tmp_path, "m2", {"a": "1"})
    command = [*COMMAND, str(tmp_path), "--watch", "--every", "0.5", "--json"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        found: list[Mapping[str, Any]] = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    assert [(Path(one["run"]).name, one["owed"]) for one in found] == [("m1", 1), ("m2", 0)] * 2
