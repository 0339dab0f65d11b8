"""A lease on a piece of work in a shared folder: one holder at a time, and none for ever.

The lease is a file that appears with its content by a hard link, which fails if the name exists
and is atomic on NFS and Lustre too, where locks often are not. Its holder touches it every few
seconds; a holder that died on this host, or was silent for two minutes, has lost it.

A lease that was lost is never deleted and made anew: between the two steps a third process could
slip in. Whoever wants to replace or remove a lease first takes a lease on exactly that, a file
named after the content it replaces, and then renames over it.
"""

import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bayes_at_n.pipeline.base import atomic, foreign
from bayes_at_n.pipeline.base.atomic import GONE
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
    """Hold the lease file `path` while the block runs.

    `work` is what the holder does, for the message to whoever comes second; `wait` until the other
    holder is done, or its file stays as it is for `EXPIRE_S` (its time may lie in the future). The
    folder of the file exists. Raises Taken: somebody else holds it. OSError: it cannot be written.
    """
    own, seen, since, lost = token(), ("", 0), 0.0, None
    while (other := _acquire(path, own, lost)) is not None:
        holder = fields(other)
        message = (
            f"{path}: another process is {work} here (host {holder.get('host')}, pid"
            f" {holder.get('pid')}, since {holder.get('since')})"
        )
        if not wait:
            raise Taken(f"{message}; wait for it or stop it. If it is gone for good, delete it")
        if not since:
            note(f"{message}; waiting for it")
        with suppress(OSError):  # it may have been let go just now
            if (now := (other, path.stat().st_mtime_ns)) != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > EXPIRE_S and gone(other) is None:
                lost = other
        time.sleep(WAIT_S)
    atomic.sweep(path.parent)
    for claim in path.parent.glob(f"{path.name}.*"):  # of a process that was killed letting go
        if (left := read(claim)) is not None and expired(claim, left):
            claim.unlink(missing_ok=True)
    stop = threading.Event()
    renewing = threading.Thread(target=_renew, args=(path, own, stop), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stop.set()
        renewing.join()
        _release(path, own)


def token(**more: object) -> str:
    """What a lease of this process says: host, process and since when, never the same twice."""
    return json.dumps(
        more
        | {
            "host": socket.gethostname(),
            "where": atomic.where(),
            "pid": os.getpid(),
            "born": _born(psutil.Process()),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "nonce": secrets.token_hex(8),
        }
    )


def _acquire(path: Path, own: str, lost: str | None = None) -> str | None:
    """Make the lease; returns the live holder's token where there is one, which is not `lost`."""
    while not create(path, own):
        other = read(path)
        if other is None:
            continue  # let go between our two looks
        if other != lost and not expired(path, other):
            return other
        claim = _claim(path, other)
        if (rival := _acquire(claim, own, lost)) is not None:
            if read(path) == other:
                return rival  # about to replace the lost lease
            continue
        if read(path) == other:  # only the holder of this claim may change that
            claim.rename(path)
            return None
        claim.unlink(missing_ok=True)
    return None


def _release(path: Path, own: str) -> None:
    """Remove the lease if it is still this holder's; whoever is replacing it may go on."""
    claim = _claim(path, own)
    with suppress(OSError):
        if create(claim, own):
            if read(path) == own:
                path.unlink()
            claim.unlink()


def _claim(path: Path, token: str) -> Path:
    """The name of the right to change a lease that holds this token."""
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
    except FileExistsError:
        try:
            return path.samefile(draft)  # NFS repeats a lost request and then says that it exists
        except FileNotFoundError:
            return False
    return True


def read(path: Path) -> str | None:
    """What a lease holds, or None where there is none; no text where a link or a pipe is none."""
    try:
        foreign.check(path)
        return path.read_text(errors="replace")
    except OSError as error:
        if error.errno not in GONE:
            raise
        return None
    except UserError:
        return ""  # nobody's: it is replaced as one that expired


def fields(token: str) -> dict[str, object]:
    """What a lease says; nothing if it is damaged: then only its age tells."""
    try:
        values = json.loads(token)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def gone(token: str) -> bool | None:
    """Whether the process of a token has ended; None when that cannot be known on this host."""
    holder = fields(token)
    pid, born = holder.get("pid"), holder.get("born")
    here = holder.get("host") == socket.gethostname() and holder.get("where") == atomic.where()
    if not here or not isinstance(pid, int) or not isinstance(born, int | float):
        return None
    try:
        process = psutil.Process(pid)
        dead = process.status() == psutil.STATUS_ZOMBIE
        return dead or abs(_born(process) - born) > 2
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return True
    except psutil.AccessDenied:
        return None


def silent(path: Path, now: float) -> bool:
    """Whether a lease was not renewed for `EXPIRE_S`, or is not there; `now` as of `now_of`."""
    try:
        return now - path.stat().st_mtime > EXPIRE_S
    except OSError as error:
        if error.errno not in GONE:
            raise
        return True


def expired(path: Path, token: str, patience: float = 0.0) -> bool:
    """Whether the holder that a lease names has ended, or was silent for so many seconds more."""
    ended = gone(token)  # of a process here the time says nothing: it may have been suspended
    return silent(path, now_of(path.parent) - patience) if ended is None else ended


def is_dead(path: Path, now: float) -> bool:
    """Whether the holder of a lease is: its process ended, or it fell silent; none is dead, too."""
    token = read(path)
    return token is None or bool(gone(token)) or silent(path, now)


def living(folder: Path) -> set[str]:
    """Return the names of the leases in a folder whose holders live; it may be read-only."""
    paths = list(folder.glob(f"*{SUFFIX}"))
    now = now_of(folder) if paths else 0.0
    return {path.name.removesuffix(SUFFIX) for path in paths if not is_dead(path, now)}


def _born(process: psutil.Process) -> float:
    """Seconds from the host's start to the process's: no change of the clock moves that."""
    return float(process.create_time() - psutil.boot_time())


def now_of(folder: Path) -> float:
    """The file server's clock, so that the clocks of two nodes are never compared."""
    probe = atomic.draft(folder / "clock")
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return time.time()  # a folder that we may only read
    return now


def _renew(path: Path, token: str, stop: threading.Event) -> None:
    while not stop.wait(RENEW_S):
        with suppress(OSError):
            if read(path) == token:
                os.utime(path)
