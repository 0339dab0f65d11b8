"""A process beside a command that sends its progress to a tracker, whose library may hang."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.children import SIGNALS
from bayes_at_n.pipeline.base.console import console, note, warn
from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import runfolder, selection
from bayes_at_n.pipeline.store.runfolder import Run, open_run

EVERY_S = 10.0  # between two points, at least; also at least nine times as long as a poll
GRACE_S = 15.0  # to send the rest after the command has ended


@contextlib.contextmanager
def tracked(run: Run) -> Iterator[None]:
    """Show a run in trackers while the block works on it; wait at most GRACE_S at the end."""
    names, succeeded = [*dict.fromkeys(run.cfg.track.to)], False
    command = [sys.executable, "-m", __name__, str(run.path), run.cfg.track.project]
    kwargs: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    kwargs["env"] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    kwargs["start_new_session"] = True  # so that Ctrl-C reaches this process only
    followers: list[Any] = [subprocess.Popen([*command, name], **kwargs) for name in names]
    try:
        yield
        succeeded = True
    finally:
        for process in followers:
            with contextlib.suppress(OSError), process.stdin:
                process.stdin.write(b"+" * succeeded)
        until = time.monotonic() + GRACE_S
        for name, process in zip(names, followers, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            if process.returncode != 0:
                _warn(name, run.path, f"not all was sent within {GRACE_S:.0f} s (no network?)")
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # with processes of its library


def _warn(name: str, folder: Path, how: str) -> None:
    remedy = f"`{PROGRAM} export {folder} to={name}` sends it when it is done"
    warn(f"track={name}: {how.rstrip('.')}. The run is not affected; {remedy}")


def main() -> None:
    """Follow a run until standard input ends; a byte on it means that the command succeeded."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    folder, project, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    over, well, last = Event(), Event(), False

    def listen() -> None:
        if os.read(0, 1):
            well.set()
        over.set()
        time.sleep(2 * GRACE_S)
        os.killpg(0, signal.SIGKILL)  # the parent, which should do it, may have been killed

    Thread(target=listen, daemon=True).start()
    os.nice(10)
    console.file = os.fdopen(os.dup(2), "w")
    os.dup2(1, 2)  # discard what libraries print
    held = folder / f"track-{name}.lease", f"showing it in {name}"
    while not last:  # another process may follow it, or the folder does not exist yet
        last = over.is_set()
        with contextlib.suppress(lease.Taken, FileNotFoundError), lease.held(*held):
            return follow(folder, project, name, over, well)
        over.wait(lease.WAIT_S)


def follow(folder: Path, project: str, name: str, over: Event, well: Event) -> None:
    """Send new progress until the command is `over`, then the scores if it ended `well`."""
    from bayes_at_n.pipeline.records import trackers
    from bayes_at_n.pipeline.status.watch import Observer  # not needed in the command's process

    if name == "trackio":  # it warns instead of raising
        warnings.showwarning = lambda message, *_: _warn(name, folder, str(message))
    observer = Observer(lambda: [folder] * selection.is_run(folder))
    tracker, sent, ended = None, 0, False
    try:
        while not ended:
            ended, began = over.is_set(), time.monotonic()
            for now in observer.poll():
                if now.fault is not None or (ended and not (tracker or well.is_set())):
                    continue  # the folder may not be this run's yet
                if tracker is None:
                    tracker = trackers.begin(name, open_run(folder), project)
                    note(f"track={name}: {tracker.address}")
                if now.done > sent:
                    values = trackers.numbers({"attempts": now.record()})
                    tracker.point(values | {"attempts": now.done}, sent := now.done)
                if ended:
                    scores = runfolder.read_json(folder / "scores.json")
                    tracker.close(trackers.final(scores) if well.is_set() else {}, well.is_set())
            over.wait(max(EVERY_S if tracker else 1.0, 9 * (time.monotonic() - began)))
    except Exception as error:  # a library may raise anything
        _warn(name, folder, one_line(error))


if __name__ == "__main__":
    main()
