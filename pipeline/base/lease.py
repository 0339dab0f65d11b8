"""Leases on a piece of work in a shared folder: one holder at a time, and none for ever.

A lease is a file that appears with its content by a hard link, which fails if the name exists
and is atomic on NFS and Lustre too, where locks often are not. Its holder touches it every few
seconds; a holder that died on this host, or was silent for two minutes, has lost it. A lost lease
is not deleted and made anew, for a third process could slip in: whoever replaces or removes one
first takes a lease on exactly that, a file named after the content, and then renames over it.
"""

import hashlib
import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from bayes_at_n.pipeline.base import atomic, untrusted
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError

SUFFIX = ".lease"
RENEW_S = 10.0
EXPIRE_S = 120.0
WAIT_S = 2.0


class Taken(UserError):
    """Somebody else holds the lease."""


@contextmanager
def held(path: Path, work: str, wait: bool = False) -> Iterator[None]:
    """Hold the lease file `path`, in a folder that exists, while the block runs.

    `work` is what the holder does, for the message to whoever comes second; `wait` until the other
    holder is done. Raises Taken: somebody else holds it. OSError: it cannot be written.
    """
    own, message = token(), ""
    while (other := _acquire(path, own)) is not None:
        who = ", ".join(f"{key} {fields(other).get(key)}" for key in ("host", "pid", "since"))
        if not wait:
            remedy = "wait for it or stop it. If it is gone for good, delete it"
            raise Taken(f"{path}: another process is {work} here ({who}); {remedy}")
        if not message:
            note(message := f"{path}: another process is {work} here ({who}); waiting for it")
        time.sleep(WAIT_S)
    for claim in path.parent.glob(f"{path.name}.*"):  # of a process that was killed letting go
        if expired(claim):
            claim.unlink(missing_ok=True)
    atomic.sweep(path.parent)  # drafts of leases, too
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(RENEW_S):
            with suppress(OSError):
                if read(path) == own:
                    os.utime(path)

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stop.set()
        renewing.join()
        with suppress(OSError):
            if create(claim := _claim(path, own), own):  # else somebody is replacing it
                if read(path) == own:
                    path.unlink()
                claim.unlink()


def token(**more: object) -> str:
    """Return the content of a lease of this process: host, process, time, never the same twice."""
    own = {"host": socket.gethostname(), "where": atomic.where(), "pid": os.getpid()}
    own |= {"born": _born(psutil.Process()), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    return json.dumps({**more, **own, "nonce": secrets.token_hex(8)})


def _acquire(path: Path, own: str) -> str | None:
    """Make the lease; return the living holder's token where there is one."""
    while not create(path, own):
        other = read(path)
        if other is None:
            continue  # let go between our two looks
        if not expired(path):
            return other
        rival = _acquire(claim := _claim(path, other), own)
        if read(path) == other:  # which only the holder of the claim may change
            if rival is None:
                claim.rename(path)
            return rival
        if rival is None:
            claim.unlink(missing_ok=True)
    return None


def _claim(path: Path, token: str) -> Path:
    """Name the right to change a lease that holds this token."""
    return path.with_name(f"{path.name}.{hashlib.sha256(token.encode()).hexdigest()[:16]}")


def create(path: Path, text: str) -> bool:
    """Make a file that is complete from its first moment; False when the name is taken."""
    draft = atomic.draft(path)
    try:
        draft.write_text(text)
        return link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def link(draft: Path, path: Path) -> bool:
    """Make `path` a second name of the file `draft`; False when the name is taken by another."""
    try:
        os.link(draft, path)
        return True
    except FileExistsError:
        with suppress(FileNotFoundError):  # NFS repeats a lost request and then says that it exists
            return path.samefile(draft)
        return False


def read(path: Path) -> str | None:
    """Return what a lease holds, None without one; no text where a link or a pipe stands."""
    try:
        untrusted.check(path)
        return path.read_text(errors="replace")
    except UserError:
        return ""  # nobody's: it is replaced as one that expired
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return None


def fields(token: str) -> dict[str, Any]:
    """Parse a token; empty if it is damaged: then only the age of its file counts."""
    try:
        return dict(json.loads(token))
    except (ValueError, TypeError, RecursionError):
        return {}


def _ended(path: Path) -> bool | None:
    """Return whether the holder's process has ended; None: that cannot be known on this host."""
    holder = fields(read(path) or "")
    if holder.get("where") != atomic.where():
        return None
    try:
        process = psutil.Process(holder["pid"])
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return zombie or bool(abs(_born(process) - holder["born"]) > 2)
    except psutil.NoSuchProcess:
        return True
    except (psutil.AccessDenied, LookupError, TypeError, ValueError):
        return None


def _born(process: psutil.Process) -> float:
    """Return the seconds from the host's start to the process's: no change of the clock counts."""
    return float(process.create_time() - psutil.boot_time())


def silent(path: Path, now: float) -> bool:
    """Return whether a lease is absent or not renewed for `EXPIRE_S`; `now` as of `now_of`."""
    try:
        return now - path.stat().st_mtime > EXPIRE_S
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return True


def expired(path: Path, patience: float = 0.0) -> bool:
    """Return whether the holder has ended or, unless it may be suspended here, fell silent."""
    ended = _ended(path)
    return silent(path, now_of(path.parent) - patience) if ended is None else ended


def is_dead(path: Path, now: float) -> bool:
    """Return whether there is no holder, its process ended, or it fell silent."""
    return silent(path, now) or bool(_ended(path))


def living(folder: Path) -> set[str]:
    """Return the names of the leases in a folder whose holders live; it may be read-only."""
    leases = [*folder.glob(f"*{SUFFIX}")]
    # Asking for the time leaves a trace, so a folder without leases is only listed.
    now = now_of(folder) if leases else 0.0
    return {path.stem for path in leases if not is_dead(path, now)}


def now_of(folder: Path) -> float:
    """Return the file server's time, so that the clocks of two nodes are never compared."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".clock") as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return time.time()  # a folder that we may only read
