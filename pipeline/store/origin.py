"""Whose attempts a file holds: every part and journal says under which identity it was made.

`identity_hash` is made with the folder and kept in its manifest: a file that says another is of
another run, and not read. `identity` is what was hashed; a manifest that is lost is known from it.
The format of the folder is a number in the manifest and in every file: folders of others are
refused.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import journal
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.foreign import read_json

HASH, IDENTITY = "identity_hash", "identity"  # in the manifest, and of files
QUESTIONS = "questions_hash"  # in the identity of a file: of all questions and prompts
FORMAT, NUMBER = "format", 2  # of run folders
_READERS = {1: "596fca5"}  # the last commit that reads another format
Metadata = dict[bytes, bytes]
_warn = functools.cache(warn)  # once a command


def said(identity: Mapping[str, Any]) -> dict[str, Any]:
    """An identity as files say it: one hash in place of those of all questions and prompts.

    >>> sorted(said({"sampling.seed": 1, "questions": {"q1": "0a"}, "prompts": {"q1": "0b"}}))
    ['questions_hash', 'sampling.seed']
    """
    rest = {k: v for k, v in identity.items() if k not in ("questions", "prompts")}
    return {QUESTIONS: hashed([identity.get("questions"), identity.get("prompts")])} | rest


def hashed(value: Any) -> str:
    """The first 16 hex digits of SHA-256 of a value's JSON, keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def about(manifest: Mapping[str, Any]) -> Metadata:
    """What files of attempts are to say beside this manifest, which `read_manifest` gave."""
    text = json.dumps(said(manifest[IDENTITY]))
    of = {HASH: str(manifest[HASH]), IDENTITY: text, FORMAT: str(NUMBER)}
    return {key.encode(): value.encode() for key, value in of.items()}


def check_format(folder: Path, there: Any) -> None:
    """Raises UserError: a run folder has another format, `there`, than this version reads."""
    number = 1 if there is None else there
    if number != NUMBER:
        reader = f"commit {_READERS[number]}" if number in _READERS else "a later version"
        raise UserError(
            f"{folder}: has format {number}, which {reader} reads; this version reads {NUMBER}"
        )


def metadata(path: Path) -> Metadata:
    """What a part or a journal says of itself; nothing if it is damaged. Raises OSError."""
    try:
        if path.suffix == ".journal":
            return journal.metadata(path)
        return dict(pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        return {}


def foreign(path: Path) -> str:
    """Why a file of attempts is not of the run in whose folder it lies; empty where it may be.

    Raises OSError: the file is gone, or may not be read.
    """
    manifest = path.parent.parent / "manifest.json"
    try:
        status = manifest.stat()
    except OSError:
        return ""
    mine = _hash_in(manifest, status.st_ino, status.st_size, status.st_mtime_ns)
    its = metadata(path).get(HASH.encode(), b"").decode(errors="replace")
    if not mine or not its or mine == its:
        return ""
    return f"{path.name}: made under another identity ({its[:16]}, not {mine[:16]}), so not read"


@functools.lru_cache(maxsize=1 << 12)
def _hash_in(manifest: Path, *_version: int) -> str:
    with contextlib.suppress(OSError, ValueError, UserError):
        return str(read_json(manifest).get(HASH, ""))
    return ""


def manifest(path: Path, fault: str, files: Sequence[Path]) -> dict[str, Any]:
    """What a manifest with this fault should say, from the files of attempts beside it.

    Of their identities the latest: the cap may have been raised. Raises UserError: none says it.
    """
    told = {file: says for file in files if HASH.encode() in (says := metadata(file))}
    runs = {says[HASH.encode()]: file.name for file, says in told.items()}
    if len(runs) == 1:
        for says in told.values():
            number = says.get(FORMAT.encode(), b"1").decode(errors="replace")
            check_format(path.parent, int(number) if number.isdecimal() else number)
        latest = max(told, key=lambda file: file.name.lstrip("_"))
        with contextlib.suppress(KeyError, ValueError, RecursionError, TypeError):
            identity = dict(json.loads(told[latest][IDENTITY.encode()]))
            _warn(f"{path}: {fault}; attempts/{latest.name} says what it was, `prepare` writes it")
            return {FORMAT: NUMBER, HASH: next(iter(runs)).decode(), IDENTITY: identity}
    if not files:
        raise UserError(f"{path}: {fault}; delete it, and run `prepare` again")
    several = f"holds files of several runs ({', '.join(sorted(runs.values())[:3])})"
    raise UserError(
        f"{path}: {fault}, and attempts/ {several if runs else 'does not say what the run is'};"
        " restore it from a copy, or give this run a folder of its own (tag=NAME or run_dir=DIR)"
    )
