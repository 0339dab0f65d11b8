"""prepare: questions and gold answers become rendered prompts, checked and hashed."""

import time
from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import mention, warn
from bayes_at_n.pipeline.base.environment import describe
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import questions_table, raising, served
from bayes_at_n.pipeline.store import origin, parquet, runfolder
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run


def prepare(run: Run) -> None:
    """Make or check the run folder: `questions.parquet`, `config.yaml`, `manifest.json`.

    Raises UserError: for whatever is wrong with the model, the data set or the folder.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg), raising=True)
    built = questions_table.build(run)
    identity = questions_table.identity(run, built)
    run.path.mkdir(parents=True, exist_ok=True)
    runfolder.claim(run, identity)
    with runfolder.settling(run):
        _settle(run, built, identity)
    mention(f"prepared {len(built.questions)} questions in {run.path}")
    answer({"run": run.path, "questions": len(built.questions)})


def _settle(run: Run, built: questions_table.Built, identity: dict[str, Any]) -> None:
    """Check what the folder holds now, and write the files that say what it holds from now on."""
    runfolder.check_same(run, identity, raising=True)
    raising.check(run, built, identity)
    runfolder.save_config(run)  # first: who finds questions reads it
    _write(run, built)
    manifest = runfolder.read_manifest(run)
    manifest.setdefault("created_with", describe())
    if raised := runfolder.raised(run, identity):
        one = {"from": raised[0], "to": raised[1], "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        manifest[runfolder.RAISED] = [*manifest.get(runfolder.RAISED, []), one]
    manifest[origin.IDENTITY] = identity
    if built.server is not None:
        manifest[served.KEY] = asdict(built.server)
    manifest["tokenizer"] = built.tokenizer
    manifest["source"] = {
        "model": run.cfg.model.id,
        "dataset": run.cfg.dataset.path,
        "split": run.cfg.dataset.split,
        "dataset_revision": run.cfg.dataset.revision,
    }
    runfolder.write_json(run.manifest, manifest)


def _write(run: Run, built: questions_table.Built) -> None:
    """Write the table if it says something new: a worker may be adding log-probs to it."""
    path, key = run.path / "questions.parquet", "prompt_logprobs"
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
    if same:
        return
    place, field = QUESTIONS.get_field_index(key), QUESTIONS.field(key)
    with atomic.replacing(path) as file, parquet.writer(file, QUESTIONS) as groups:
        for group in built.groups():
            at = pc.index_in(group["question_id"], value_set=earlier["question_id"])
            groups.write_table(group.set_column(place, field, earlier[key].take(at)))
