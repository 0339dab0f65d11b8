"""Every Eval Ever 0.3: scores with their uncertainty, and a file with a line per attempt.

After github.com/evaleval/every_eval_ever as of 2026-08-13 (0.3.0 on PyPI): schemas, validator and
converters. Values without a field of their own are texts in `metadata` or `additional_details`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.records.about import (
    LIBRARY,
    VERSION,
    RunInfo,
    graded,
    questions,
    run_infos,
    texts,
)
from bayes_at_n.pipeline.records.names import safe_name
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.store import runfolder

_RESERVED = ("data", "con", "prn", "aux", "nul")  # as names of folders, there or on Windows
_IDS = {"avg": "accuracy", "bayes": "bayes_at_n", "bayes-uniform": "bayes_at_n_uniform"}
_SIGMA = "analytic: trials are random, questions fixed"
_UNIT = {"metric_unit": "proportion", "score_type": "continuous", "lower_is_better": False}
_UNIT |= {"min_score": 0.0, "max_score": 1.0}
_US = {"source_name": LIBRARY, "source_type": "evaluation_run"}
_US |= {"source_organization_name": "unknown", "evaluator_relationship": "other"}


def write(export: Export, folder: Path) -> None:
    """Write data/DATASET/DEVELOPER/MODEL/UUID.json and UUID_samples.jsonl of every run.

    Raises UserError: nothing is graded.
    """
    for source, info in run_infos(export):
        checksum, model = hashlib.sha256(), info.named
        parts = ["data", *map(_portable, (info.dataset, *model.split("/", 1)))]
        place, name = folder.joinpath(*parts), f"{info.uid}_samples.jsonl"
        place.mkdir(parents=True, exist_ok=True)
        ids = {"schema_version": "0.3.0", "evaluation_id": f"{info.dataset}/{model}/{info.uid}"}
        results = _results(source, info, ids["evaluation_id"])
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
        whole = ids | _header(source, info, model) | {"evaluation_results": results}
        whole["detailed_evaluation_results"] = samples | {"total_rows": info.graded}
        runfolder.write_json(place / f"{info.uid}.json", whole)


def _portable(name: str) -> str:
    name = safe_name(name)
    return f"{name}_" if name.lower().partition(".")[0] in _RESERVED else name


def _header(source: RunTable, info: RunInfo, model: str) -> dict[str, Any]:
    """Return model, engine and time, which is never the current one: equal runs, equal files."""
    cfg, when = source.run.cfg.model, str(int(info.ended.timestamp()))
    details = texts({"run": source.name, "revision": cfg.revision})
    details |= {"dtype": cfg.dtype} if info.sampling else {}  # else it is not known
    details["deployment_type"] = "self_deployed" if info.engine else "unknown"
    details["model_availability"] = "open_weights" if info.engine and info.hub_id else "unknown"
    named = {"name": info.model, "id": model, "developer": model.partition("/")[0]}
    return {
        "evaluation_timestamp": when,
        "retrieved_timestamp": when,
        "source_metadata": _US,
        "eval_library": {"name": LIBRARY, "version": VERSION},
        "model_info": named | {"inference_engine": info.engine, "additional_details": details},
    }


def _results(source: RunTable, info: RunInfo, evaluation: str) -> list[dict[str, Any]]:
    """Return every score, each with the same data and sampling; attempts refer to the first."""
    data: dict[str, Any] = {"dataset_name": info.dataset, "source_type": "other"}
    if info.dataset_id:
        data |= {"source_type": "hf_dataset", "hf_repo": info.dataset_id}
        split = source.run.cfg.dataset.split
        data |= {"hf_split": ",".join(split) if isinstance(split, list) else split}
        data |= {"sample_ids": [row["question_id"] for row in source.run.questions]}
    arguments = {name: x for name, x in info.arguments.items() if name != "seed"}
    arguments |= texts({"prompt_template": info.sampling.get("prompt.template")})
    sampled = {"additional_details": texts({"trials": info.trials, **info.sampling})}
    results = []
    for metric, score in info.scores:
        usual = _IDS.get(metric.name, metric.key)
        kind = "pass_at_k" if metric.name.startswith("pass@") else usual
        config: dict[str, Any] = {"metric_id": kind, "metric_kind": kind, **_UNIT}
        config["metric_name"] = metric.title(info.trials)
        only_k = {"k": metric.k} if metric.k else {}
        config["metric_parameters"] = {"trials": info.trials} | only_k
        is_avg = metric.name == "avg"
        interval = {"lower": score.low, "upper": score.high, "confidence_level": info.confidence}
        fitted = metric.name == "bayes" and info.prior == "estimated"
        interval["method"] = "empirical Bayes over questions" if fitted else "normal"
        spread: dict[str, Any] = {"standard_error": {"value": score.sigma, "method": _SIGMA}}
        spread |= {"confidence_interval": interval, "num_samples": info.graded}
        over = texts({"standard_error_over_questions": info.stderr if is_avg else None})
        result = {"evaluation_result_id": f"{evaluation}/{metric.name}", "source_data": data}
        result |= {"evaluation_name": info.dataset, "metric_config": config}
        result["score_details"] = {"score": score.value, "uncertainty": spread, "details": over}
        results.append(result | {"generation_config": sampled | {"generation_args": arguments}})
    return results


def _question(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields shared by all attempts on a question."""
    sent = {"raw": row["problem"], "reference": [row["gold"]]}
    hashed = json.dumps(sent, sort_keys=True, separators=(",", ":")).encode()
    known = {"sample_id": row["question_id"], "sample_hash": hashlib.sha256(hashed).hexdigest()}
    return known | {"input": sent | {"formatted": row["prompt"], "choices": row["choices"]}}


def _attempt(row: dict[str, Any], run: str) -> dict[str, Any]:
    thoughts = None if row["reasoning"] is None else [row["reasoning"]]
    extracted = {"extracted_value": row["answer"], "extraction_method": row["layer"] or "unknown"}
    extracted |= {"turn_idx": 0, "source": "output.raw", "is_terminal": True}
    latency = {} if row["seconds"] is None else {"latency_ms": 1000 * row["seconds"]}
    return {
        "output": {"raw": [row["response"]], "reasoning_trace": thoughts},
        "answer_attribution": [] if row["answer"] is None else [extracted],
        "evaluation": {"score": float(row["right"]), "is_correct": row["right"]},
        "token_usage": row["usage"],
        "performance": latency,
        "metadata": texts({"run": run, **row["metadata"]}),
    }
