"""For the Hugging Face hub: attempts with a card as a data set, and scores for a model's page.

Scores after github.com/huggingface/hub-docs, docs/hub/eval-results.md and modelcard.md, read
2026-11-23. The first has no field for uncertainty: there it stands in `notes`, else in `args`.
"""

import json
import textwrap
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base.console import note, plural
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare import comparison, differences
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.conclusion import conclude
from bayes_at_n.pipeline.config.analysis import AnalysisConfig, SelectionConfig
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.table import markdown, to_markdown
from bayes_at_n.pipeline.prepare.hub import from_hub
from bayes_at_n.pipeline.records import flat
from bayes_at_n.pipeline.records.about import LIBRARY, About, abouts, hub_id
from bayes_at_n.pipeline.records.reading import Export
from bayes_at_n.pipeline.store.files import file_stem

# The tasks of benchmarks on the hub, as their eval.yaml calls them.
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
extracted from `text`, `gold` is the right one, `prompt` what the model saw; `finish_reason` is
length where the token limit cut the response off. `verdict_a`, `verdict_b`, `verdict_c`: a
verifier's probabilities of correct, incorrect, invalid. `category_RUBRIC`: the number of a rubric's
category.
"""


def write(export: Export, folder: Path) -> None:
    """Write data/DATASET/NNN-RUN.parquet, pictures, and README.md with the results in it.

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
    (folder / "images").mkdir()
    parts = "\n\n".join(_part(cohort, cfg, folder / "images") for cohort in cohorts)
    rows = plural(sum(source.table.num_rows for source in export.sources), "attempt")
    heads = {"title": markdown(title), "attempts": rows, "config": names[0]}
    text = _CARD.format(front=front, parts=parts, **heads)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _part(cohort: Cohort, cfg: AnalysisConfig, images: Path) -> str:
    """Return the results of a data set and how its runs were sampled, without paths of ours."""
    tables, stem = comparison.tables_of(cohort, cfg), file_stem(cohort.dataset)
    style.save(comparison.figures_of(cohort, cfg, tables)["forest"], images / stem)
    parts = [
        f"## {markdown(cohort.dataset)}",
        markdown(conclude(cohort, cfg).sentence()),
        to_markdown(comparison.brief(tables, cfg)),
        *([to_markdown(tables["caps"])] if "caps" in tables else []),
        f"![Scores with intervals](images/{stem}.png)",
    ]
    models = {member.name: member.run.cfg.model for member in cohort.members}
    ids = {name: [of.id, of.revision] for name, of in models.items() if hub_id(of.id)}
    if known := [of for of in cohort.members if differences.sampling_known(of.run)]:
        protocol = differences.protocol(known[0].run) | {"models": ids or None}
        protocol = {key: value for key, value in protocol.items() if value is not None}
        parts += [
            f"How {markdown(known[0].name)} was sampled; where others differ the table says so:",
            textwrap.indent(json.dumps(protocol, indent=2), "    "),
        ]
    return "\n\n".join(parts)


def push(repo: str, folder: Path) -> str:
    """Upload a folder as a data set; one that is not there is made, and private.

    Returns its address. Raises UserError: no token, no network, no right to write there.
    """
    import huggingface_hub

    if huggingface_hub.get_token() is None:
        raise UserError(f"push={repo}: no token of the hub; `hf auth login`, or set HF_TOKEN")
    note(f"export: uploading {folder} to {repo}")
    remedy = f"{folder} is whole; the same command uploads it"
    with from_hub(f"push={repo}", remedy, online=False, action="uploaded"):
        api = huggingface_hub.HfApi()
        url = api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        # What an export before left there and this one lacks goes.
        kept = {"ignore_patterns": ["export.json"], "delete_patterns": ["data/**", "images/**"]}
        api.upload_folder(repo_id=repo, repo_type="dataset", folder_path=folder, **kept)
    return str(url)


def write_scores(export: Export, folder: Path) -> None:
    """Write RUN/.eval_results/DATASET.yaml and, of all data sets, RUN/model-index.yaml; in percent.

    Raises UserError: nothing is graded.
    """
    from huggingface_hub import EvalResult, ModelCardData

    by_folder: dict[Path, list[EvalResult]] = defaultdict(list)
    notes: list[str] = []
    for source, of in abouts(export):
        cfg, place = source.run.cfg.dataset, folder / file_stem(source.name)
        place.mkdir(exist_ok=True)
        on_hub = {"config": cfg.subset, "split": cfg.split, "revision": cfg.revision}
        data: dict[str, Any] = {f"dataset_{k}": v for k, v in on_hub.items() if of.dataset_id}
        results = []
        for metric, score in of.scores:
            value, *spread = (round(100 * float(part), 4) for part in score)
            more = dict(zip(("stderr", "low", "high"), spread, strict=True))
            more |= {"confidence": of.confidence, "trials": of.trials}
            kind = "accuracy" if metric.name == "avg" else metric.name
            data |= {"metric_name": f"{metric.title(of.trials)}, %", "metric_args": more}
            names = "text-generation", of.dataset_id or of.dataset, of.dataset, kind
            results.append(EvalResult(*names, value, **data))
        if of.dataset_id is None:
            notes += [f"{of.dataset} is on no hub, so its scores are in model-index.yaml alone"]
        elif results:
            if of.dataset_id not in _TASKS:
                notes += [f"task_id of {of.dataset_id} is not known here: see the eval.yaml there"]
            path = place / ".eval_results" / f"{file_stem(source.dataset)}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(yaml.safe_dump([_entry(of, results[0])], sort_keys=False), "utf-8")
        by_folder[place] += results
        card = ModelCardData(model_name=of.called, eval_results=by_folder[place])
        (place / "model-index.yaml").write_text(f"{card}\n", "utf-8")
        export.meter.advance(source.table.num_rows)
    for line in dict.fromkeys(notes):
        note(f"export: {line}")


def _entry(of: About, avg: Any) -> dict[str, Any]:
    """Return avg@N of a run as its data set's leaderboard takes it."""
    data = {"id": avg.dataset_type, "task_id": _TASKS.get(avg.dataset_type, "default")}
    notes = [avg.metric_name, _SPREAD.format(**avg.metric_args)]
    notes += [] if of.stderr is None else [f"{100 * of.stderr:.2f} over questions"]
    notes.append(f"{of.graded} attempts")
    notes += [f"{k} {v}" for k, v in of.arguments.items() if k != "seed"]
    return {
        "dataset": data | ({"revision": r} if (r := avg.dataset_revision) else {}),
        "value": avg.metric_value,
        "date": of.ended.date().isoformat(),
        "notes": ", ".join([*notes, LIBRARY]),
    }
