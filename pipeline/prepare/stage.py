"""prepare: render prompts of questions, check and hash them."""

import hashlib
import json
import time
from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import note, note_alone, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import describe, find_local, version
from bayes_at_n.pipeline.config import card
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.prepare import models, questions_table
from bayes_at_n.pipeline.prepare.questions_table import MADE_FROM, Built
from bayes_at_n.pipeline.store import provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run

VERSION = 1  # raise it if questions or prompts of the same settings change
_NOT_READ = ("about", "since", "card", "quantization", "reasoning_parser")  # of model, dataset
_LIBRARIES = ("transformers", "tokenizers", "jinja2", "datasets")  # which render and read


def prepare(run: Run) -> None:
    """Create or check the run folder: `questions.parquet`, `config.yaml`, `manifest.json`."""
    runfolder.check_same(run, provenance.identity(run.cfg), raising=True)
    if _is_prepared(run):
        with runfolder.locked_settings(run):
            runfolder.save_config(run)
    else:
        built = questions_table.build(run)
        for line in card.lines(run.cfg) if run.cfg.sampling.card else ():
            note(line)
        run.path.mkdir(parents=True, exist_ok=True)
        runfolder.claim(run, built.identity)
        with runfolder.locked_settings(run):
            save(run, built)
        run = Run(run.cfg)
    note_alone(f"prepared {len(run.questions)} questions in {run.path}")
    print_json({"run": run.path, "questions": len(run.questions)})


def count_questions(run: Run) -> int:
    """Return the number of questions. Raises UserError: they are not those of the folder."""
    if _is_prepared(run):
        return len(run.questions)
    built = questions_table.build(run)
    runfolder.check_same(run, built.identity, raising=True)
    return int(built.table.num_rows)


def _is_prepared(run: Run) -> bool:
    """Return whether the folder was prepared from the same settings, files and libraries."""
    manifest = runfolder.read_json(run.manifest)
    if "tokenizer" not in manifest or runfolder.raised(run, provenance.identity(run.cfg)):
        return False
    try:
        recorded = shards.metadata(run.path / "questions.parquet").get(MADE_FROM, b"")
        return recorded == _made_from(run) and bool(run.questions)
    except (OSError, UserError):
        return False


def _made_from(run: Run) -> bytes:
    """Return what the table is made from: settings, versions, and local files."""
    cfg, engine = run.cfg, run.cfg.engine
    groups = (cfg.model, cfg.dataset, cfg.prompt)
    settings = [{k: v for k, v in asdict(g).items() if k not in _NOT_READ} for g in groups]
    others = [cfg.sampling.max_tokens, engine.name, engine.api, engine.served_name]
    names = [cfg.dataset.path, cfg.prompt.shots_from]
    names += [cfg.model.id, cfg.model.tokenizer, cfg.model.adapter]
    files = list[Any]()
    for path in (path for name in names if name and (path := find_local(name))):
        if path.is_dir():  # by sizes and times; a file by its content
            parts = sorted(one for one in path.rglob("*") if one.is_file())
            files.append([[str(one), shards.fingerprint(one)] for one in parts])
        else:
            with path.open("rb") as file:
                files.append([str(path), hashlib.file_digest(file, "sha256").hexdigest()])
    made_from = {
        "version": VERSION,
        "settings": provenance.hashed([settings, others]),
        "files": provenance.hashed(files),
        "libraries": {name: version(name) for name in _LIBRARIES},
    }
    return json.dumps(made_from).encode()


def save(run: Run, built: Built) -> None:
    """Check the folder's state, then write settings, questions and manifest."""
    runfolder.check_same(run, built.identity, raising=True)
    questions_table.check_raised(run, built)
    runfolder.save_config(run)  # first: `settle` reads it as soon as there are questions
    _save_table(run, built)
    manifest = runfolder.read_manifest(run)
    manifest.setdefault("created_with", describe())
    if raised := runfolder.raised(run, built.identity):
        entry = {"from": raised[0], "to": raised[1], "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        manifest[runfolder.RAISED] = [*manifest.get(runfolder.RAISED, []), entry]
    manifest[provenance.IDENTITY] = built.identity
    if built.server is not None:
        manifest[models.SERVER] = asdict(built.server)
    manifest["tokenizer"] = built.tokenizer
    manifest["source"] = {
        "model": run.cfg.model.id,
        "dataset": run.cfg.dataset.path,
        "split": run.cfg.dataset.split,
        "dataset_revision": run.cfg.dataset.revision,
    }
    runfolder.write_json(run.manifest, manifest)


def _save_table(run: Run, built: Built) -> None:
    """Write the table, keeping the log-probs of prompts that are stored."""
    path, key, made_from = run.path / "questions.parquet", "prompt_logprobs", _made_from(run)
    earlier = QUESTIONS.empty_table()
    if path.exists():
        try:
            earlier = shards.read_whole(path, QUESTIONS)
        except shards.DAMAGE:
            warn(f"{path}: unreadable, so it is rebuilt; its prompt log-probs are pending")
    same = earlier.drop_columns(key).equals(built.table.drop_columns(key))
    if same and shards.metadata(path).get(MADE_FROM) == made_from:
        return  # a worker may be adding log-probs
    prepared_ids = earlier["question_id"].combine_chunks()
    logprobs = earlier[key].take(pc.index_in(built.table["question_id"], value_set=prepared_ids))
    index = QUESTIONS.get_field_index(key)
    table = built.table.set_column(index, QUESTIONS.field(key), logprobs)
    shards.write_part(path, table.replace_schema_metadata({MADE_FROM: made_from}))
