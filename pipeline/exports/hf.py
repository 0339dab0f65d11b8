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
        of, cfg = About(source), source.run.cfg.dataset
        place = folder / file_stem(source.name)
        (place / ".eval_results").mkdir(parents=True, exist_ok=True)
        data: dict[str, Any] = {"dataset_type": of.dataset, "dataset_name": of.dataset}
        if of.dataset_id is None:
            note(f"export: {of.dataset} is on no hub, so its scores are in model-index.yaml alone")
        elif of.scores:
            text = yaml.safe_dump([_entry(of, cfg.revision)], sort_keys=False, allow_unicode=True)
            path = place / ".eval_results" / f"{file_stem(source.dataset)}.yaml"
            path.write_text(text, encoding="utf-8")
            data |= {"dataset_type": of.dataset_id, "dataset_revision": cfg.revision}
            data |= {"dataset_config": cfg.subset, "dataset_split": cfg.split}
        for metric, score in of.scores:
            ends = {"stderr": score.sigma, "low": score.low, "high": score.high}
            arguments = {key: round(100 * float(value), 4) for key, value in ends.items()}
            result = EvalResult(
                task_type="text-generation",
                metric_type="accuracy" if metric.name == "avg" else metric.name,
                metric_name=f"{metric.title(of.trials)}, %",
                metric_value=round(100 * float(score.value), 4),
                metric_args=arguments | {"confidence": of.confidence, "trials": of.trials},
                **data,
            )
            found[place.name].append(result)
        card = ModelCardData(model_name=of.called, eval_results=found[place.name])
        (place / "model-index.yaml").write_text(f"{card}\n", encoding="utf-8")
        export.meter.advance(source.table.num_rows)


def _entry(of: About, revision: str | None) -> dict[str, Any]:
    """avg@N of a run as its data set's leaderboard takes it."""
    metric, score = of.scores[0]
    value, sigma, low, high = (100 * float(part) for part in score)
    task = _TASKS.get(str(of.dataset_id), "default")
    if str(of.dataset_id) not in _TASKS:
        note(f"export: task_id of {of.dataset_id} is not known here: see the eval.yaml there")
    said = [
        f"{metric.title(of.trials)} in %, {of.confidence:.0%} interval {low:.2f} to {high:.2f}",
        f"standard error {sigma:.2f} over trials",
        *([] if of.stderr is None else [f"{100 * of.stderr:.2f} over questions"]),
        f"{of.graded} attempts",
        *(f"{key} {value}" for key, value in of.arguments.items() if key != "seed"),
        LIBRARY,
    ]
    return {
        "dataset": {"id": of.dataset_id, "task_id": task}
        | ({"revision": revision} if revision else {}),
        "value": round(value, 4),
        "date": of.ended.date().isoformat(),
        "notes": ", ".join(said),
    }
