"""The lease: never two holders, and none that outlives its holder."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers import Capsys, race

from bayes_at_n.pipeline.base import atomic, lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import ROOT

HOLDER = """
    import sys, time
    from pathlib import Path
    from bayes_at_n.pipeline.base import lease
    with lease.held(Path(sys.argv[1]), "generating"):
        print("held", flush=True)
        time.sleep(600)
    """


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "generate.lease"


def holder(path: Path) -> dict[str, object] | None:
    """Who holds the lease now, or None."""
    theirs = lease.read(path)
    return None if theirs is None or lease.expired(path) else lease.fields(theirs)


def forge(path: Path, **changed: Any) -> None:
    """A lease as some other process would have left it."""
    born = psutil.Process().create_time() - psutil.boot_time()
    fields = {"host": socket.gethostname(), "pid": os.getpid(), "born": born, "since": "then"}
    fields["where"] = atomic.host_id()
    path.write_text(json.dumps(fields | changed))


def test_what_was_left_by_a_process_killed_while_it_let_go_is_swept(path: Path) -> None:
    mine, theirs = (path.with_name(f"{path.name}.{digit * 16}") for digit in "ab")
    forge(theirs, born=1)  # of a process that has ended
    forge(mine)
    atomic.draft(path).touch()
    with lease.held(path, "generating"):
        assert not theirs.exists() and mine.exists()
    left = [entry.name for entry in path.parent.iterdir()]
    assert mine.name in left and len(left) == 2  # the draft is of this process, which lives


def test_the_second_is_refused_and_told_why(path: Path) -> None:
    with lease.held(path, "generating"):
        with (
            pytest.raises(UserError, match="is generating") as refused,
            lease.held(path, "generating"),
        ):
            raise AssertionError("held twice")
        message = str(refused.value)
        assert str(os.getpid()) in message and socket.gethostname() in message
        assert str(path) in message and "\n" not in message
        assert holder(path) is not None
    assert list(path.parent.iterdir()) == []


def test_the_second_may_wait(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    monkeypatch.setattr(lease, "WAIT_S", 0.02)
    let_go = threading.Event()

    def first() -> None:
        with lease.held(path, "grading"):
            let_go.wait()

    thread = threading.Thread(target=first)
    thread.start()
    while holder(path) is None:
        time.sleep(0.01)
    threading.Timer(0.3, let_go.set).start()
    with lease.held(path, "grading", wait=True):
        assert let_go.is_set()
    thread.join()
    assert "is grading (" in capsys.readouterr().err
    assert list(path.parent.iterdir()) == []


def test_a_killed_holder_is_followed_at_once(path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout and other.stdout.readline() == "held\n"
    with pytest.raises(UserError), lease.held(path, "generating"):
        pass
    os.kill(other.pid, signal.SIGKILL)
    while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert holder(path) is None
    with lease.held(path, "generating"):
        who = holder(path)
        assert who is not None and who["pid"] == os.getpid()
    other.communicate()
    assert list(path.parent.iterdir()) == []


def test_the_lease_of_another_host_expires_by_the_file_s_time(path: Path) -> None:
    forge(path, host="elsewhere", where="", pid=1)
    with pytest.raises(UserError, match="elsewhere"), lease.held(path, "generating"):
        pass
    recent = time.time() - lease.EXPIRE_S + 30
    os.utime(path, (recent, recent))
    assert holder(path) is not None
    past = time.time() - lease.EXPIRE_S - 5
    os.utime(path, (past, past))
    assert holder(path) is None
    with lease.held(path, "generating"):
        who = holder(path)
        assert who is not None and who["host"] == socket.gethostname()


@pytest.mark.parametrize("content", ["", "[]", '{"pid": "x", "born": "y"}'])
def test_a_damaged_lease_expires_too(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(UserError, match="delete"), lease.held(path, "generating"):
        pass
    os.utime(path, (0, 0))
    with lease.held(path, "generating"):
        pass
    assert list(path.parent.iterdir()) == []


def test_death_in_the_middle_of_a_takeover_blocks_nobody(path: Path) -> None:
    """Both the lease and the claim on it are of dead processes."""
    forge(path, pid=2**22 + 1)
    claim = lease._claim(path, path.read_text())
    forge(claim, pid=2**22 + 2)
    second = lease._claim(claim, claim.read_text())
    forge(second, pid=2**22 + 3)
    with lease.held(path, "generating"):
        who = holder(path)
        assert who is not None and who["pid"] == os.getpid()
    assert list(path.parent.iterdir()) == []


def test_many_racing_for_stale_leases_never_hold_it_together(tmp_path: Path) -> None:
    path, inside = tmp_path / "generate.lease", tmp_path / "inside"
    forge(path, pid=2**22 + 1)

    def racing(_: int) -> None:
        held = 0
        while held < 60:
            with contextlib.suppress(UserError), lease.held(path, "racing"):
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if another is inside
                held += 1
                time.sleep(0.0005)
                inside.unlink()
                if held % 4:  # as if killed here: the lease stays and its holder is no more
                    dead = path.with_name(f"dead-{os.getpid()}")
                    dead.write_text(path.read_text().replace('"pid": ', '"pid": 9000'))
                    dead.rename(path)

    race(racing)
