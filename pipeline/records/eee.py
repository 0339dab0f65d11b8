"""Every Eval Ever 0.3: scores with their uncertainty, and beside them one line an attempt.

After github.com/evaleval/every_eval_ever as of 2026-08-13 (0.3.0 on PyPI): schemas, validator and
converters. What has no field there is a text in `metadata` or `additional_details`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.about import (
    LIBRARY,
    VERSION,
    About,
    abouts,
    graded,
    questions,
    texts,
)
from bayes_at_n.pipeline.records.names import safe_name
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.records.source import Records, Source, json_lines, printable
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.outcomes import OUTCOMES

_RESERVED = ("data", "con", "prn", "aux", "nul")  # as names of folders, there or on Windows
_IDS = {"avg": "accuracy", "bayes": "bayes_at_n", "bayes-uniform": "bayes_at_n_uniform"}
_SIGMA = "analytic: trials are random, questions fixed"
_UNIT = {"metric_unit": "proportion", "score_type": "continuous", "lower_is_better": False}
_UNIT |= {"min_score": 0.0, "max_score": 1.0}
_US = {"source_name": LIBRARY, "source_type": "evaluation_run"}
_US |= {"source_organization_name": "unknown", "evaluator_relationship": "other"}


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file that begins so has lines of attempts."""
    return b'"evaluation_id"' in head and b'"interaction_type"' in head


def read(source: Source) -> Records:
    """Yield the attempts of all files; of several results of one evaluation the first counts."""
    for path in source.files:
        counts: dict[str, Any] = {}
        for place, line in json_lines(path, source.skipped):
            try:
                task, result = line["evaluation_name"], line.get("evaluation_result_id")
                if counts.setdefault(task, result) == result:
                    yield place, _imported(line) | {"task": task}
                else:
                    source.skipped.add("lines of other results left out", place)
            except (LookupError, TypeError, AttributeError) as error:
                source.skipped.damaged(place, printable(one_line(error)))


def _imported(line: dict[str, Any]) -> dict[str, Any]:
    sent, more, used = line["input"], line.get("metadata") or {}, line.get("token_usage") or {}
    made, model = line.get("output") or {}, more.get("run") or line["model_id"]
    thought, answer = ((made.get(key) or [""])[0] for key in ("reasoning_trace", "raw"))
    right, outcome = line["evaluation"]["is_correct"], more.get("outcome")
    attempt = {name: more.get(name) for name in ("trial", "seed", "finish_reason")}
    attempt |= {"model": model, "question": line["sample_id"]}
    attempt |= {"problem": sent["raw"], "prompt": sent.get("formatted")}
    return attempt | {
        "gold": next(iter(sent["reference"]), None),
        "outcome": outcome if outcome in OUTCOMES else right,
        "answer": next((x["extracted_value"] for x in line["answer_attribution"][-1:]), None),
        "text": logs.joined(thought, answer, model),
        "num_prompt_tokens": used.get("input_tokens"),
        "num_completion_tokens": used.get("output_tokens"),
    }


def write(export: Export, folder: Path) -> None:
    """Write data/DATASET/DEVELOPER/MODEL/UUID.json and UUID_samples.jsonl of every run.

    Raises UserError: nothing is graded.
    """
    for source, of in abouts(export):
        checksum = hashlib.sha256()
        model = of.hub_id or f"local/{of.called}"
        parts = ["data", *map(_portable, (of.dataset, *model.split("/", 1)))]
        place, name = folder.joinpath(*parts), f"{of.uid}_samples.jsonl"
        place.mkdir(parents=True, exist_ok=True)
        ids = {"schema_version": "0.3.0", "evaluation_id": f"{of.dataset}/{model}/{of.uid}"}
        results = _results(source, of, ids["evaluation_id"])
        common = ids | {"model_id": model, "interaction_type": "single_turn"}
        common |= {key: results[0][key] for key in ("evaluation_name", "evaluation_result_id")}
        shared = {id: common | _question(row) for id, row in questions(source).items()}
        with (place / name).open("wb") as file:
            for row in graded(export, source):
                record = shared[row["question_id"]] | _attempt(row, source.name)
                line = json.dumps(record).encode() + b"\n"  # ASCII: they break lines at U+2028
                checksum.update(line)
                file.write(line)
        samples = {"format": "jsonl", "file_path": "/".join([*parts, name])}
        samples |= {"hash_algorithm": "sha256", "checksum": checksum.hexdigest()}
        whole = ids | _header(source, of, model) | {"evaluation_results": results}
        whole["detailed_evaluation_results"] = samples | {"total_rows": of.graded}
        runfolder.write_json(place / f"{of.uid}.json", whole)


def _portable(name: str) -> str:
    name = safe_name(name)
    return f"{name}_" if name.lower().partition(".")[0] in _RESERVED else name


def _header(source: RunTable, of: About, model: str) -> dict[str, Any]:
    """Return who, when and with what; "retrieved" is not now: a run gives the same file."""
    cfg, when = source.run.cfg.model, str(int(of.ended.timestamp()))
    details = texts({"run": source.name, "revision": cfg.revision})
    details |= {"dtype": cfg.dtype} if of.sampling else {}  # else it is not known
    details["deployment_type"] = "self_deployed" if of.engine else "unknown"
    details["model_availability"] = "open_weights" if of.engine and of.hub_id else "unknown"
    info = {"name": of.called, "id": model, "developer": model.partition("/")[0]}
    return {
        "evaluation_timestamp": when,
        "retrieved_timestamp": when,
        "source_metadata": _US,
        "eval_library": {"name": LIBRARY, "version": VERSION},
        "model_info": info | {"inference_engine": of.engine, "additional_details": details},
    }


def _results(source: RunTable, of: About, evaluation: str) -> list[dict[str, Any]]:
    """Return every score, each with the same data and sampling; attempts refer to the first."""
    data: dict[str, Any] = {"dataset_name": of.dataset, "source_type": "other"}
    if of.dataset_id:
        data |= {"source_type": "hf_dataset", "hf_repo": of.dataset_id}
        data |= {"hf_split": source.run.cfg.dataset.split}
        data |= {"sample_ids": [row["question_id"] for row in source.run.questions]}
    arguments = {name: x for name, x in of.arguments.items() if name != "seed"}
    arguments |= texts({"prompt_template": of.sampling.get("prompt.template")})
    sampled = {"additional_details": texts({"trials": of.trials, **of.sampling})}
    results = []
    for metric, score in of.scores:
        usual = _IDS.get(metric.name, metric.key)
        kind = "pass_at_k" if metric.name.startswith("pass@") else usual
        config: dict[str, Any] = {"metric_id": kind, "metric_kind": kind, **_UNIT}
        config["metric_name"] = metric.title(of.trials)
        config["metric_parameters"] = {"trials": of.trials} | ({"k": metric.k} if metric.k else {})
        is_avg = metric.name == "avg"
        interval = {"lower": score.low, "upper": score.high, "confidence_level": of.confidence}
        fitted = metric.name == "bayes" and of.prior == "estimated"
        interval["method"] = "empirical Bayes over questions" if fitted else "normal"
        spread: dict[str, Any] = {"standard_error": {"value": score.sigma, "method": _SIGMA}}
        spread |= {"confidence_interval": interval, "num_samples": of.graded}
        over = texts({"standard_error_over_questions": of.stderr if is_avg else None})
        result = {"evaluation_result_id": f"{evaluation}/{metric.name}", "source_data": data}
        result |= {"evaluation_name": of.dataset, "metric_config": config}
        result["score_details"] = {"score": score.value, "uncertainty": spread, "details": over}
        results.append(result | {"generation_config": sampled | {"generation_args": arguments}})
    return results


def _question(row: dict[str, Any]) -> dict[str, Any]:
    """Return what all attempts at a question have in common."""
    sent = {"raw": row["problem"], "reference": [row["gold"]]}
    hashed = json.dumps(sent, sort_keys=True, separators=(",", ":")).encode()
    known = {"sample_id": row["question_id"], "sample_hash": hashlib.sha256(hashed).hexdigest()}
    return known | {"input": sent | {"formatted": row["prompt"], "choices": row["choices"]}}


def _attempt(row: dict[str, Any], run: str) -> dict[str, Any]:
    thoughts = None if row["reasoning"] is None else [row["reasoning"]]
    extracted = {"extracted_value": row["answer"], "extraction_method": row["layer"] or "unknown"}
    extracted |= {"turn_idx": 0, "source": "output.raw", "is_terminal": True}
    took = {} if row["seconds"] is None else {"latency_ms": 1000 * row["seconds"]}
    return {
        "output": {"raw": [row["response"]], "reasoning_trace": thoughts},
        "answer_attribution": [] if row["answer"] is None else [extracted],
        "evaluation": {"score": float(row["right"]), "is_correct": row["right"]},
        "token_usage": row["usage"],
        "performance": took,
        "metadata": texts({"run": run, **row["metadata"]}),
    }
