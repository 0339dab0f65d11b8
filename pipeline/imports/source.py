"""Where an import comes from: a file, a folder or the hub, and which kind of records it holds."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import UserError
from pipeline.config.imports import KINDS, ImportConfig
from pipeline.imports.troubles import Troubles, shown
from pipeline.prepare.questions import find_local

MOST_LINE = 64 << 20  # bytes of a line of text: 80 long answers in one sample
_GZIP = b"\x1f\x8b"
_SNIFFED = 1 << 20


@dataclass(frozen=True)
class Source:
    """The files of an import and what they were taken for."""

    path: str  # as the user named it
    kind: str
    why: str  # what it was recognised by
    files: list[Path]
    revision: str | None
    fingerprint: str  # of files and settings: the same import again has the same


def locate(cfg: ImportConfig, datasets: list[str], models: list[str]) -> Source:
    """Find the files of a source and recognise their kind by what is in them.

    Raises:
        UserError: nothing there, nothing that this program can read, or a hub that does not answer.
    """
    if not cfg.path:
        raise UserError("source: is missing; name a file, a folder or a hub id: source=PATH")
    if cfg.kind not in ("auto", *KINDS):
        raise UserError(f"kind={cfg.kind}: choose from auto, {', '.join(KINDS)}")
    where, revision = find_local(cfg.path), cfg.revision
    if where is None:
        where, revision = _download(cfg)
    elif revision is not None:
        raise UserError(f"revision={revision}: is for a hub id; {cfg.path} is on this machine")
    files, kind, why = _recognised(where, cfg.kind)
    settings = {**asdict(cfg), "datasets": datasets, "models": models}
    settings |= {"kind": kind, "path": None, "revision": None, "questions": None}
    try:
        fingerprint = _fingerprint(files, kind, cfg.questions, settings)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error
    return Source(cfg.path, kind, why, files, revision, fingerprint)


def lines(path: Path, troubles: Troubles) -> Iterator[tuple[str, bytes]]:
    """Every line of a text file with its place; of those beyond all measure, counted, nothing."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MOST_LINE):
            number += 1
            place = f"{path.name}, line {number}"
            if len(line) == MOST_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(MOST_LINE)) and not rest.endswith(b"\n"):
                    pass
                troubles.add(f"lines over {MOST_LINE >> 20} MiB skipped", place)
                line = b""
            yield place, line


def json_lines(path: Path, troubles: Troubles) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON Lines file with their places; damaged lines are counted."""
    for place, line in lines(path, troubles):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            troubles.add("damaged lines skipped", f"{place} ({shown(str(error))[:60]})")
            continue
        if isinstance(row, dict):
            yield place, row
        else:
            troubles.add("damaged lines skipped", f"{place} (not an object)")


def _download(cfg: ImportConfig) -> tuple[Path, str]:
    """The Parquet files of a data set on the hub, from the cache where they are there."""
    path = str(cfg.path)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", path) or path.startswith((".", "/", "~")):
        raise UserError(f"source={path}: no such file or folder, and no hub id OWNER/NAME")
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            path, repo_type="dataset", revision=cfg.revision, allow_patterns=["*.parquet"]
        )
    except Exception as error:  # the library raises many kinds: hub, network, disk
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"source={path}: could not be had from the hub: {reason}. Check the id and revision;"
            " without a network, name a folder of its Parquet files"
        ) from error
    return Path(folder), Path(folder).name  # a snapshot is called by its commit


def _recognised(where: Path, kind: str) -> tuple[list[Path], str, str]:
    if where.is_dir():
        if kind not in ("auto", "trace", "lm_eval"):
            raise UserError(f"{where}: kind={kind} reads one file; name it")
        for one, pattern in (("trace", "*.parquet"), ("lm_eval", "samples_*.jsonl")):
            files = sorted(p for p in where.rglob(pattern) if p.is_file())
            if files and kind in ("auto", one):
                return files, one, f"{len(files)} files {pattern}"
        if packed := next(where.rglob("*.gz"), None):
            raise UserError(f"{packed}: is packed with gzip; unpack it first: gunzip -r {where}")
        raise UserError(
            f"{where}: holds neither Parquet files nor samples_*.jsonl; name a single file for"
            " npz, csv and jsonl"
        )
    if not where.is_file():
        raise UserError(f"{where}: is no ordinary file")
    found, why = _sniff(where, kind)
    return [where], found, why


def _sniff(path: Path, kind: str) -> tuple[str, str]:
    try:
        with path.open("rb") as file:
            head = file.read(_SNIFFED)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    if head.startswith(_GZIP):
        raise UserError(f"{path}: is packed with gzip; unpack it first: gunzip {path.name}")
    if not head.strip():
        raise UserError(f"{path}: is empty")
    if kind != "auto":
        return kind, f"kind={kind}"
    if head[:4] == b"PAR1" or path.suffix == ".parquet":
        return "trace", "a Parquet file"
    if head[:4] == b"PK\x03\x04":
        return "npz", "a zip of arrays"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" or path.suffix == ".jsonl":
        if b'"doc_id"' in head and path.name.startswith("samples_"):
            return "lm_eval", "objects with doc_id, in a file samples_*"
        if b'"doc_id"' in head and b'"resps"' in head:
            return "lm_eval", "objects with doc_id and resps"
        return "jsonl", "one JSON object a line"
    if b"\0" in head.splitlines()[0]:
        raise UserError(f"{path}: is neither Parquet, NPZ nor text; name its kind with kind=")
    return "csv", "text with a line of column names"


def _fingerprint(
    files: list[Path], kind: str, questions: str | None, settings: dict[str, Any]
) -> str:
    """Of everything that the run folders come from: settings and whole files, not their places."""
    made = hashlib.sha256(json.dumps(settings, sort_keys=True).encode(errors="surrogatepass"))
    covered = list(files)
    if kind == "lm_eval":  # files and their folders name the task and the model
        named = [str(Path(*path.resolve().parts[-2:])) for path in files]
        made.update(json.dumps(named).encode(errors="surrogatepass"))
        folders = sorted({path.parent for path in files})
        covered += [path for folder in folders for path in sorted(folder.glob("results_*.json"))]
    if questions is not None:
        own = Path(questions).expanduser()
        covered += sorted(own.glob("*.jsonl")) if own.is_dir() else [own] * own.is_file()
    for path in covered:
        with path.open("rb") as file:
            made.update(hashlib.file_digest(file, "blake2b").digest())
    return made.hexdigest()[:16]
