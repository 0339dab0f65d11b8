"""Scores for a model's page on the Hugging Face hub: `.eval_results/*.yaml`, and `model-index`.

After github.com/huggingface/hub-docs, read 2026-11-23: docs/hub/eval-results.md and modelcard.md.
The first has no field for uncertainty: there it stands in `notes`, in the second in `args`.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from pipeline.base.console import note
from pipeline.exports.about import LIBRARY, About
from pipeline.exports.reading import Export
from pipeline.store.files import file_stem

# The tasks of benchmarks on the hub, as their eval.yaml calls them.
_TASKS = {"Idavidrein/gpqa": "gpqa_diamond", "openai/gsm8k": "gsm8k"}
_TASKS |= {"MathArena/aime_2026": "MathArena/aime_2026"}


def write(export: Export, folder: Path) -> None:
    """Write RUN/.eval_results/DATASET.yaml and, of all data sets, RUN/model-index.yaml; in percent.

    Raises UserError: nothing of a run is graded.
    """
    from huggingface_hub import EvalResult, ModelCardData

    found: dict[str, list[EvalResult]] = defaultdict(list)
    for source in export.sources:
        of, cfg, stem = About(source), source.run.cfg.dataset, file_stem(source.name)
        data = {"dataset_config": cfg.subset, "dataset_split": cfg.split}
        data |= {"dataset_revision": cfg.revision}
        results = []
        for metric, score in of.scores:
            value, *rest = (round(100 * float(part), 4) for part in score)
            arguments = dict(zip(("stderr", "low", "high"), rest, strict=True))
            arguments |= {"confidence": of.confidence, "trials": of.trials}
            kind = "accuracy" if metric.name == "avg" else metric.name
            title = {"metric_name": f"{metric.title(of.trials)}, %", "metric_args": arguments}
            data_set = of.dataset_id or of.dataset, of.dataset
            results.append(
                EvalResult(
                    "text-generation",
                    *data_set,
                    kind,
                    value,
                    **title,
                    **(data if of.dataset_id else {}),
                )
            )
        (folder / stem / ".eval_results").mkdir(parents=True, exist_ok=True)
        if of.dataset_id is None:
            note(f"export: {of.dataset} is on no hub, so its scores are in model-index.yaml alone")
        elif results:
            path = folder / stem / ".eval_results" / f"{file_stem(source.dataset)}.yaml"
            text = yaml.safe_dump([_entry(of, results[0])], sort_keys=False, allow_unicode=True)
            path.write_text(text, encoding="utf-8")
        found[stem] += results
        card = ModelCardData(model_name=of.called, eval_results=found[stem])
        (folder / stem / "model-index.yaml").write_text(f"{card}\n", encoding="utf-8")
        export.meter.advance(source.table.num_rows)


def _entry(of: About, avg: Any) -> dict[str, Any]:
    """avg@N of a run as its data set's leaderboard takes it."""
    if avg.dataset_type not in _TASKS:
        note(f"export: task_id of {avg.dataset_type} is not known here: see the eval.yaml there")
    data = {"id": avg.dataset_type, "task_id": _TASKS.get(avg.dataset_type, "default")}
    data["revision"] = avg.dataset_revision
    notes = (
        "{confidence:.0%} interval {low:.2f} to {high:.2f}, standard error {stderr:.2f} over trials"
    )
    notes = f"{avg.metric_name}, {notes.format(**avg.metric_args)}"
    notes += "" if of.stderr is None else f", {100 * of.stderr:.2f} over questions"
    said = [f"{key} {value}" for key, value in of.arguments.items() if key != "seed"]
    return {
        "dataset": {k: v for k, v in data.items() if v},
        "value": avg.metric_value,
        "date": of.ended.date().isoformat(),
        "notes": ", ".join([notes, f"{of.graded} attempts", *said, LIBRARY]),
    }
