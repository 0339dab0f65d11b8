"""inspect_ai's log, version 2: an `.eval` a run, whose epochs are the trials.

An `.eval` is a zip with one JSON file a sample. The library's public writer takes a whole log from
memory; here samples go into the zip one by one, checked and put into JSON by its types (0.3.285).
"""

import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid5

import pyarrow.compute as pc

from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records.about import (
    LIBRARY,
    VERSION,
    About,
    abouts,
    graded,
    questions,
    usage,
)
from bayes_at_n.pipeline.records.names import safe_name
from bayes_at_n.pipeline.records.reading import Export, Source

_STOPS = {"stop": "stop", "length": "max_tokens"}


def write(export: Export, folder: Path) -> None:
    """Write DATE_DATASET_ID.eval of every run.

    Raises UserError: nothing is graded.
    """
    import inspect_ai.log
    import inspect_ai.model
    import inspect_ai.scorer

    for source, of in abouts(export):
        try:
            _write(inspect_ai, export, source, of, folder)
        except (TypeError, ValueError) as error:  # of texts where something else should be
            lacks = f"no log of inspect_ai: {one_line(error)}"
            raise UserError(f"{source.run.path}: {lacks}") from error


def _write(lib: Any, export: Export, source: Source, of: About, folder: Path) -> None:
    summaries = []
    asked = {id: _question(row) for id, row in questions(source).items()}
    name = f"{of.ended:%Y-%m-%dT%H-%M-%S}+00-00_{safe_name(of.dataset)}_{of.uid.hex}.eval"
    with zipfile.ZipFile(folder / name, "w") as archive:
        for row in graded(export, source):
            sample = _sample(lib, row, asked[row["question_id"]], of)
            _put(archive, f"samples/{sample.id}_epoch_{sample.epoch}.json", _json(sample))
            summaries.append(_json(sample.summary()))
        _put(archive, "summaries.json", b"[" + b",".join(summaries) + b"]")
        _put(archive, "header.json", _json(lib.log.EvalLog.model_validate(_header(source, of))))


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file, of no time: the same run gives the same bytes."""
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 1)  # 6 takes thrice as long


def _json(model: Any) -> bytes:
    return bytes(model.model_dump_json(exclude_none=True).encode())


def _header(source: Source, of: About) -> dict[str, Any]:
    """All but the samples."""
    ids = [row["question_id"] for row in source.run.questions]
    scores = {metric.name: score._asdict() for metric, score in of.scores}
    values = {"accuracy": scores.get("avg", {}).get("value"), "stderr": of.stderr}
    metrics = {name: {"name": name, "value": x} for name, x in values.items() if x is not None}
    known = {"confidence": of.confidence, "interval": of.interval, **scores}
    tokens = (pc.sum(source.table[f"{part}_tokens"]) for part in ("prompt", "completion"))
    used = {of.called: usage(*(number.as_py() or 0 for number in tokens))}
    began, ended = of.began.isoformat(), of.ended.isoformat()
    reached = {"name": "grade", "scorer": "grade", "reducer": "mean", "metrics": metrics}
    results = {"total_samples": len(ids) * of.trials, "completed_samples": of.graded}
    spec: dict[str, Any] = {
        **dict.fromkeys(("eval_id", "run_id", "task_id"), of.uid.hex),
        **{"created": began, "task": of.dataset, "model": of.called, "solver": "generate"},
        "dataset": {"name": of.dataset, "samples": len(ids), "sample_ids": ids},
        "config": {"epochs": of.trials, "epochs_reducer": ["mean"]},
        "scorers": [{"name": "grade", "metrics": [{"name": name} for name in metrics]}],
        "model_generate_config": of.arguments,
        "packages": {LIBRARY: VERSION},
        "metadata": {"run": source.name, "scores": known, **of.sampling},
    }
    return {
        **{"version": 2, "status": "success", "eval": spec},
        "plan": {"steps": [{"solver": "generate"}]},
        "stats": {"started_at": began, "completed_at": ended, "model_usage": used},
        "results": results | {"scores": [reached | {"metadata": known}]},
    }


def _question(row: dict[str, Any]) -> dict[str, Any]:
    """What all samples of a question have in common; chat turns of a server are stored as JSON."""
    turns = [{"role": "user", "content": row["prompt"] or row["problem"]}]
    if row["prompt_token_ids"] is None and row["prompt"].startswith("["):
        turns = json.loads(row["prompt"])
    turns = [turn | {"id": f"{row['question_id']}-{i}"} for i, turn in enumerate(turns)]
    asked = {"id": row["question_id"], "input": row["problem"], "target": row["gold"]}
    return asked | {"choices": row["choices"], "messages": turns}


def _sample(lib: Any, row: dict[str, Any], question: dict[str, Any], of: About) -> Any:
    """An attempt in the library's types, made one by one: at once they take thrice as long."""
    key, make = str(uuid5(of.uid, f"{row['question_id']} {row['trial']}")), lib.model
    content = [make.ContentText(text=row["response"])]
    if row["reasoning"] is not None:
        content.insert(0, make.ContentReasoning(reasoning=row["reasoning"]))
    answer = make.ChatMessageAssistant(id=key, source="generate", content=content)
    stop = _STOPS.get(row["finish_reason"], "unknown")
    choice = make.ChatCompletionChoice(message=answer, stop_reason=stop)
    used = row["usage"] and make.ModelUsage(**row["usage"])
    value, why = {"value": "C" if row["right"] else "I"}, {"metadata": {"layer": row["layer"]}}
    score = lib.scorer.Score(answer=row["answer"], explanation=row["reason"], **value, **why)
    return lib.log.EvalSample(
        **question | {"messages": [*question["messages"], answer]},
        uuid=key,
        epoch=row["trial"] + 1,
        output=make.ModelOutput(model=of.called, choices=[choice], usage=used, time=row["seconds"]),
        scores={"grade": score},
        metadata=row["said"],
        model_usage={of.called: used} if used else {},
        total_time=row["seconds"],
    )
