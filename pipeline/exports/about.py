"""What logs of other programs say of a run, and of its graded attempts one by one."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow.compute as pc

import scoring
from pipeline.base.engines import kind
from pipeline.base.environment import version
from pipeline.base.errors import UserError
from pipeline.base.program import PROGRAM
from pipeline.exports.reading import Export, Source
from pipeline.imports.names import model_name
from pipeline.prepare.questions import find_local
from pipeline.store import origin, outcomes
from pipeline.store.runfolder import read_manifest
from scoring.metrics.table import parse_all
from verifiers.maths.boxed import final_part

LIBRARY = "bayes-at-n"
VERSION = version(LIBRARY) or "unknown"
_ARGUMENTS = ("temperature", "top_p", "top_k", "max_tokens", "seed")
_SAID = ("trial", "seed", "outcome", "finish_reason")
_TOKENS = ("prompt_tokens", "completion_tokens")
_COLUMNS = ["question_id", *_SAID, *_TOKENS, "answer", "layer", "reason", "started", "finished"]


class About:
    """A run in the words of other programs. Raises UserError: nothing is graded."""

    def __init__(self, source: Source) -> None:
        run, cfg, manifest = source.run, source.run.cfg, read_manifest(source.run)
        made, imported, generated, identity = (
            manifest.get(key) or {}
            for key in ("created_with", "imported", "generated", origin.IDENTITY)
        )
        codes = np.full((len(run.questions), cfg.sampling.trials), outcomes.OWED, np.int8)
        words = outcomes.coded(source.table["outcome"], outcomes.OUTCOMES)
        codes[source.keys >> 32, source.keys & 0xFFFFFFFF] = words
        known, R = codes != outcomes.OWED, outcomes.correct(codes)
        if not known.any():
            raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} grade` first")
        self.trials, self.graded = codes.shape[1], int(known.sum())  # N, and attempts of M x N

        least, self.confidence = known.sum(axis=1).min(), cfg.scoring.confidence
        asked = parse_all([*dict.fromkeys(("avg", "bayes", *cfg.scoring.metrics))])
        metrics = [metric for metric in asked if metric.k <= least and not metric.votes]
        # The first is avg@N, if every question has a graded trial.
        self.scores = [(metric, metric.summary(R, self.confidence)) for metric in metrics]
        fitted = least and scoring.fits(R)  # see `scoring.metrics.empirical.covering_ci`
        self.interval = "empirical Bayes over questions, avg@N in it" if fitted else "normal"
        # Of avg@N over questions, as other harnesses have it.
        self.stderr = float(scoring.uncertainty(R).clustered) if least and len(R) > 1 else None

        # What sampled it on machines of the user's own, and with what; empty where not known.
        engine = cfg.engine.name
        versions = [of.get(engine) for of in generated.get("engines", ())]
        sampled_by = {"name": engine, "version": next(reversed(versions), None)}
        self.engine = {} if imported or kind(engine).served else texts(sampled_by)
        settings = {} if imported else identity
        self.sampling = {key: x for key, x in settings.items() if not isinstance(x, dict)}
        given = {name: self.sampling.get(f"sampling.{name}") for name in _ARGUMENTS}
        self.arguments = {name: x for name, x in given.items() if x is not None}

        # On the hub. The model is called so where that says which run it is, else as the run is.
        self.hub_id, self.dataset_id = hub_id(cfg.model.id), hub_id(cfg.dataset.path)
        enough = self.hub_id and model_name(self.hub_id) == source.name
        names = (self.hub_id if enough else source.name), source.dataset
        self.called, self.dataset = (str(x).encode(errors="replace").decode() for x in names)
        # The same in every export of the run.
        itself = json.dumps([manifest.get(origin.HASH), imported.get("fingerprint"), run.path.name])
        self.uid = UUID(bytes=hashlib.sha256(itself.encode()).digest()[:16], version=4)
        # When its attempts were made, in UTC; where none says it, the folder.
        times = pc.min(source.table["started"]), pc.max(source.table["finished"])
        self.began, self.ended = (_moment(time.as_py() or made.get("time")) for time in times)


def graded(export: Export, source: Source) -> Iterator[dict[str, Any]]:
    """The graded attempts by question and trial: columns of tables, and what logs make of them.

    `right`; `text` in two parts, `reasoning` (None where nothing marks its end) and `response`;
    `usage` and `seconds`, None where not known; `said`, what logs have no field for.
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
            row["said"] = {name: row[name] for name in _SAID}
            yield row


def usage(prompt: int | None, completion: int | None) -> dict[str, int] | None:
    """Tokens in the words that other programs share; None where a number is not known."""
    if prompt is None or completion is None:
        return None
    total = prompt + completion
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": total}


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Values as texts, as JSON where they are others, without those that are None."""
    there = {key: value for key, value in values.items() if value is not None}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in there.items()}


def hub_id(path: str) -> str | None:
    """A path that is a hub id OWNER/NAME, and no file or folder here; else None."""
    return path if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", path) and not find_local(path) else None


def _moment(value: Any) -> datetime:
    """Unix seconds, or a time in ISO 8601, in UTC; 1970 where it is neither."""
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value).astimezone(UTC)
        return datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
