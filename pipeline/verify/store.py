"""The verdicts of a run on the disk: what made them, their columns, reading and replacing them.

verdicts/*.parquet          one row an attempt (store.columns.VERDICTS)
verdicts/_verifier.json     what made them, and the calibration that is applied
verdicts/_baselines.jsonl   log-probs of the labels for prompts without content
verdicts/_disagreements.jsonl  where verifier and grader differ, for a person
_verdicts-HASH/             those of another verifier or prompt, taken back when it is asked again
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.prepare.questions import find_local
from bayes_at_n.pipeline.store import graded, parquet, records, rowkeys, runfolder
from bayes_at_n.pipeline.store.columns import VERDICTS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.verifiers.judge import calibration
from bayes_at_n.verifiers.judge.labels import LABELS, Floats

_VERSION = 1  # of how prompts are written and encoded; another one makes other verdicts


def folder(run: Run) -> Path:
    """Where the verdicts are."""
    return run.path / "verdicts"


def record(run: Run) -> Path:
    """The record of what made them, and of the calibration that is applied."""
    return folder(run) / "_verifier.json"


def identity(cfg: RunConfig, judge: RunConfig, template: str) -> dict[str, Any]:
    """Everything that decides a log-prob; none of it needs the model itself."""
    v, args = cfg.verifier, judge.engine.args
    local = find_local(str(v.id))
    chat = local / "chat_template.jinja" if local else None
    chat_text = chat.read_text("utf-8") if chat and chat.is_file() else ""
    return {
        "prompts": _VERSION,
        "engine": judge.engine.name,  # two engines round otherwise
        "weights": models.fingerprint(judge.model) if local else f"{v.id}@{v.revision}",
        "chat_template": runfolder.short_hash(chat_text) if chat_text else "",
        "chat_template_kwargs": dict(v.chat_template_kwargs),
        "template": runfolder.short_hash(template),
        "labels": [v.labels.correct, v.labels.incorrect, v.labels.invalid],
        "dtype": v.dtype,
        "context": v.context,
        **v.form(),
        # In a field they have been others since there are official prompts, not in older verdicts.
        **({"fences": True} if re.search('"""|```', template) else {}),
        **({"engine_args": args} if args else {}),  # quantisation, and nobody can tell what else
    }


def begin(run: Run, settings: dict[str, Any]) -> None:
    """Make room for verdicts of this identity, or take back those that were once put aside."""

    def aside(of: dict[str, Any]) -> Path:
        return run.path / f"_verdicts-{runfolder.short_hash(json.dumps(of, sort_keys=True))}"

    records.begin(record(run), {"settings": settings}, aside)


def remember(run: Run, **values: Any) -> None:
    """Write more into _verifier.json, beside the identity."""
    runfolder.write_json(record(run), runfolder.read_json(record(run)) | values)


def remembered(run: Run, key: str) -> Any:
    """A value of _verifier.json, None without it."""
    return runfolder.read_json(record(run)).get(key)


def judged(run: Run, columns: list[str]) -> tuple[pa.Table, Ints]:
    """Columns of every verdict, with the grader's `outcome` and `answer`, and its key."""
    table, keys = rowkeys.keyed(run, "verdicts", columns)
    for name, values in graded.aligned(run, ["outcome", "answer"], keys).items():
        table = table.append_column(name, values)
    return table, keys


def true_labels(outcome: Any) -> npt.NDArray[np.int8]:
    """The label that the grader's outcome stands for: 0 (A), 1 (B), 2 (C), or -1 for no view.

    >>> true_labels(pa.array(["correct", "wrong", "no_answer", "timeout", None])).tolist()
    [0, 1, 2, -1, -1]
    """
    label = pc.index_in(outcome, value_set=pa.array(["correct", "wrong", "no_answer"]))
    return np.asarray(pc.fill_null(label, -1).to_numpy(), dtype=np.int8)


def truth(run: Run, verdicts: pa.Table) -> Ints:
    """`true_labels` of what `judged` returned; a verifier that lacks C can only say B for it."""
    most = 2 if run.cfg.verifier.labels.invalid else 1
    return np.minimum(true_labels(verdicts["outcome"]), most).astype(np.int64)


def of_labels(rows: Any, kind: str = "") -> npt.NDArray[Any]:
    """The columns of A, B and C of a table or batch, (n, 3): "logprob_", "base_", "" calibrated."""
    return np.stack([rows[f"{kind}{label.lower()}"].to_numpy() for label in LABELS], axis=1)


def columns(logprobs: npt.ArrayLike, bases: Floats, temperature: float) -> dict[str, Any]:
    """The columns of VERDICTS that follow from log-probs (n, 3) and baselines (n, 3)."""
    logprobs = np.asarray(logprobs, dtype=np.float64)
    raw = np.exp(logprobs)
    calibrated = calibration.calibrate(logprobs, bases, temperature)
    kinds = {
        "logprob_": logprobs,
        "base_": bases,
        "raw_": raw,
        "direct_": calibration.direct(logprobs),
        "": calibrated,
    }
    numbers = {
        f"{kind}{label.lower()}": values[:, i].astype(np.float32)
        for kind, values in kinds.items()
        for i, label in enumerate(LABELS)
    }
    label = np.array(LABELS)[calibrated.argmax(axis=1)]
    return numbers | {"mass": raw.sum(axis=1).astype(np.float32), "label": label}


def rewrite(run: Run, change: Callable[[pa.Table], pa.Table]) -> int:
    """Replace every part by what `change` makes of it; returns the rows that are left."""
    rows = 0
    for path in sorted(folder(run).glob("*.parquet")):
        table = change(parquet.whole(path, VERDICTS))
        rows += table.num_rows
        if table.num_rows:
            parquet.write_part(path, table.cast(VERDICTS))
        else:
            path.unlink()
    return rows
