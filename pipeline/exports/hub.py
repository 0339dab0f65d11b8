"""A data set for the Hugging Face hub: attempts as Parquet, a card with the results, the upload."""

import json
from pathlib import Path

from pipeline.base.console import counted, note
from pipeline.base.errors import UserError
from pipeline.cohorts import cohort as cohorts_of
from pipeline.cohorts import compare, differences
from pipeline.cohorts.cohort import Cohort
from pipeline.cohorts.verdict import verdict
from pipeline.config.exports import ExportConfig
from pipeline.display import style
from pipeline.display.table import markdown, to_markdown
from pipeline.exports import flat
from pipeline.exports.about import hub_id
from pipeline.exports.reading import Export
from pipeline.prepare.hub import from_hub
from pipeline.store.files import file_stem

_CARD = """\
# {title}

{attempts} with response and grade. Every question was attempted several times (`trial` counts from
0), so scores have intervals: [how](https://arxiv.org/abs/2510.04265).

```python
from datasets import load_dataset

attempts = load_dataset("FOLDER_OR_ID", "{config}", split="train")
```

{parts}

## Columns

`outcome`: correct, wrong, no_answer, unparsable, timeout; null: not graded. `answer` was extracted
from `text`, `gold` is the right one, `prompt` what the model saw; `finish_reason` is length where
the token limit cut the response off. `verdict_a`, `verdict_b`, `verdict_c`: a verifier's
probabilities of correct, incorrect, invalid. `category_RUBRIC`: the number of a rubric's category.
"""


def write(export: Export, folder: Path) -> None:
    """Write data/DATASET/NNN-RUN.parquet, pictures, and README.md with the results in it.

    Raises UserError: nothing is graded.
    """
    import huggingface_hub  # seconds, both
    from datasets import DatasetInfo, Features
    from datasets.info import DatasetInfosDict

    cohorts, infos = cohorts_of.load(export.cfg), DatasetInfosDict()
    for number, source in enumerate(export.sources):
        name = file_stem(source.dataset)
        path = folder / "data" / name / f"{number:03d}-{file_stem(source.name)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = flat.write_rows(flat.tables(export, [source]), path)
        infos[name] = DatasetInfo(features=Features.from_arrow_schema(schema))
    (folder / "images").mkdir()
    title = f"Attempts of reasoning models: {', '.join(cohort.dataset for cohort in cohorts)}"
    card = huggingface_hub.DatasetCardData(
        pretty_name=title,
        task_categories=["text-generation"],
        tags=["evaluation", "reasoning", "bayes-at-n"],
        configs=[{"config_name": name, "data_files": f"data/{name}/*.parquet"} for name in infos],
    )
    infos.to_dataset_card_data(card)
    parts = "\n\n".join(_part(cohort, export.cfg, folder / "images") for cohort in cohorts)
    rows = counted(sum(source.table.num_rows for source in export.sources), "attempt")
    text = _CARD.format(title=markdown(title), attempts=rows, config=next(iter(infos)), parts=parts)
    (folder / "README.md").write_text(f"---\n{card}\n---\n\n{text}", encoding="utf-8")


def _part(cohort: Cohort, cfg: ExportConfig, images: Path) -> str:
    """The results of a data set, and how its runs were sampled, without paths of this machine."""
    tables, stem = compare.tables_of(cohort, cfg), file_stem(cohort.dataset)
    style.save(compare.figures_of(cohort, cfg, tables)["forest"], images / stem)
    models = {member.name: member.run.cfg.model for member in cohort.members}
    ids = {name: [of.id, of.revision] for name, of in models.items() if hub_id(of.id)}
    protocol = {"models": ids} | differences.protocol(cohort.members[0].run)
    parts = (
        f"## {markdown(cohort.dataset)}",
        markdown(verdict(cohort, cfg).sentence()),
        to_markdown(compare.brief(tables, cfg)),
        f"![Scores with intervals](images/{stem}.png)",
        f"How {markdown(cohort.names[0])} was sampled; below the table is what is not alike:",
        json.dumps(protocol, indent=6).replace("{", "    {", 1).replace("\n}", "\n    }"),
    )
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
    with from_hub(f"push={repo}", remedy, asked=False, done="uploaded"):
        api = huggingface_hub.HfApi()
        url = api.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        # What an export before left there and this one lacks goes.
        kept = {"ignore_patterns": ["export.json"], "delete_patterns": ["data/**", "images/**"]}
        api.upload_folder(repo_id=repo, repo_type="dataset", folder_path=folder, **kept)
    return str(url)
