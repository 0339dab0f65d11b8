"""The identity of a run in its manifest and in the metadata of its files of attempts.

A file with another `identity_hash` than the manifest is of another run, and not read. `identity` is
what was hashed; a lost manifest is made anew from it. Folders of another format are refused.
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
from bayes_at_n.pipeline.base.untrusted import read_json
from bayes_at_n.pipeline.store import parquet

HASH, IDENTITY = "identity_hash", "identity"  # in the manifest, and of files
QUESTIONS = "questions_hash"  # in the identity of a file: of all questions and prompts
FORMAT, NUMBER = "format", 2  # of run folders
_READERS = {1: "596fca5"}  # the last commit that reads another format
Metadata = dict[bytes, bytes]
_warn = functools.cache(warn)  # once a command


def condensed(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity with one hash in place of those of all questions and prompts."""
    rest = {k: v for k, v in identity.items() if k not in ("questions", "prompts")}
    return {QUESTIONS: hashed([identity.get("questions"), identity.get("prompts")])} | rest


def hashed(value: Any) -> str:
    """The first 16 hex digits of SHA-256 of a value's JSON, keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def part_metadata(manifest: Mapping[str, Any]) -> Metadata:
    """Return the metadata of new files of attempts beside this manifest."""
    text = json.dumps(condensed(manifest[IDENTITY]))
    of = {HASH: str(manifest[HASH]), IDENTITY: text, FORMAT: str(NUMBER)}
    return {key.encode(): value.encode() for key, value in of.items()}


def check_format(folder: Path, there: Any) -> None:
    """Raise UserError where a run folder has another format, `there`, than this version reads."""
    number = 1 if there is None else there
    if number != NUMBER:
        reader = f"commit {_READERS[number]}" if number in _READERS else "a later version"
        line = f"has format {number}, which {reader} reads; this version reads {NUMBER}"
        raise UserError(f"{folder}: {line}")


def schema(path: Path) -> pa.Schema:
    """Return the columns of a Parquet file; none if it is damaged. Raises OSError."""
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        return pa.schema([])


def metadata(path: Path) -> Metadata:
    """Return the metadata of a part or a journal; none if it is damaged. Raises OSError."""
    journals = path.suffix == ".journal"
    return journal.metadata(path) if journals else dict(schema(path).metadata or {})


def of_another_run(path: Path) -> str:
    """Say why a file of attempts is not of the run in whose folder it lies; empty where it may be.

    Raises OSError: the file is gone, or may not be read.
    """
    manifest = path.parent.parent / "manifest.json"
    mine = _hash_in(manifest, parquet.fingerprint(manifest))
    its = metadata(path).get(HASH.encode(), b"").decode(errors="replace")
    if not mine or not its or mine == its:
        return ""
    return f"{path.name}: made under another identity ({its[:16]}, not {mine[:16]}), so not read"


@functools.lru_cache(maxsize=1 << 12)
def _hash_in(manifest: Path, fingerprint: str) -> str:
    with contextlib.suppress(OSError, ValueError, UserError):
        return str(read_json(manifest).get(HASH, ""))
    return ""


def manifest(path: Path, fault: str, files: Sequence[Path]) -> dict[str, Any]:
    """Make a manifest anew from the latest of the files of attempts beside it.

    Raises UserError: they do not say of which run they are, or are of several.
    """
    known = {file: made for file in files if HASH.encode() in (made := metadata(file))}
    runs = {made[HASH.encode()]: file.name for file, made in known.items()}
    with contextlib.suppress(KeyError, ValueError, RecursionError, TypeError):
        [its] = runs
        file = max(known, key=lambda file: file.name.lstrip("_"))  # of a raised cap
        check_format(path.parent, int(known[file].get(FORMAT.encode(), b"1")))
        identity = dict(json.loads(known[file][IDENTITY.encode()]))
        _warn(f"{path}: {fault}; identity read from attempts/{file.name}; `prepare` writes it anew")
        return {FORMAT: NUMBER, HASH: its.decode(), IDENTITY: identity}
    if not files:
        raise UserError(f"{path}: {fault}; delete it, and run `prepare` again")
    of = f"of several runs ({', '.join(sorted(runs.values())[:3])})" if runs else "of no known run"
    raise UserError(f"{path}: {fault}, and attempts/ is {of}; restore it from a copy")
