"""Leases on work in a shared folder: one holder at a time, and none forever.

A lease is a file that appears with its content by a hard link, which fails if the name exists, and
is atomic even on NFS and Lustre, where locks often are not. Its holder touches it every few
seconds; a holder that died on this host, or was silent for two minutes, has lost it. An expired
lease is not deleted and created again, since a third process could interfere: to replace or remove
one, a process first takes a lease on just that, a file named after the content, then renames it.
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
    """Another process holds the lease."""


@contextmanager
def held(path: Path, work: str, wait: bool = False) -> Iterator[None]:
    """Hold the lease file `path`, in an existing folder, within the block.

    `work`: what the holder does, for the message to others. `wait`: for another holder, instead of
    raising Taken. Raises OSError: it cannot be written.
    """
    own, message = token(), ""
    while (other := _acquire(path, own)) is not None:
        holder = ", ".join(f"{key} {fields(other).get(key)}" for key in ("host", "pid", "since"))
        if not wait:
            remedy = "wait for it or stop it; if it no longer exists, delete this file"
            raise Taken(f"{path}: another process is {work} ({holder}); {remedy}")
        if not message:
            note(message := f"{path}: another process is {work} ({holder}); waiting for it")
        time.sleep(WAIT_S)
    for claim in path.parent.glob(f"{path.name}.*"):  # of processes killed while releasing it
        if expired(claim):
            claim.unlink(missing_ok=True)
    atomic.sweep(path.parent)  # removes drafts of leases, too
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
            if create(claim := _claim(path, own), own):  # otherwise a process is replacing it
                if read(path) == own:
                    path.unlink()
                claim.unlink()


def token(**more: object) -> str:
    """Return unique content for a lease of this process: host, process and time."""
    own = {"host": socket.gethostname(), "where": atomic.host_id(), "pid": os.getpid()}
    own |= {"born": _born(psutil.Process()), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    return json.dumps({**more, **own, "nonce": secrets.token_hex(8)})


def _acquire(path: Path, own: str) -> str | None:
    """Create the lease; return the token of a living holder if there is one, else None."""
    while not create(path, own):
        other = read(path)
        if other is None:
            continue  # released in the meantime
        if not expired(path):
            return other
        rival = _acquire(claim := _claim(path, other), own)
        if read(path) == other:  # only the holder of the claim may change that
            if rival is None:
                claim.rename(path)
            return rival
        if rival is None:
            claim.unlink(missing_ok=True)
    return None


def _claim(path: Path, token: str) -> Path:
    """Return the path of the lease on changing the lease that has this token."""
    return path.with_name(f"{path.name}.{hashlib.sha256(token.encode()).hexdigest()[:16]}")


def create(path: Path, text: str) -> bool:
    """Create a file atomically with its content; return False if the name exists."""
    draft = atomic.draft(path)
    try:
        draft.write_text(text)
        os.link(draft, path)
        return True
    except FileExistsError:
        with suppress(FileNotFoundError):  # NFS may repeat a request that had succeeded
            return path.samefile(draft)
        return False
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path) -> str | None:
    """Return the content of a lease; None if there is none, empty if it is no regular file."""
    try:
        untrusted.check(path)
        return path.read_text(errors="replace")
    except UserError:
        return ""  # replaced like an expired lease
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return None


def fields(token: str) -> dict[str, Any]:
    """Parse a token; empty if it is damaged, when only the age of its file counts."""
    try:
        return dict(json.loads(token))
    except (ValueError, TypeError, RecursionError):
        return {}


def _ended(path: Path) -> bool | None:
    """Return whether the holder's process has ended; None: not known on this host."""
    holder = fields(read(path) or "")
    if holder.get("where") != atomic.host_id():
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
    """Return the seconds from the host's start to the process's, which clock changes keep."""
    return float(process.create_time() - psutil.boot_time())


def silent(path: Path, now: float) -> bool:
    """Return whether a lease is missing or was not renewed for `EXPIRE_S`; `now`: see `now_of`."""
    try:
        return now - path.stat().st_mtime > EXPIRE_S
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return True


def expired(path: Path, patience: float = 0.0) -> bool:
    """Return whether the holder has ended or, if it is on another host, is silent."""
    ended = _ended(path)
    return silent(path, now_of(path.parent) - patience) if ended is None else ended


def is_dead(path: Path, now: float) -> bool:
    """Return whether there is no holder, its process has ended, or it is silent."""
    return silent(path, now) or bool(_ended(path))


def living(folder: Path) -> set[str]:
    """Return the names of leases in a folder whose holders live; the folder may be read-only."""
    leases = [*folder.glob(f"*{SUFFIX}")]
    # `now_of` writes to the folder, so that is avoided without leases.
    now = now_of(folder) if leases else 0.0
    return {path.stem for path in leases if not is_dead(path, now)}


def now_of(folder: Path) -> float:
    """Return the file server's time in Unix seconds, so that hosts' clocks are never compared."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".clock") as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return time.time()  # a read-only folder
