"""Metadata of a run and its graded attempts, in the terms of other programs' logs."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow.compute as pc

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM, find_local, kind, version
from bayes_at_n.pipeline.compare.cohort import protocol, sampling_known
from bayes_at_n.pipeline.config.records import HUB_ID
from bayes_at_n.pipeline.records.names import model_name
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.store import outcomes, provenance
from bayes_at_n.pipeline.store.runfolder import read_manifest
from bayes_at_n.scoring.metrics.table import parse_all
from bayes_at_n.verifiers.maths.boxed import final_part

LIBRARY = "bayes-at-n"
VERSION = version(LIBRARY) or "unknown"
_ARGUMENTS = ("temperature", "top_p", "top_k", "max_tokens", "seed")
_METADATA = ("trial", "seed", "outcome", "finish_reason")
_TOKENS = ("prompt_tokens", "completion_tokens")
_COLUMNS = ["question_id", *_METADATA, *_TOKENS, "answer", "layer", "reason", "started", "finished"]


class RunInfo:
    """A run's metadata for other programs' logs. Raises UserError: nothing is graded."""

    def __init__(self, source: RunTable) -> None:
        run, cfg, table = source.run, source.run.cfg, source.table
        manifest, known = read_manifest(run), sampling_known(run)
        records = (manifest.get(key) for key in ("created_with", "imported"))
        created, imported = (x if isinstance(x, dict) else {} for x in records)
        self.trials, self.confidence = cfg.sampling.trials, cfg.scoring.confidence
        R = outcomes.read(run, table=table).matrix
        self.graded, least = int(R.count()), R.count(axis=1).min()
        if not self.graded:
            raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} grade` first")
        # The scores, avg@N first if every question has a graded trial, and the prior of Bayes@N.
        prior = cfg.scoring.prior
        requested = parse_all(("avg", "bayes", "bayes-uniform", *cfg.scoring.metrics), prior)
        fitted = scoring.score_and_prior(R, None, self.confidence, prior) if least else None
        self.prior = fitted[1] if fitted else prior
        omitted = {"bayes"} if self.prior in ("none", "questions") else set()  # it would equal avg
        metrics = [m for m in requested if m.k <= least and m.name not in omitted]
        builtin = [m for m in metrics if not (m.votes or m.own)]  # never runs a user's file
        self.scores = [
            (m, fitted[0] if fitted and m.name == "bayes" else m.summary(R, self.confidence))
            for m in builtin
        ]
        # Of avg@N over questions, as in other harnesses.
        self.stderr = float(scoring.uncertainty(R).clustered) if least and len(R) > 1 else None
        # The local engine that sampled it; empty if unknown, like the settings below.
        engine, versions = {"name": cfg.engine.name}, created.get("packages")
        if isinstance(versions, dict):
            engine |= texts({"version": versions.get(cfg.engine.name)})
        self.engine = engine if known and not kind(cfg.engine.name).served else {}
        self.sampling = protocol(run) if known else {}
        arguments = {name: self.sampling.get(f"sampling.{name}") for name in _ARGUMENTS}
        self.arguments = {name: x for name, x in arguments.items() if x is not None}
        # The model's name is its hub id if that identifies the run, else the run's name.
        self.hub_id, self.dataset_id = hub_id(cfg.model.id), hub_id(cfg.dataset.path)
        unique = self.hub_id and model_name(self.hub_id) == source.name
        names = (self.hub_id if unique else source.name), source.dataset
        self.model, self.dataset = (str(x).encode(errors="replace").decode() for x in names)
        self.named = self.hub_id or f"local/{self.model}"  # for programs that want a developer
        # The same in every export of the run.
        key = [
            manifest.get(provenance.HASH),
            imported.get("fingerprint"),
            self.dataset,
            run.path.name,
        ]
        self.uid = UUID(bytes=hashlib.sha256(json.dumps(key).encode()).digest()[:16], version=4)
        times = pc.min(table["started"]), pc.max(table["finished"])
        self.began, self.ended = (_datetime(time.as_py(), created.get("time")) for time in times)


def run_infos(export: Export) -> Iterator[tuple[RunTable, RunInfo]]:
    """Yield runs with their metadata; skip, with a warning, runs of which nothing is graded.

    Raises UserError: nothing is graded in any run.
    """
    left = len(export.sources)
    for source in export.sources:
        try:
            info = RunInfo(source)
        except UserError as error:
            if not (left := left - 1):
                raise
            warn(f"{source.name} is skipped: {error}")
            export.meter.advance(source.table.num_rows)
        else:
            yield source, info


def questions(source: RunTable) -> dict[str, dict[str, Any]]:
    """Return the rows of the questions by id, with "" for a missing problem, gold or prompt."""
    texts, rows = ("problem", "gold", "prompt"), source.run.questions
    return {row["question_id"]: row | {name: row[name] or "" for name in texts} for row in rows}


def graded(export: Export, source: RunTable) -> Iterator[dict[str, Any]]:
    """Yield the graded attempts by question and trial, with columns added that logs have.

    `right`; `text` in two parts, `reasoning` (None if its end is not marked) and `response`;
    `usage` and `seconds`, None if unknown; `metadata`, for which logs have no field.
    """
    table, end = source.table.select(_COLUMNS), source.run.cfg.model.reasoning_end or ""
    for batch in export.batches(source, *["text"] * export.cfg.texts, table=table):
        for row in batch.to_pylist():
            if row["outcome"] is None:
                continue
            row["text"] = text = row.get("text") or ""
            start, times = final_part(text, end) or 0, (row["started"], row["finished"])
            row["reasoning"] = text[: start - len(end)] if start else None
            row["response"], row["right"] = text[start:], row["outcome"] == "correct"
            row["usage"] = usage(*(row[name] for name in _TOKENS))
            row["seconds"] = None if None in times else max(0.0, times[1] - times[0])
            row["metadata"] = {name: row[name] for name in _METADATA}
            yield row


def usage(prompt: int | None, completion: int | None) -> dict[str, int] | None:
    """Return token counts under the names that logs share; None if one is unknown."""
    if prompt is None or completion is None:
        return None
    total = prompt + completion
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": total}


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as texts, others than strings as JSON, without None."""
    present = {key: value for key, value in values.items() if value is not None}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in present.items()}


def hub_id(path: str) -> str | None:
    """Return the path if it is a hub id OWNER/NAME and no local file or folder; else None."""
    return path if HUB_ID.fullmatch(path) and not find_local(path) else None


def _datetime(seconds: float | None, created: Any) -> datetime:
    """Return the time of an attempt in UTC; if unknown, that of its folder, else 1970."""
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError):
        if seconds is None:
            return datetime.fromisoformat(created).astimezone(UTC)
        return datetime.fromtimestamp(seconds, UTC)
    return datetime.fromtimestamp(0, UTC)
