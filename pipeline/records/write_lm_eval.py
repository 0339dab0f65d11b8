"""lm-evaluation-harness: results_DATE.json and samples_TASK_DATE.jsonl, one line a question.

After lm_eval 0.4.13: its tracker, `result_schema.py` and what reads them. The trials of a question
are the repeats of its one request; `exact_match` has a number for each, `acc` their mean.
"""

import hashlib
import json
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.records.about import LIBRARY, About, abouts, graded, questions
from bayes_at_n.pipeline.records.names import safe_name
from bayes_at_n.pipeline.records.reading import Export, Source
from bayes_at_n.pipeline.store import runfolder

_METRICS = ("acc", "exact_match")


def write(export: Export, folder: Path) -> None:
    """Write MODEL/results_DATE.json and MODEL/samples_TASK_DATE.jsonl of every run.

    Raises UserError: nothing is graded.
    """
    for source, of in abouts(export):
        task = safe_name(source.dataset)
        place = folder / re.sub(r'["<>:/|\\?*\[\]]+', "__", of.called)  # as they make it
        place.mkdir(exist_ok=True)
        # Two runs may have ended in one second: the rest of it is of the run's id.
        date = f"{of.ended:%Y-%m-%dT%H-%M-%S}.{of.uid.int % 10**6:06d}"
        given = of.arguments.items()
        arguments = {name.replace("max_tokens", "max_gen_toks"): x for name, x in given}
        asked = {id: (i, row) for i, (id, row) in enumerate(questions(source).items())}
        with (place / f"samples_{task}_{date}.jsonl").open("wb") as file:
            for name, rows in groupby(graded(export, source), itemgetter("question_id")):
                sample = _sample(*asked[name], [*rows], arguments)
                file.write(json.dumps(sample).encode() + b"\n")
        runfolder.write_json(place / f"results_{date}.json", _header(source, of, task, arguments))


def _sample(
    number: int, question: dict[str, Any], rows: list[dict[str, Any]], arguments: dict[str, Any]
) -> dict[str, Any]:
    """One question with its attempts; `trials` is our own, where one of them is not there."""
    doc = {key: question[key] for key in ("question_id", "problem", "gold", "choices")}
    said = {"doc": json.dumps(doc), "prompt": question["prompt"], "target": question["gold"]}
    right, trials = [float(row["right"]) for row in rows], [row["trial"] for row in rows]
    return {
        "doc_id": number,
        "doc": doc,
        "target": question["gold"],
        "arguments": {"gen_args_0": {"arg_0": question["prompt"], "arg_1": arguments}},
        "resps": [[row["text"] for row in rows]],
        "filtered_resps": [[row["answer"] or "" for row in rows]],
        "filter": "none",
        "metrics": _METRICS,
        **{f"{key}_hash": hashlib.sha256(x.encode()).hexdigest() for key, x in said.items()},
        "acc": sum(right) / len(right),
        "exact_match": right,
        **({} if trials == [*range(len(rows))] else {"trials": trials}),
    }


def _header(source: Source, of: About, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The aggregate; intervals, for which it has no room, stand under our own name."""
    number, intervals = len(source.run.questions), {m.name: x._asdict() for m, x in of.scores}
    scores: dict[str, Any] = {"alias": task, "sample_len": number}
    for name in _METRICS if "avg" in intervals else ():
        scores[f"{name},none"] = intervals["avg"]["value"]
        scores[f"{name}_stderr,none"] = "N/A" if of.stderr is None else of.stderr
    config: dict[str, Any] = {"task": task, "dataset_path": of.dataset_id, "repeats": of.trials}
    config |= {"output_type": "generate_until", "generation_kwargs": arguments}
    config |= {"metric_list": [{"metric": name, "higher_is_better": True} for name in _METRICS]}
    return {
        "results": {task: scores},
        "configs": {task: config},
        "versions": {task: None},
        "n-shot": {task: source.run.cfg.prompt.shots},
        "higher_is_better": {task: dict.fromkeys(_METRICS, True)},
        "n-samples": {task: {"original": number, "effective": number}},
        "config": {"model": of.engine.get("name"), "model_args": {"pretrained": of.called}},
        "date": of.began.timestamp(),
        "model_name": of.called,
        LIBRARY: {"confidence": of.confidence, "scores": intervals},
    }
