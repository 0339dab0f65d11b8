"""Run programs on their tests, each pair once, so many at a time that they fill the cores."""

import contextlib
import functools
import json
import marshal
import os
import socket
import subprocess
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bayes_at_n.verifiers.code import sandbox
from bayes_at_n.verifiers.code.programs import LANGUAGES
from bayes_at_n.verifiers.maths.conventions import Grade, Outcome

Pair = tuple[str, str]
WALL = 10  # seconds of the clock for one of processor time, as in `grading`
_TRIES = 3  # starts of a sandbox
_ANSWER_S = 5  # for tests to notice that their program has ended
_WORDS: dict[str, tuple[Outcome, str]] = {  # outcome and layer
    "passed": ("correct", "tests"),
    "wrong": ("wrong", "tests"),
    "raised": ("wrong", "exception"),
    "cpu": ("timeout", "time"),
    "memory": ("timeout", "memory"),
    "gone": ("wrong", "exit"),
    "broken": ("error", "limits"),
}


def grade(
    pairs: Iterable[Pair],
    *,
    box: str,
    image: str | None = None,
    workers: int | None,
    timeout_s: float,
    memory_mb: int,
) -> dict[Pair, Grade]:
    """Grade pairs of packed tests (`programs.pack`) and programs.

    Args:
        pairs: distinct ones.
        box: what shuts programs in (`sandbox.opened`).
        image: of a container.
        workers: programs at a time; default: two a CPU.
        timeout_s: processor seconds of a program, or of each of its runs.
        memory_mb: address space of each of its processes, in MiB.

    Raises RuntimeError: sandboxes do not start; then no pair is graded.
    """
    todo, stop = [*pairs], threading.Event()
    languages = {_read(gold)[2] for gold, _ in todo}
    if len(languages) > 1:  # each has a sandbox of its own
        raise RuntimeError(f"grade programs of one language at a time, not {sorted(languages)}")
    at_once = workers or 2 * (os.cpu_count() or 1)  # the kernel takes its time over each sandbox
    pool = ThreadPoolExecutor(max(1, min(at_once, len(todo))))
    local, judges = threading.local(), list[_Judge]()
    limits = max(1, round(timeout_s)), memory_mb << 20

    with sandbox.opened(box, image, *languages) as command:

        def one(pair: Pair) -> Grade:
            if not hasattr(local, "judge"):
                local.judge = _Judge(box, command, *limits, stop)
                judges.append(local.judge)
            grade: Grade = local.judge.grade(*pair)
            return grade

        try:
            return dict(zip(todo, pool.map(one, todo), strict=True))
        finally:
            stop.set()
            for judge in [*judges]:  # on Ctrl-C nothing outlives the call
                judge.end()
            pool.shutdown(cancel_futures=True)
            for judge in judges:
                judge.end()


class _Judge:
    """A process that judges one program after another, and the sandbox of the present one."""

    def __init__(
        self, box: str, command: list[str], cpu_s: int, memory: int, stop: threading.Event
    ) -> None:
        self.box, self.command, self.stop = box, command, stop
        self.most = sandbox.PROCESSES * (box != "none")  # else all the user's count
        self.limits = cpu_s, memory, self.most
        self.processes = list[subprocess.Popen[bytes]]()
        self.judge: Any = None  # its process, and the socket to it

    def grade(self, gold: str, program: str) -> Grade:
        """Grade a program. Raises RuntimeError: its sandbox does not start."""
        for _ in range(_TRIES):
            word, reason = self._once(gold, program)
            if word in _WORDS:
                outcome, layer = _WORDS[word]
                grader = "code" if self.box == "bubblewrap" else f"code, sandbox={self.box}"
                return Grade(outcome, layer, reason, grader)
        raise RuntimeError(f"grading.sandbox={self.box}: a sandbox did not start: {reason[:300]}")

    def _once(self, gold: str, program: str) -> tuple[str, str]:
        """Return the word of `judge`, or one that says that a sandbox failed, and the reason."""
        if self.stop.is_set():
            return "stopped", "interrupted"
        before, runs, name = _read(gold)
        language, limits = LANGUAGES.get(name), self.limits
        how: tuple[str, list[str], list[str]] = ("", [], [])
        if language:
            limits = (*self.limits[:2], 4 * self.most)  # virtual machines have threads of their own
            how = language.file, language.build.split(), language.run.split()
        most = WALL * self.limits[0] * max(1, runs or 0)
        child, ours = self._start("inside.py")
        try:
            with ours:  # the judge has its own copy
                judge = self._ask(ours.fileno(), gold)
                job = marshal.dumps((limits, before, program, runs is not None, how), 2)
                with contextlib.suppress(OSError):  # the judge says so
                    ours.sendall(len(job).to_bytes(8, "big") + job)
            word, reason = _reply(judge, most)
            if word == "nostart" and child.stderr:
                child.kill()
                reason = child.stderr.read(1000).decode(errors="replace")
            status = child.poll() if word != "late" else None
            if word == "gone":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = child.wait(1)
        finally:
            sandbox.kill(child)
            self.processes.remove(child)
        if word == "late":
            word, reason = "cpu", f"{most} s of the clock"
            if _reply(judge, _ANSWER_S)[0] == "late":
                self.end()
        if word == "lost":
            self.end()
        return _ended(status, reason) if word == "gone" else (word, reason)

    def _start(self, script: str) -> tuple["subprocess.Popen[bytes]", socket.socket]:
        process, ours = sandbox.start(self.command, script)
        self.processes.append(process)
        return process, ours

    def _ask(self, fd: int, gold: str) -> socket.socket:
        """Send a job to the judge, which is started first if there is none."""
        if self.judge is None or self.judge[0].poll() is not None:
            self.judge = self._start("judge.py")
        connection: socket.socket = self.judge[1]
        job = marshal.dumps((self.limits, gold), 2)
        socket.send_fds(connection, [len(job).to_bytes(8, "big")], [fd])
        connection.sendall(job)
        return connection

    def end(self) -> None:
        """End what runs; a later program gets a new judge."""
        for process in [*self.processes]:
            with contextlib.suppress(ValueError):
                sandbox.kill(process)
        if self.judge is not None:
            self.judge[1].close()
            self.processes.remove(self.judge[0])
            self.judge = None


@functools.lru_cache(maxsize=64)
def _read(gold: str) -> tuple[str, int | None, str]:
    """Return what stands before a program, the number of runs if tests are such, and the language.

    Tests may be megabytes, and many programs have the same.
    """
    tests = json.loads(gold)
    runs = len(tests["runs"]) if "runs" in tests else None
    return tests["before"], runs, tests.get("language", "python")


def _reply(judge: socket.socket, timeout_s: float) -> tuple[str, str]:
    """Return the word and reason of a judge; "late" or "lost" where there are none."""
    judge.settimeout(timeout_s)
    data = b""
    try:
        while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "big"):
            if not (more := judge.recv(1 << 16)):
                return "lost", "the process of the tests ended"
            data += more
    except TimeoutError:
        return "late", ""
    except OSError as error:
        return "lost", str(error)
    word, reason = json.loads(data[8:])
    return word, reason


def _ended(status: int | None, reason: str) -> tuple[str, str]:
    """Return the word and reason for a program that ended before its tests."""
    signal = -status if status is not None and status < 0 else (status or 0) - 128
    if signal in (24, 9):
        return "cpu", f"out of processor time ({reason})"
    if signal > 0:
        return "gone", f"the program was ended by signal {signal} ({reason})"
    return "gone", f"the program ended, or sent what cannot be read ({reason})"
