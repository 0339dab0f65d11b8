"""Formats of records, and the source of an import: a file, a folder or the hub.

A new format is a module that yields records, a line in `KINDS` and an entry of `FORMATS`.
"""

import hashlib
import json
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

from bayes_at_n.pipeline.base.console import joined, plural, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.hub import from_hub
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.config.records import KINDS, RecordsConfig
from bayes_at_n.pipeline.records import (
    completions,
    copies,
    evalscope,
    flat,
    inspect_log,
    lm_eval,
    npz,
    shapes,
    trace,
)
from bayes_at_n.pipeline.records.source import Format, Skipped, Source, start

_GZIP = b"\x1f\x8b"
_POINTER = b"version https://git-lfs.github.com/spec/"
_SCORED = ("inspect", "lm_eval", "evalscope", "nemo_skills", *shapes.SHAPES)


def _shape(name: str) -> Format:
    shape = shapes.SHAPES[name]
    functions = partial(shapes.looks, shape), partial(shapes.read, shape)
    return Format(*functions, shape.pattern, shape.chooses, beside=shape.beside)


FORMATS = {  # a file is of the first kind that recognizes it
    "lighteval": _shape("lighteval"),
    "trace": Format(trace.looks, trace.read, "*.parquet", chooses=True, positions=False),
    "inspect": Format(inspect_log.looks, inspect_log.read, "*.eval *.json"),
    **{name: _shape(name) for name in shapes.SHAPES if name != "lighteval"},
    "npz": Format(lambda _, head: head[:4] == b"PK\x03\x04", npz.read, chooses=True),
    "lm_eval": Format(lm_eval.looks, lm_eval.read, "samples_*.jsonl"),
    "evalscope": Format(evalscope.looks, evalscope.read, "*.jsonl", beside=evalscope.predictions),
    "nemo_skills": Format(completions.is_nemo, completions.nemo, "output*.jsonl"),
    "openai": Format(completions.is_chat, completions.chats, "*.jsonl", positions=False),
    "jsonl": Format(flat.is_json, flat.read_json, "*.jsonl *.json", True, positions=False),
    "csv": Format(flat.is_csv, flat.read_csv, "*.csv", True, positions=False),
}
_RUNS = Format(lambda *_: False)  # run folders of this program


def locate(cfg: RecordsConfig) -> Source:
    """Find the files of a source and recognize their kind by their content.

    Raises UserError: there are no files, none that can be read, or the hub does not answer.
    """
    path, kind, revision = cfg.source.path, cfg.source.kind, cfg.source.revision
    if not path:
        raise UserError("source: missing; name a file, a folder or a hub id: source=PATH")
    where = find_local(path)
    if where is None:
        where, revision = _download(path, revision)
    elif revision is not None:
        raise UserError(f"revision={revision}: applies to hub ids only; {path} is a local path")
    kind, why, files = (_folder if where.is_dir() or kind == "runs" else _file)(where, kind)
    for key, able in (("metric", _SCORED), ("filter", ("lm_eval",))):
        if (value := getattr(cfg.source, key)) is not None and kind not in able:
            raise UserError(f"{key}={value}: is for {joined(able)}, and {path} is read as {kind}")
    fingerprint = _fingerprint(files, kind, cfg)
    form = FORMATS.get(kind, _RUNS)
    return Source(cfg, kind, why, files, revision, fingerprint, form, Skipped(files))


def _download(path: str, revision: str | None) -> tuple[Path, str | None]:
    """Fetch the Parquet files of OWNER/NAME[/FOLDER] on the hub; return their folder and commit.

    A dataset's come from the cache if they are there; a bucket, which has no commits, is synced.
    """
    parts = re.fullmatch(r"(?![./~])([\w.-]+/[\w.-]+)((?:/(?!\.)[\w.-]+)*)", path)
    if parts is None:
        raise UserError(f"source={path}: no such file or folder, and no hub id OWNER/NAME[/FOLDER]")
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    remedy = "Check the id and revision; without a network, name a folder of its Parquet files"
    name, inside = parts[1], parts[2][1:]
    with from_hub(f"source={path}", remedy):
        try:
            patterns = [f"{inside}/*.parquet".lstrip("/")]
            folder = huggingface_hub.snapshot_download(
                name, repo_type="dataset", revision=revision, allow_patterns=patterns
            )
            return Path(folder) / inside, Path(folder).name  # which is the commit
        except RepositoryNotFoundError:
            if revision is not None:
                raise
            cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
            local, remote = cache / f"buckets--{name.replace('/', '--')}", f"hf://buckets/{path}"
            local /= inside
            huggingface_hub.sync_bucket(remote, str(local), include=["*.parquet"], quiet=True)
            return local, None


def _folder(where: Path, kind: str) -> tuple[str, str, list[Path]]:
    """Return kind, reason and files of a folder: the first of FORMATS that has any; name others.

    Raises UserError: no file of that kind, or of any.
    """
    if kind in ("auto", "runs") and (runs := copies.within(where)):
        return "runs", f"{plural(len(runs), 'run folder')} of this program", runs
    patterns = {name: form.pattern for name, form in FORMATS.items() if form.pattern}
    if kind not in ("auto", *patterns):
        what = "no run folder" if kind == "runs" else f"kind={kind} reads one file; name it"
        raise UserError(f"{where}: {what}")
    by_kind, faults = {name: list[Path]() for name in patterns}, list[str]()
    for path in sorted(path for path in where.rglob("*") if path.is_file()):
        if able := [n for n, pattern in patterns.items() if any(map(path.match, pattern.split()))]:
            head = start(path)
            if fault := _fault(path, head):
                faults.append(fault)
            elif looks := [name for name in able if FORMATS[name].looks(path, head)]:
                by_kind[looks[0]].append(path)
    if faults:
        warn(f"import: {plural(len(faults), 'file')} skipped: {faults[0]}")
    rest = {name: files for name, files in by_kind.items() if files}
    chosen = next(iter(rest), "") if kind == "auto" else kind
    files = rest.pop(chosen, [])
    others = ", ".join(f"{len(files)} of {other}" for other, files in rest.items())
    if not files and faults and not others:
        raise UserError(faults[0])
    if not files:
        what = ", ".join(sorted({*(patterns.get(kind) or " ".join(patterns.values())).split()}))
        has = f"; it has {others}" if others else ""
        raise UserError(f"{where}: has no records ({what}){has}; to import an NPZ, name the file")
    if others and kind == "auto":
        warn(f"import: {where} also holds {others}, not read: kind= imports them")
    return chosen, f"{plural(len(files), 'file')} {patterns[chosen]}", files


def _fault(path: Path, head: bytes) -> str:
    """Return why a file with this head cannot hold records; empty if it may."""
    if head.startswith(_GZIP):
        return f"{path}: is compressed with gzip; unpack it first: gunzip {path.name}"
    if head.startswith(_POINTER):
        return f"{path}: is a Git LFS pointer, not the file itself; get it with `git lfs pull`"
    return "" if head.strip() else f"{path}: is empty"


def _file(path: Path, kind: str) -> tuple[str, str, list[Path]]:
    if not path.is_file():
        raise UserError(f"{path}: is not a regular file")
    head = start(path)
    if fault := _fault(path, head):
        raise UserError(fault)
    if kind != "auto":
        return kind, f"kind={kind}", [path]
    for name, form in FORMATS.items():
        if form.looks(path, head):
            return name, KINDS[name], [path]
    raise UserError(
        f"{path}: is no kind of records that is known here; text must be UTF-8, not UTF-16, and"
        " JSON one object a line or one list of objects"
    )


def _fingerprint(files: list[Path], kind: str, cfg: RecordsConfig) -> str:
    """Hash the settings, the contents of all files that are imported, and what names them."""
    settings = {**asdict(cfg.source), "datasets": cfg.dataset, "models": cfg.model, "kind": kind}
    settings |= dict.fromkeys(("path", "revision", "questions"))
    covered = list(files)
    form = FORMATS.get(kind)
    if form is None:  # run folders
        inside = sorted((path, path.lstat()) for run in files for path in run.rglob("*"))
        settings["files"] = [[str(path), of.st_size, of.st_mtime_ns] for path, of in inside]
        covered = []
    elif form.pattern and not form.chooses:  # paths name tasks and models, as do files beside them
        settings["names"] = [str(Path(*path.resolve().parts[-2:])) for path in files]
        for folder in sorted({path.parent for path in files}):
            covered += sorted(folder.glob("*.json"))
    if form and form.beside:
        covered += sorted(filter(Path.is_file, map(form.beside, files)))
    if cfg.source.questions is not None:
        questions = Path(cfg.source.questions).expanduser()
        if not questions.exists():
            raise UserError(f"questions={cfg.source.questions}: no such file or folder")
        covered += [questions] if questions.is_file() else sorted(questions.glob("*.jsonl"))
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode(errors="surrogatepass"))
    for path in covered:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()[:16]
