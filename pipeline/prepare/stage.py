"""prepare: questions and gold answers become rendered prompts, checked and hashed."""

import json
import time
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import mention, warn
from bayes_at_n.pipeline.base.environment import describe, version
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import endpoint, questions_table, raised_cap
from bayes_at_n.pipeline.store import origin, parquet, runfolder
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run

VERSION = 1  # raise it whenever questions or prompts of the same settings change
_LIBRARIES = ("transformers", "tokenizers", "jinja2", "datasets")  # that render and read
_MOST = 10_000  # files of a folder that settings name; with more it is always read again


def prepare(run: Run) -> None:
    """Make or check the run folder: `questions.parquet`, `config.yaml`, `manifest.json`.

    Raises UserError: for whatever is wrong with the model, the data set or the folder.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg), raising=True)
    if _is_prepared(run):
        with runfolder.settling(run):
            runfolder.save_config(run)
    else:
        built = questions_table.build(run)
        identity = questions_table.identity(run, built)
        run.path.mkdir(parents=True, exist_ok=True)
        runfolder.claim(run, identity)
        with runfolder.settling(run):
            _settle(run, built, identity)
        run = Run(run.cfg)
    mention(f"prepared {len(run.questions)} questions in {run.path}")
    answer({"run": run.path, "questions": len(run.questions)})


def questions_there(run: Run) -> int:
    """How many questions the data set has. Raises UserError: they are others than the folder's."""
    if _is_prepared(run):
        return len(run.questions)
    built = questions_table.build(run)
    runfolder.check_same(run, questions_table.identity(run, built), raising=True)
    return len(built.questions)


def _is_prepared(run: Run) -> bool:
    """Whether the folder holds what these settings and files make, so that none need be read."""
    path, made = run.path / "questions.parquet", runfolder.read_json(run.manifest)
    if "tokenizer" not in made or runfolder.raised(run, runfolder.identity(run.cfg)):
        return False
    try:
        said = origin.metadata(path).get(questions_table.MADE_FROM, b"")
        return said == _made_from(run) and bool(run.questions)
    except (OSError, UserError):
        return False


def _made_from(run: Run) -> bytes:
    """What the questions table is made from: settings, versions, and local files that they name."""
    cfg, engine = run.cfg, run.cfg.engine
    settings = [asdict(part) for part in (cfg.model, cfg.dataset, cfg.prompt)]
    asked = [cfg.sampling.max_tokens, engine.name, engine.api, engine.served_name]
    named = (cfg.dataset.path, cfg.prompt.shots_from, cfg.model.id, cfg.model.tokenizer)
    files = [_files(path) for name in named if name and (path := find_local(name))]
    made = {
        "version": VERSION,
        "settings": origin.hashed([settings, asked]),
        "files": origin.hashed(files),
        "libraries": {name: version(name) for name in _LIBRARIES},
    }
    return json.dumps(made).encode()


def _files(path: Path) -> list[Any]:
    """What tells a file from others, by its content, or those in a folder, by size and time."""
    if path.is_file():
        with path.open("rb") as file:
            checksum = 0
            while part := file.read(1 << 20):
                checksum = zlib.crc32(part, checksum)
        return [str(path), checksum]
    found = sorted(one for one in path.rglob("*") if one.is_file())[: _MOST + 1]
    if len(found) > _MOST:
        return [time.time_ns()]
    return [[str(one), parquet.fingerprint(one)] for one in found]


def _settle(run: Run, built: questions_table.Built, identity: dict[str, Any]) -> None:
    """Check what the folder holds now, and write the files that say what it holds from now on."""
    runfolder.check_same(run, identity, raising=True)
    raised_cap.check(run, built, identity)
    runfolder.save_config(run)  # first: who finds questions reads it
    _write(run, built)
    manifest = runfolder.read_manifest(run)
    manifest.setdefault("created_with", describe())
    if raised := runfolder.raised(run, identity):
        one = {"from": raised[0], "to": raised[1], "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        manifest[runfolder.RAISED] = [*manifest.get(runfolder.RAISED, []), one]
    manifest[origin.IDENTITY] = identity
    if built.server is not None:
        manifest[endpoint.KEY] = asdict(built.server)
    manifest["tokenizer"] = built.tokenizer
    manifest["source"] = {
        "model": run.cfg.model.id,
        "dataset": run.cfg.dataset.path,
        "split": run.cfg.dataset.split,
        "dataset_revision": run.cfg.dataset.revision,
    }
    runfolder.write_json(run.manifest, manifest)


def _write(run: Run, built: questions_table.Built) -> None:
    """Write the table, with the log-probs of prompts that are there."""
    path, key, made_from = run.path / "questions.parquet", "prompt_logprobs", _made_from(run)
    earlier = QUESTIONS.empty_table()
    if path.exists():
        try:
            earlier = parquet.whole(path, QUESTIONS).combine_chunks()
        except parquet.DAMAGE:
            warn(f"{path}: unreadable, made anew; its prompt log-probs are owed again")
    start, same = 0, earlier.num_rows == len(built.questions)
    for group in built.groups() if same else ():
        there = earlier.slice(start, group.num_rows)
        same = same and there.drop_columns(key).equals(group.drop_columns(key))
        start += group.num_rows
    if same and origin.metadata(path).get(questions_table.MADE_FROM) == made_from:
        return  # a worker may be adding log-probs to it
    place, field = QUESTIONS.get_field_index(key), QUESTIONS.field(key)
    columns = QUESTIONS.with_metadata({questions_table.MADE_FROM: made_from})
    with atomic.replacing(path) as file, parquet.writer(file, columns) as groups:
        for group in built.groups():
            at = pc.index_in(group["question_id"], value_set=earlier["question_id"])
            whole = group.set_column(place, field, earlier[key].take(at))
            groups.write_table(whole.replace_schema_metadata(columns.metadata))
