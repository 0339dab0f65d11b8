"""prepare: questions and gold answers become rendered prompts, checked and hashed."""

import time
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from pipeline.base.console import note, warn
from pipeline.base.environment import describe
from pipeline.prepare import questions_table, raising, served
from pipeline.store import origin, runfolder, shards
from pipeline.store.columns import QUESTIONS
from pipeline.store.runfolder import Run


def prepare(run: Run) -> None:
    """Make or check the run folder: `questions.parquet`, `config.yaml`, `manifest.json`.

    Raises UserError: for whatever is wrong with the model, the data set or the folder.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg), raising=True)
    built = questions_table.build(run)
    identity = questions_table.identity(run, built)
    run.path.mkdir(parents=True, exist_ok=True)
    runfolder.claim(run, identity)
    runfolder.check_same(run, identity, raising=True)
    raising.check(run, built.rows, identity)
    _write(run, built.rows)
    runfolder.save_config(run)
    manifest = runfolder.read_manifest(run)
    manifest.setdefault("created_with", describe())
    if raised := runfolder.raised(run, identity):
        one = {"from": raised[0], "to": raised[1], "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        manifest[runfolder.RAISED] = [*manifest.get(runfolder.RAISED, []), one]
    manifest.setdefault(origin.HASH, origin.hashed(origin.said(identity)))
    manifest[origin.IDENTITY] = identity
    if built.server is not None:
        manifest[served.KEY] = asdict(built.server)
    manifest["source"] = {
        "model": run.cfg.model.id,
        "dataset": run.cfg.dataset.path,
        "split": run.cfg.dataset.split,
        "dataset_revision": run.cfg.dataset.revision,
    }
    runfolder.write_json(run.manifest, manifest)
    note(f"prepared {len(built.rows)} questions in {run.path}")


def _write(run: Run, rows: list[dict[str, Any]]) -> None:
    """Write the table if it says something new: a worker may be adding log-probs to it."""
    path = run.path / "questions.parquet"
    earlier: list[dict[str, Any]] = []
    if path.exists():
        try:
            earlier = shards.read_table(path, QUESTIONS)
        except (pa.ArrowException, OSError, ValueError):
            warn(f"{path}: unreadable, made anew; its prompt log-probs are owed again")
    logprobs = {row["question_id"]: row["prompt_logprobs"] for row in earlier}
    if [row | {"prompt_logprobs": None} for row in earlier] != rows:
        filled = [row | {"prompt_logprobs": logprobs.get(row["question_id"])} for row in rows]
        questions_table.write(path, filled)
