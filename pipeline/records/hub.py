"""Exports for the Hugging Face hub: attempts with a dataset card, scores for a model's page.

Scores after github.com/huggingface/hub-docs, docs/hub/eval-results.md and modelcard.md, read
2026-11-23. The former has no field for uncertainty, which goes into `notes`, else into `args`.
"""

import json
import textwrap
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import note, plural
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.hub import from_hub
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare import comparison, differences
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.conclusion import conclude
from bayes_at_n.pipeline.config.analysis import AnalysisConfig, SelectionConfig
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.table import markdown, to_markdown
from bayes_at_n.pipeline.records import flat
from bayes_at_n.pipeline.records.about import LIBRARY, RunInfo, hub_id, run_infos
from bayes_at_n.pipeline.records.reading import Export
from bayes_at_n.pipeline.store.files import file_stem

# Task ids of benchmarks on the hub, from their eval.yaml.
_TASKS = {"Idavidrein/gpqa": "gpqa_diamond", "openai/gsm8k": "gsm8k"}
_TASKS |= {"MathArena/aime_2026": "MathArena/aime_2026"}
_SPREAD = (
    "{confidence:.0%} interval {low:.2f} to {high:.2f}, standard error {stderr:.2f} over trials"
)
_CARD = """\
---
{front}
---

# {title}

{attempts} with response and grade. Every question was attempted several times (`trial` counts from
0), so scores have intervals: [how](https://arxiv.org/abs/2510.04265). To load them:

```python
from datasets import load_dataset

attempts = load_dataset("FOLDER_OR_ID", "{config}", split="train")
```

{parts}

## Columns

`outcome`: correct, wrong, no_answer, unparsable, timeout, error; null: not graded. `answer` was
extracted from `text`, `gold` is the reference, `prompt` the model's input; `finish_reason` is
length if the token limit truncated the response. `verdict_a`, `verdict_b`, `verdict_c`: a
verifier's probabilities of correct, incorrect, invalid. `category_RUBRIC`: the number of a rubric's
category.
"""


def write(export: Export, folder: Path) -> None:
    """Write data/DATASET/NNN-RUN.parquet, figures, and README.md with the results.

    Raises UserError: nothing is graded.
    """
    import huggingface_hub  # seconds

    tables: dict[str, dict[Path, Any]] = defaultdict(dict)
    for source in export.sources:
        tables[source.dataset][source.run.path] = source.table
    cfg = AnalysisConfig(**{f.name: getattr(export.cfg, f.name) for f in fields(SelectionConfig)})
    cohorts = cohorts_of.load(cfg, tables)
    names = [file_stem(source.dataset) for source in export.sources]
    for number, source in enumerate(export.sources):
        path = folder / "data" / names[number] / f"{number:03d}-{file_stem(source.name)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        flat.write_rows(flat.tables(export, [source]), path)
    title = f"Attempts of reasoning models: {', '.join(cohort.dataset for cohort in cohorts)}"
    front = huggingface_hub.DatasetCardData(
        pretty_name=title,
        task_categories=["text-generation"],
        tags=["evaluation", "reasoning", LIBRARY],
        configs=[
            {"config_name": n, "data_files": f"data/{n}/*.parquet"} for n in dict.fromkeys(names)
        ],
    )
    parts = "\n\n".join(_part(cohort, cfg, folder / "images") for cohort in cohorts)
    rows = plural(sum(source.table.num_rows for source in export.sources), "attempt")
    heads = {"title": markdown(title), "attempts": rows, "config": names[0]}
    (folder / "README.md").write_text(_CARD.format(front=front, parts=parts, **heads), "utf-8")


def _part(cohort: Cohort, cfg: AnalysisConfig, images: Path) -> str:
    """Return a dataset's results and how its runs were sampled, without local paths."""
    tables, stem = comparison.tables_of(cohort, cfg), file_stem(cohort.dataset)
    forest = comparison.figures_of(cohort, cfg, tables)["forest"]
    atomic.replace_all(style.pictures(forest, images / stem))
    parts = [
        f"## {markdown(cohort.dataset)}",
        markdown(conclude(cohort, cfg).sentence()),
        to_markdown(comparison.brief(tables, cfg)),
        *([to_markdown(tables["caps"])] if "caps" in tables else []),
        f"![Scores with intervals](images/{stem}.png)",
    ]
    models = {member.name: member.run.cfg.model for member in cohort.members}
    ids = {name: [model.id, model.revision] for name, model in models.items() if hub_id(model.id)}
    if known := [member for member in cohort.members if differences.sampling_known(member.run)]:
        protocol = differences.protocol(known[0].run) | {"models": ids or None}
        protocol = {key: value for key, value in protocol.items() if value is not None}
        parts += [
            f"How {markdown(known[0].name)} was sampled; the table notes where others differ:",
            textwrap.indent(json.dumps(protocol, indent=2), "    "),
        ]
    return "\n\n".join(parts)


def push(repo: str, folder: Path) -> str:
    """Upload a folder as a dataset, which is created as a private one if missing.

    Returns its URL. Raises UserError: no token, no network, or no write access.
    """
    import huggingface_hub

    if huggingface_hub.get_token() is None:
        raise UserError(f"push={repo}: no hub token; run `hf auth login`, or set HF_TOKEN")
    note(f"export: uploading {folder} to {repo}")
    remedy = f"{folder} is complete; the same command uploads it"
    with from_hub(f"push={repo}", remedy, online=False, action="uploaded"):
        api = huggingface_hub.HfApi()
        url = api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        # Files of an earlier export that this one lacks are deleted.
        kept = {"ignore_patterns": ["export.json"], "delete_patterns": ["data/**", "images/**"]}
        api.upload_folder(repo_id=repo, repo_type="dataset", folder_path=folder, **kept)
    return str(url)


def write_scores(export: Export, folder: Path) -> None:
    """Write RUN/.eval_results/DATASET.yaml and, for all datasets, RUN/model-index.yaml, in percent.

    Raises UserError: nothing is graded.
    """
    from huggingface_hub import EvalResult, ModelCardData

    by_folder: dict[Path, list[EvalResult]] = defaultdict(list)
    notes: list[str] = []
    for source, info in run_infos(export):
        cfg, subfolder = source.run.cfg.dataset, folder / file_stem(source.name)
        subfolder.mkdir(exist_ok=True)
        on_hub = {"config": cfg.subset, "split": cfg.split, "revision": cfg.revision}
        data: dict[str, Any] = {f"dataset_{k}": v for k, v in on_hub.items() if info.dataset_id}
        results = []
        for metric, score in info.scores:
            value, *spread = (round(100 * float(part), 4) for part in score)
            more = dict(zip(("stderr", "low", "high"), spread, strict=True))
            more |= {"confidence": info.confidence, "trials": info.trials}
            kind = "accuracy" if metric.name == "avg" else metric.name
            data |= {"metric_name": f"{metric.title(info.trials)}, %", "metric_args": more}
            names = "text-generation", info.dataset_id or info.dataset, info.dataset, kind
            results.append(EvalResult(*names, value, **data))
        if info.dataset_id is None:
            notes += [f"{info.dataset} is not on the hub: its scores are in model-index.yaml only"]
        elif results:
            if info.dataset_id not in _TASKS:
                notes += [f"task_id of {info.dataset_id} is unknown: see the dataset's eval.yaml"]
            path = subfolder / ".eval_results" / f"{file_stem(source.dataset)}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(yaml.safe_dump([_entry(info, results[0])], sort_keys=False), "utf-8")
        by_folder[subfolder] += results
        card = ModelCardData(model_name=info.model, eval_results=by_folder[subfolder])
        (subfolder / "model-index.yaml").write_text(f"{card}\n", "utf-8")
        export.meter.advance(source.table.num_rows)
    for line in dict.fromkeys(notes):
        note(f"export: {line}")


def _entry(info: RunInfo, avg: Any) -> dict[str, Any]:
    """Return avg@N of a run in the form of its dataset's leaderboard."""
    data = {"id": avg.dataset_type, "task_id": _TASKS.get(avg.dataset_type, "default")}
    notes = [avg.metric_name, _SPREAD.format(**avg.metric_args)]
    notes += [] if info.stderr is None else [f"{100 * info.stderr:.2f} over questions"]
    notes.append(f"{info.graded} attempts")
    notes += [f"{k} {v}" for k, v in info.arguments.items() if k != "seed"]
    return {
        "dataset": data | ({"revision": r} if (r := avg.dataset_revision) else {}),
        "value": avg.metric_value,
        "date": info.ended.date().isoformat(),
        "notes": ", ".join([*notes, LIBRARY]),
    }
