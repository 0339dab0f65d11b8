"""lm-evaluation-harness: sample logs of `--log_samples`, a line per question, read and written.

Each line has doc_id, doc, target, arguments, resps (per request a list with a text per repeat),
filtered_resps, filter, the names of its metrics and their values. After lm_eval 0.4.13: its
tracker, `result_schema.py` and their readers. The trials of a question are the repeats of its one
request; `exact_match` has a number for each, `acc` their mean.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.records import logs
from bayes_at_n.pipeline.records.about import LIBRARY, RunInfo, graded, questions, run_infos
from bayes_at_n.pipeline.records.columns import text, truth
from bayes_at_n.pipeline.records.names import safe_name
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.records.source import Source, json_lines, printable
from bayes_at_n.pipeline.store import runfolder

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")
_METRICS = ("exact_match", "acc", "accuracy", "correct", "pass@1")
_WRITTEN = ("acc", "exact_match")


def run_of(path: Path) -> dict[str, Any]:
    """Return task, model and folder of a file; of several of one folder and task the latest counts.

    The model is named in the results file beside the samples, else by the folder.
    """
    parts = _NAME.fullmatch(path.name)
    task = parts["task"] if parts else path.stem.removeprefix("samples_")
    named = path.parent.resolve().name.replace("__", "/", 1)
    for results in sorted(path.parent.glob(f"results_{parts['date'] if parts else ''}*.json")):
        named = runfolder.read_json(results).get("model_name") or named
    return {"task": task, "model": str(named), "path": str(path.parent)}


def filtered(source: Source, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the samples of the chosen filter, by default the first in the file.

    Raises UserError: no sample has the filter.
    """
    chosen = source.cfg.source.filter
    filters: Counter[str] = Counter()  # how many samples each has
    for place, sample in json_lines(path, source.skipped):
        filters[name := str(sample.get("filter", "none"))] += 1
        chosen = name if chosen is None else chosen
        if name == chosen:
            yield place, sample
    if filters and chosen is not None and not filters.pop(chosen, 0):
        listed = ", ".join(repr(printable(name)) for name in filters)
        what = f"filter={printable(chosen)}: not in {source.skipped.file(path)}"
        raise UserError(f"{what}, which has {listed}")
    if filters:
        others = ", ".join(f"{printable(name)} ({number})" for name, number in filters.items())
        what = f"{path.name}: filter {printable(str(chosen))} counts"
        note(f"import: {what}, not {others}; filter=NAME")


def values(run: dict[str, Any], sample: Any) -> dict[str, Any]:
    """Return the metric that counts: the first usable one of the first sample."""
    known = (*sample.get("metrics", ()), *_METRICS)
    own = {name: sample[name] for name in known if name in sample}
    if "counts" not in run:
        order = sorted(own, key=lambda name: [*_METRICS, name].index(name))
        usable = (n for n in order if truth(own[n]) is not None or type(own[n]) is list)
        run["counts"] = next(usable, None)
    return {run["counts"]: own.get(run["counts"])} if run["counts"] else {}


def attempts(_: dict[str, Any], sample: Any) -> dict[str, Any]:
    """Return what a sample has for every repeat, in lists if there are several."""
    texts = _first(sample.get("resps"))  # of the first request; none for log-likelihoods
    texts = texts if isinstance(texts, list) else [texts]
    texts = texts if all(isinstance(text, str) for text in texts) else []
    arguments, doc = sample.get("arguments"), sample.get("doc")
    request = arguments.get("gen_args_0") if isinstance(arguments, dict) else None
    prompt = request.get("arg_0") if isinstance(request, dict) else _first(arguments)
    answers, trials = _first(sample.get("filtered_resps")), sample.get("trials")
    if not isinstance(answers, list):  # one answer, which may belong to any of several repeats
        answers = [answers]
    more = {"problem": logs.problem(doc), "prompt": _first(prompt), "text": texts or None}
    if texts and len(answers) == len(texts):
        more["answer"] = [text(answer) for answer in answers]
    ours = isinstance(trials, list) and len(trials) == len(texts)
    more["trial"] = (trials if ours else [*range(len(texts))]) if texts else 0
    if isinstance(doc, dict) and {"question_id", "problem", "gold"} <= doc.keys():  # ours
        more["question"] = doc["question_id"]
    return more


def _first(value: Any) -> Any:
    return (value[0] if value else None) if isinstance(value, list) else value


def write(export: Export, folder: Path) -> None:
    """Write MODEL/results_DATE.json and MODEL/samples_TASK_DATE.jsonl of every run.

    Raises UserError: nothing is graded.
    """
    for source, info in run_infos(export):
        task = safe_name(source.dataset)
        subfolder = folder / re.sub(r'["<>:/|\\?*\[\]]+', "__", info.model)  # as lm_eval does
        subfolder.mkdir(exist_ok=True)
        # The microseconds come from the run's id: two runs may have ended in one second.
        date = f"{info.ended:%Y-%m-%dT%H-%M-%S}.{info.uid.int % 10**6:06d}"
        items = info.arguments.items()
        arguments = {name.replace("max_tokens", "max_gen_toks"): x for name, x in items}
        shared = {id: (i, row) for i, (id, row) in enumerate(questions(source).items())}
        with (subfolder / f"samples_{task}_{date}.jsonl").open("wb") as file:
            for name, rows in groupby(graded(export, source), itemgetter("question_id")):
                sample = _sample(*shared[name], [*rows], arguments)
                file.write(json.dumps(sample).encode() + b"\n")
        header = _header(source, info, task, arguments)
        runfolder.write_json(subfolder / f"results_{date}.json", header)


def _sample(
    number: int, question: dict[str, Any], rows: list[dict[str, Any]], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return a question with its attempts; add our own `trials` if some are missing."""
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
        **({} if trials == [*range(len(rows))] else {"trials": trials}),
    }


def _header(source: RunTable, info: RunInfo, task: str, args: dict[str, Any]) -> dict[str, Any]:
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
