"""Write the logs of other programs: Every Eval Ever, inspect_ai and lm-evaluation-harness.

Every Eval Ever 0.3 after github.com/evaleval/every_eval_ever as of 2026-08-13 (0.3.0 on PyPI):
schemas, validator and converters; values without a field of their own are texts in `metadata` or
`additional_details`. inspect_ai after the classes of the library (0.3.285), whose writer takes a
whole log from memory. lm_eval after 0.4.13: its tracker, `result_schema.py` and their readers.
"""

import hashlib
import json
import re
import zipfile
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid5

import pyarrow.compute as pc

from bayes_at_n.pipeline.records import exporting
from bayes_at_n.pipeline.records.exporting import LIBRARY, VERSION, Export, RunInfo, RunTable
from bayes_at_n.pipeline.records.runs import safe_name
from bayes_at_n.pipeline.store import runfolder

_WRITTEN = ("acc", "exact_match")  # by lm-evaluation-harness
_HEAVY = ("messages", "output", "choices")  # of inspect_ai's sample, which its summary lacks
_STOPS = {"stop": "stop", "length": "max_tokens"}
_RESERVED = ("data", "con", "prn", "aux", "nul")  # as names of folders, there or on Windows
_IDS = {"avg": "accuracy", "bayes": "bayes_at_n", "bayes-uniform": "bayes_at_n_uniform"}
_SIGMA = "analytic: trials are random, questions fixed"
_UNIT = {"metric_unit": "proportion", "score_type": "continuous", "lower_is_better": False}
_UNIT |= {"min_score": 0.0, "max_score": 1.0}
_US = {"source_name": LIBRARY, "source_type": "evaluation_run"}
_US |= {"source_organization_name": "unknown", "evaluator_relationship": "other"}


def write_eee(export: Export, folder: Path) -> None:
    """Write data/DATASET/DEVELOPER/MODEL/UUID.json and UUID_samples.jsonl of every run."""
    for source, info in exporting.run_infos(export):
        checksum, model = hashlib.sha256(), info.named
        parts = ["data", *map(_portable, (info.dataset, *model.split("/", 1)))]
        place, name = folder.joinpath(*parts), f"{info.uid}_samples.jsonl"
        place.mkdir(parents=True, exist_ok=True)
        ids = {"schema_version": "0.3.0", "evaluation_id": f"{info.dataset}/{model}/{info.uid}"}
        results = _eee_results(source, info, ids["evaluation_id"])
        common = ids | {"model_id": model, "interaction_type": "single_turn"}
        common |= {key: results[0][key] for key in ("evaluation_name", "evaluation_result_id")}
        shared = {
            id: common | _eee_question(row) for id, row in exporting.questions(source).items()
        }
        with (place / name).open("wb") as file:
            for row in exporting.graded_attempts(export, source):
                record = shared[row["question_id"]] | _eee_attempt(row, source.name)
                line = json.dumps(record).encode() + b"\n"  # ASCII: they break lines at U+2028
                checksum.update(line)
                file.write(line)
        samples = {"format": "jsonl", "file_path": "/".join([*parts, name])}
        samples |= {"hash_algorithm": "sha256", "checksum": checksum.hexdigest()}
        whole = ids | _eee_header(source, info, model) | {"evaluation_results": results}
        whole["detailed_evaluation_results"] = samples | {"total_rows": info.graded}
        runfolder.write_json(place / f"{info.uid}.json", whole)


def _portable(name: str) -> str:
    name = safe_name(name)
    return f"{name}_" if name.lower().partition(".")[0] in _RESERVED else name


def _eee_header(source: RunTable, info: RunInfo, model: str) -> dict[str, Any]:
    """Return model, engine and time, which is never the current one: equal runs, equal files."""
    cfg, when = source.run.cfg.model, str(int(info.ended.timestamp()))
    details = exporting.texts({"run": source.name, "revision": cfg.revision})
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


def _eee_results(source: RunTable, info: RunInfo, evaluation: str) -> list[dict[str, Any]]:
    """Return every score, each with the same data and sampling; attempts refer to the first."""
    data: dict[str, Any] = {"dataset_name": info.dataset, "source_type": "other"}
    if info.dataset_id:
        data |= {"source_type": "hf_dataset", "hf_repo": info.dataset_id}
        split = source.run.cfg.dataset.split
        data |= {"hf_split": ",".join(split) if isinstance(split, list) else split}
        data |= {"sample_ids": [row["question_id"] for row in source.run.questions]}
    arguments = {name: x for name, x in info.arguments.items() if name != "seed"}
    arguments |= exporting.texts({"prompt_template": info.sampling.get("prompt.template")})
    sampled = {"additional_details": exporting.texts({"trials": info.trials, **info.sampling})}
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
        over = exporting.texts({"standard_error_over_questions": info.stderr if is_avg else None})
        result = {"evaluation_result_id": f"{evaluation}/{metric.name}", "source_data": data}
        result |= {"evaluation_name": info.dataset, "metric_config": config}
        result["score_details"] = {"score": score.value, "uncertainty": spread, "details": over}
        results.append(result | {"generation_config": sampled | {"generation_args": arguments}})
    return results


def _eee_question(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields shared by all attempts on a question."""
    sent = {"raw": row["problem"], "reference": [row["gold"]]}
    hashed = json.dumps(sent, sort_keys=True, separators=(",", ":")).encode()
    known = {"sample_id": row["question_id"], "sample_hash": hashlib.sha256(hashed).hexdigest()}
    return known | {"input": sent | {"formatted": row["prompt"], "choices": row["choices"]}}


def _eee_attempt(row: dict[str, Any], run: str) -> dict[str, Any]:
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
        "metadata": exporting.texts({"run": run, **row["metadata"]}),
    }


def write_inspect(export: Export, folder: Path) -> None:
    """Write DATE_DATASET_ID.eval of every run."""
    for source, info in exporting.run_infos(export):
        summaries = list[dict[str, Any]]()
        shared = {id: _inspect_question(row) for id, row in exporting.questions(source).items()}
        task = safe_name(info.dataset)
        name = f"{info.ended:%Y-%m-%dT%H-%M-%S}+00-00_{task}_{info.uid.hex}.eval"
        with zipfile.ZipFile(folder / name, "w") as packed:
            for row in exporting.graded_attempts(export, source):
                sample = _inspect_sample(row, shared[row["question_id"]], info)
                _put(packed, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", sample)
                summary = {key: value for key, value in sample.items() if key not in _HEAVY}
                summaries.append(summary | {"input": sample["input"][:1000], "completed": True})
            _put(packed, "summaries.json", summaries)
            _put(packed, "header.json", _inspect_header(source, info))


def _put(packed: zipfile.ZipFile, name: str, value: Any) -> None:
    """Add a file without a time stamp: equal runs give equal bytes."""
    data = json.dumps(value).encode()
    packed.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 1)  # 6 takes thrice as long


def _inspect_header(source: RunTable, info: RunInfo) -> dict[str, Any]:
    """Return everything but the samples."""
    ids = [row["question_id"] for row in source.run.questions]
    scores = {metric.name: score._asdict() for metric, score in info.scores}
    values = {"accuracy": scores.get("avg", {}).get("value"), "stderr": info.stderr}
    metrics = {name: {"name": name, "value": x} for name, x in values.items() if x is not None}
    known = {"confidence": info.confidence, "prior": info.prior, **scores}
    tokens = (pc.sum(source.table[f"{part}_tokens"]) for part in ("prompt", "completion"))
    used = {info.named: exporting.usage(*(number.as_py() or 0 for number in tokens))}
    began, ended = info.began.isoformat(), info.ended.isoformat()
    reached = {"name": "grade", "scorer": "grade", "reducer": "mean", "metrics": metrics}
    results = {"total_samples": len(ids) * info.trials, "completed_samples": info.graded}
    provider = "vllm" if info.engine.get("name") == "vllm" else "hf"  # by which others know paths
    spec: dict[str, Any] = {
        **dict.fromkeys(("eval_id", "run_id", "task_id"), info.uid.hex),
        **{"created": began, "task": info.dataset, "solver": "generate"},
        "model": f"{provider}/{info.named}",
        "dataset": {"name": info.dataset, "samples": len(ids), "sample_ids": ids},
        "config": {"epochs": info.trials, "epochs_reducer": ["mean"]},
        "scorers": [{"name": "grade", "metrics": [{"name": name} for name in metrics]}],
        "model_generate_config": info.arguments,
        "packages": {LIBRARY: VERSION},
        "metadata": {"run": source.name, "scores": known, **info.sampling},
    }
    return {
        **{"version": 2, "status": "success", "eval": spec},
        "plan": {"steps": [{"solver": "generate"}]},
        "stats": {"started_at": began, "completed_at": ended, "model_usage": used},
        "results": results | {"scores": [reached | {"metadata": known}]},
    }


def _inspect_question(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields shared by all samples of a question, whose prompt may be chat turns."""
    turns = [{"role": "user", "content": row["prompt"] or row["problem"]}]
    if row["prompt_token_ids"] is None and row["prompt"].startswith("["):
        turns = json.loads(row["prompt"])
    turns = [turn | {"id": f"{row['question_id']}-{i}"} for i, turn in enumerate(turns)]
    shared = {"id": row["question_id"], "input": row["problem"], "target": row["gold"]}
    return shared | {"choices": row["choices"], "messages": turns}


def _inspect_sample(row: dict[str, Any], question: dict[str, Any], info: RunInfo) -> dict[str, Any]:
    """Return an attempt."""
    key = str(uuid5(info.uid, f"{row['question_id']} {row['trial']}"))
    content = [{"type": "text", "text": row["response"]}]
    if row["reasoning"] is not None:
        content.insert(0, {"type": "reasoning", "reasoning": row["reasoning"]})
    answer = {"id": key, "role": "assistant", "source": "generate", "content": content}
    choice = {"message": answer, "stop_reason": _STOPS.get(row["finish_reason"], "unknown")}
    score = {"value": "C" if row["right"] else "I", "answer": row["answer"]}
    score |= {"explanation": row["reason"], "metadata": {"layer": row["layer"]}}
    output = {"model": info.named, "choices": [choice], "completion": row["response"]}
    return question | {
        "uuid": key,
        "epoch": row["trial"] + 1,
        "messages": [*question["messages"], answer],
        "output": output | {"usage": row["usage"], "time": row["seconds"]},
        "scores": {"grade": score},
        "metadata": row["metadata"],
        "model_usage": {info.named: row["usage"]} if row["usage"] else {},
        "total_time": row["seconds"],
    }


def write_lm_eval(export: Export, folder: Path) -> None:
    """Write MODEL/results_DATE.json and MODEL/samples_TASK_DATE.jsonl of every run."""
    for source, info in exporting.run_infos(export):
        task = safe_name(source.dataset)
        subfolder = folder / re.sub(r'["<>:/|\\?*\[\]]+', "__", info.model)  # as lm_eval does
        subfolder.mkdir(exist_ok=True)
        # The microseconds come from the run's id: two runs may have ended in one second.
        date = f"{info.ended:%Y-%m-%dT%H-%M-%S}.{info.uid.int % 10**6:06d}"
        items = info.arguments.items()
        arguments = {name.replace("max_tokens", "max_gen_toks"): x for name, x in items}
        shared = {id: (i, row) for i, (id, row) in enumerate(exporting.questions(source).items())}
        with (subfolder / f"samples_{task}_{date}.jsonl").open("wb") as file:
            for name, rows in groupby(
                exporting.graded_attempts(export, source), itemgetter("question_id")
            ):
                sample = _lm_eval_sample(*shared[name], [*rows], arguments)
                file.write(json.dumps(sample).encode() + b"\n")
        header = _lm_eval_header(source, info, task, arguments)
        runfolder.write_json(subfolder / f"results_{date}.json", header)


def _lm_eval_sample(
    number: int, question: dict[str, Any], rows: list[dict[str, Any]], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return a question with its attempts, and our own `outcomes`; `trials` if some are missing."""
    doc = {key: question[key] for key in ("question_id", "problem", "gold", "choices")}
    hashed = {"doc": json.dumps(doc), "prompt": question["prompt"], "target": question["gold"]}
    right, trials = [float(row["right"]) for row in rows], [row["trial"] for row in rows]
    return {
        "doc_id": number,
        "doc": doc,
        "target": question["gold"],
        "arguments": {"gen_args_0": {"arg_0": question["prompt"], "arg_1": arguments}},
        "resps": [[row["text"] for row in rows]],
        "filtered_resps": [[row["answer"] or "" for row in rows]],
        "filter": "none",
        "metrics": _WRITTEN,
        **{f"{key}_hash": hashlib.sha256(x.encode()).hexdigest() for key, x in hashed.items()},
        "acc": sum(right) / len(right),
        "exact_match": right,
        "outcomes": [row["outcome"] for row in rows],
        **({} if trials == [*range(len(rows))] else {"trials": trials}),
    }


def _lm_eval_header(
    source: RunTable, info: RunInfo, task: str, args: dict[str, Any]
) -> dict[str, Any]:
    """Return the aggregate results; intervals, which have no field, are under our own key."""
    number, intervals = len(source.run.questions), {m.name: x._asdict() for m, x in info.scores}
    scores: dict[str, Any] = {"alias": task, "sample_len": number}
    for name in _WRITTEN if "avg" in intervals else ():
        scores[f"{name},none"] = intervals["avg"]["value"]
        scores[f"{name}_stderr,none"] = "N/A" if info.stderr is None else info.stderr
    config: dict[str, Any] = {"task": task, "dataset_path": info.dataset_id, "repeats": info.trials}
    config |= {"output_type": "generate_until", "generation_kwargs": args}
    config |= {"metric_list": [{"metric": name, "higher_is_better": True} for name in _WRITTEN]}
    return {
        "results": {task: scores},
        "configs": {task: config},
        "versions": {task: None},
        "n-shot": {task: source.run.cfg.prompt.shots},
        "higher_is_better": {task: dict.fromkeys(_WRITTEN, True)},
        "n-samples": {task: {"original": number, "effective": number}},
        "config": {"model": info.engine.get("name"), "model_args": {"pretrained": info.model}},
        "date": info.began.timestamp(),
        "model_name": info.model,
        LIBRARY: {"confidence": info.confidence, "scores": intervals},
    }
