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

from pipeline.errors import UserError

RENEW_S = 10.0
EXPIRE_S = 120.0


@contextmanager
def held(path: Path, work: str) -> Iterator[None]:
    """Hold the lease file `path` while the block runs.

    Args:
        path: the lease file; its folder exists.
        work: what the holder does, for the message to whoever comes second.

    Raises:
        UserError: when somebody else holds it.
        OSError: when the folder cannot be written.
    """
    token = _token()
    with _draft(path, token) as draft:
        other = _acquire(path, draft)
    if other is not None:
        who = _fields(other)
        raise UserError(
            f"{path.parent}: another process is {work} here (host {who.get('host')}, pid"
            f" {who.get('pid')}, since {who.get('since')}); wait for it or stop it."
            f" If it is gone for good, delete {path}"
        )
    stop = threading.Event()
    renewing = threading.Thread(target=_renew, args=(path, token, stop), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stop.set()
        renewing.join()
        _release(path, token)


def holder(path: Path) -> dict[str, object] | None:
    """Who holds the lease now, or None."""
    found = _read(path)
    return None if found is None or _expired(path, found) else _fields(found)


def _token() -> str:
    return json.dumps(
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "born": _born(psutil.Process()),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "nonce": secrets.token_hex(8),
        }
    )


@contextmanager
def _draft(path: Path, token: str) -> Iterator[Path]:
    """The token in a file of its own, to be linked: a lease is never seen half-written."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        draft.write_text(token)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _acquire(path: Path, draft: Path) -> str | None:
    """Make `path` a link of `draft`; returns the live holder's token where there is one."""
    while not _link(draft, path):
        found = _read(path)
        if found is None:
            continue  # let go between our two looks
        if not _expired(path, found):
            return found
        claim = _claim(path, found)
        if (other := _acquire(claim, draft)) is not None:
            if _read(path) == found:
                return other  # about to replace the lost lease
            continue
        if _read(path) == found:  # only the holder of this claim may change that
            claim.rename(path)
            return None
        claim.unlink(missing_ok=True)
    return None


def _release(path: Path, token: str) -> None:
    """Remove the lease if it is still this holder's; whoever is replacing it may go on."""
    with suppress(OSError), _draft(path, token) as draft:
        claim = _claim(path, token)
        if _link(draft, claim):
            if _read(path) == token:
                path.unlink()
            claim.unlink()


def _claim(path: Path, token: str) -> Path:
    """The name of the right to change a lease that holds this token."""
    return path.with_name(f"{path.name}.{hashlib.sha256(token.encode()).hexdigest()[:16]}")


def _link(draft: Path, path: Path) -> bool:
    try:
        os.link(draft, path)
    except FileExistsError:
        try:
            return path.samefile(draft)  # NFS repeats a lost request and then says that it exists
        except FileNotFoundError:
            return False
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def _fields(token: str) -> dict[str, object]:
    """What a lease says; nothing if it is damaged: then only its age tells."""
    try:
        found = json.loads(token)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _expired(path: Path, token: str) -> bool:
    who = _fields(token)
    pid, born = who.get("pid"), who.get("born")
    if (
        who.get("host") == socket.gethostname()
        and isinstance(pid, int)
        and isinstance(born, int | float)
    ):
        try:
            process = psutil.Process(pid)
            dead = process.status() == psutil.STATUS_ZOMBIE
            return dead or abs(_born(process) - born) > 2
        except (psutil.NoSuchProcess, ValueError):
            return True
    try:
        return _now_of(path.parent) - path.stat().st_mtime > EXPIRE_S
    except FileNotFoundError:
        return True


def _born(process: psutil.Process) -> float:
    """Seconds from the host's start to the process's: no change of the clock moves that."""
    return float(process.create_time() - psutil.boot_time())


def _now_of(folder: Path) -> float:
    """The file server's clock, so that the clocks of two nodes are never compared."""
    probe = folder / f".clock-{socket.gethostname()}-{secrets.token_hex(8)}"
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
            if _read(path) == token:
                os.utime(path)
