"""Formats of records, and the source of an import: a file, a folder or the hub.

A new format is a module that yields records, a line in `KINDS` and an entry of `FORMATS`.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path

from bayes_at_n.pipeline.base.console import joined, note, plural, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import find_local, from_hub
from bayes_at_n.pipeline.config.records import KINDS, RecordsConfig
from bayes_at_n.pipeline.records import chats, copies, flat, logs, shapes
from bayes_at_n.pipeline.records.source import Format, Skipped, Source, start
from bayes_at_n.pipeline.store import provenance, shards

_GZIP = b"\x1f\x8b"
_POINTER = b"version https://git-lfs.github.com/spec/"
_SCORED = (*shapes.SHAPES, "lighteval")
_TABLES = ("trace", "jsonl", "csv")

FORMATS = {  # a file is of the first kind that recognizes it
    "lighteval": shapes.LIGHTEVAL,
    "trace": Format("*.parquet", flat.is_parquet, flat.read_parquet, chooses=True, positions=False),
    **shapes.SHAPES,
    "npz": Format("", lambda _, head: head[:4] == b"PK\x03\x04", flat.read_npz, chooses=True),
    "openai": Format("*.jsonl", chats.looks, chats.read, positions=False),
    "jsonl": Format("*.jsonl *.json", flat.is_json, flat.read_json, True, positions=False),
    "csv": Format("*.csv", flat.is_csv, flat.read_csv, chooses=True, positions=False),
}
_RUNS = Format()  # run folders of this program


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
    if kind in ("auto", "runs") and (files := copies.within(where)):
        kind, why = "runs", f"{plural(len(files), 'run folder')} of this program"
    else:
        kind, files = _recognize(where, kind)
        why = KINDS[kind] if where.is_file() else f"{plural(len(files), 'file')} of {KINDS[kind]}"
    able = {"metric": _SCORED, "filter": ("lm_eval",), "gold": _TABLES, "cluster": _TABLES}
    for key, kinds in able.items():
        if (value := getattr(cfg.source, key)) is not None and kind not in kinds:
            raise UserError(f"{key}={value}: is for {joined(kinds)}, and {path} is read as {kind}")
    note(f"import: {path} read as {kind} ({why})")
    form, fingerprint = FORMATS.get(kind, _RUNS), _fingerprint(files, kind, cfg)
    return Source(cfg, kind, files, revision, fingerprint, form, Skipped(files))


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


def _recognize(where: Path, kind: str) -> tuple[str, list[Path]]:
    """Return the kind and the files of a file or folder: the first of FORMATS that has any.

    Raises UserError: there is no file of the kind, or of any.
    """
    forms = {name: form for name, form in FORMATS.items() if form.pattern or not where.is_dir()}
    if kind not in ("auto", *forms):
        what = "no run folder" if kind == "runs" else f"kind={kind} reads one file; name it"
        raise UserError(f"{where}: {what}")
    by_kind, faults = {name: list[Path]() for name in forms}, list[str]()
    patterns = {name: form.pattern.split() for name, form in forms.items()}
    for path in sorted(where.rglob("*")) if where.is_dir() else [where]:
        if path.exists() and not path.is_file():
            continue
        able = [n for n, of in patterns.items() if path == where or any(map(path.match, of))]
        head = start(path) if able and path.exists() else b""
        if able and (fault := _fault(path, head)):
            faults.append(fault)
        elif path == where and kind != "auto":
            by_kind[kind] = [path]
        elif looks := [name for name in able if logs.looks(forms[name], path, head)]:
            by_kind[looks[0]].append(path)
    rest = {name: files for name, files in by_kind.items() if files}
    chosen = next(iter(rest), "") if kind == "auto" else kind
    files = rest.pop(chosen, [])
    others = ", ".join(f"{len(files)} of {other}" for other, files in rest.items())
    if not files and faults and not others:
        raise UserError(faults[0])
    if not files:
        what = "no kind of records that is known here" if kind == "auto" else f"no {kind}"
        has = f"has {others}" if others else "must be UTF-8 text; an NPZ is named as a file"
        raise UserError(f"{where}: {what}; it {has}")
    if faults:
        warn(f"import: {plural(len(faults), 'file')} skipped: {faults[0]}")
    if others and kind == "auto":
        warn(f"import: {where} also holds {others}, not read: kind= imports them")
    return chosen, files


def _fault(path: Path, head: bytes) -> str:
    """Return why a file with this head cannot hold records; empty if it may."""
    if not path.exists():
        return f"{path}: is a broken link; fetch its content (git annex get, dvc pull)"
    if head.startswith(_GZIP):
        return f"{path}: is compressed with gzip; unpack it first: gunzip {path.name}"
    if head.startswith(_POINTER):
        return f"{path}: is a Git LFS pointer, not the file itself; get it with `git lfs pull`"
    return "" if head.strip() else f"{path}: is empty"


def _fingerprint(files: list[Path], kind: str, cfg: RecordsConfig) -> str:
    """Hash the settings, and path, size and time of every file that is read."""
    settings = {**asdict(cfg.source), "datasets": cfg.dataset, "models": cfg.model, "kind": kind}
    settings |= dict.fromkeys(("path", "revision", "questions"))
    form, covered = FORMATS.get(kind), {*files}
    if form is None:
        covered.update(path for run in files for path in run.rglob("*"))
    elif not form.chooses:  # files beside it name task and model
        covered.update(path for file in files for path in file.parent.glob("*.json"))
        covered.update(form.beside(file) for file in files if form.beside)
    if cfg.source.questions is not None:
        questions = Path(cfg.source.questions).expanduser()
        if not questions.exists():
            raise UserError(f"questions={cfg.source.questions}: no such file or folder")
        covered |= {questions, *questions.glob("*.jsonl")}
    marks = [[str(path.resolve()), shards.fingerprint(path)] for path in sorted(covered)]
    return provenance.short_hash(json.dumps([settings, marks], sort_keys=True))
