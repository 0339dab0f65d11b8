"""Every dataset's YAML against the row beside it, every model's card, and the check on the hub."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from helpers import Capsys, write_questions

from bayes_at_n import verifiers
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.protocol import DatasetConfig, ModelConfig
from bayes_at_n.pipeline.prepare import catalogue, models
from bayes_at_n.prompts import fill, options, render, turns
from bayes_at_n.verifiers.answers.kinds import OR

DATASETS = {cfg.name: cfg for cfg in catalogue.entries("dataset", DatasetConfig)}
CHOICE = [{"override /prompt@_global_.prompt": "choice"}]
# A file of a public repository and its commit; a card on the hub that public scripts quote.
SOURCE = re.compile(r"([\w.-]+/[\w.-]+@[0-9a-f]{40}|huggingface.co/[\w.-]+/[\w.-]+)/[\w./-]+")


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    return models.tokenizer_of(compose.load(["model=demo"]))


@pytest.mark.parametrize("name", DATASETS)
def test_a_sample_is_read_and_rendered(name: str, tokenizer: Any) -> None:
    """With the prompt that the YAML file chooses, and categories where it names columns."""
    dataset = DATASETS[name]
    question = catalogue.sample(dataset)
    file = yaml.safe_load((compose.CONFIGS / "dataset" / f"{name}.yaml").read_bytes())
    chosen = "choice" if file.get("defaults") == CHOICE else "boxed"
    assert bool(question.choices) == (chosen == "choice")
    prompt = yaml.safe_load((compose.CONFIGS / "prompt" / f"{chosen}.yaml").read_bytes())
    text = fill(prompt["template"], question.problem, choices=options(question.choices))
    [rendered] = render(tokenizer, [turns(text, None)])
    assert question.problem in rendered.text and options(question.choices) in rendered.text
    named = dataset.fields.category
    assert len(question.category) == len([named] if isinstance(named, str) else named or [])
    assert all(question.category)


def test_the_gold_of_every_sample_is_correct_in_a_box() -> None:
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for cfg in DATASETS.values():
        if cfg.answer == "code":  # tests/verifiers/test_code.py runs their solutions
            continue
        question = catalogue.sample(cfg)
        for gold in question.gold.split(OR):
            asked = verifiers.Asked(choices=question.choices, gold=gold)
            text = f"So it is \\boxed{{{gold.strip()}}}."
            found = verifiers.find(text, answer=cfg.answer, truncated=False, asked=asked).answer
            assert found is not None, cfg.name
            pair = (question.gold, found)
            pairs.setdefault((cfg.answer, cfg.conventions.text), []).append(pair)
    for (answer, how), some in pairs.items():
        grades = verifiers.grade(
            some, answer=answer, conventions=verifiers.Conventions(text=cast(Any, how))
        )
        assert {grade.outcome for grade in grades.values()} == {"correct"}, grades


def test_most_of_the_catalogue_is_confirmed(capsys: Capsys) -> None:
    """And the count is printed, so that CI shows it."""
    for table, kind in zip(catalogue.tables(), (DatasetConfig, ModelConfig), strict=False):
        confirmed = [row for row in table.rows if row["confirmed"]]
        with capsys.disabled():
            print(f"\n{table.title}: {len(confirmed)} of {len(table.rows)} confirmed")
        assert len(confirmed) >= 45
        for cfg in catalogue.entries(table.title[:-1], kind):
            sources = [cfg.about.source, *([cfg.card.source] if kind is ModelConfig else [])]
            assert all(SOURCE.fullmatch(source) for source in sources if source), cfg.name
            if kind is ModelConfig:
                asked = {
                    k: v for k, v in vars(cfg.card).items() if v and k not in ("source", "date")
                }
                assert bool(asked) == bool(cfg.card.source) == bool(cfg.card.date), cfg.name


@pytest.fixture
def own_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two datasets in local folders in place of the hub's, with YAML files of a user's own."""

    def make(name: str, sample: dict[str, Any], row: dict[str, Any], **more: Any) -> None:
        folder, own = tmp_path / name, tmp_path / "configs" / "dataset"
        folder.mkdir()
        own.mkdir(parents=True, exist_ok=True)
        write_questions(folder / "test.jsonl", [row])
        settings = {"name": name, "path": str(folder), "about": {"sample": sample}} | more
        (own / f"{name}.yaml").write_text(yaml.safe_dump(settings))

    monkeypatch.setenv(compose.OWN, str(tmp_path / "configs"))
    return make


def test_check_says_what_is_gone_or_renamed(own_sets: Any, capsys: Capsys) -> None:
    row = {"problem": "1+1?", "answer": "2"}
    own_sets("same", row, row)
    assert main(["prefetch", "dataset=same", "--check"]) == 0
    own_sets("renamed", row, {"question": "1+1?", "answer": "2"})
    own_sets("gone", row, row, split="validation")
    own_sets("other", row, row | {"answer": None})
    capsys.readouterr()
    assert main(["prefetch", "dataset=same,renamed,gone,other", "--check"]) == 1
    same, renamed, gone, other = capsys.readouterr().out.splitlines()
    assert renamed.startswith("renamed: no column problem; found question, answer")
    assert same.startswith("same: ") and "split validation" in gone and "answer" in other
    assert main(["prefetch", "dataset=nothing", "--check"]) == 2


def test_catalogue_as_json_and_its_errors(capsys: Capsys) -> None:
    assert main(["catalogue", "--json"]) == 0
    [tables] = map(yaml.safe_load, capsys.readouterr().out.splitlines())
    sizes = {row["name"]: row["questions"] for row in tables["datasets"]}
    assert sizes["mmlu-pro"] == 12032 and len(tables["models"]) > 60
    assert main(["catalogue", "dataset=mmlu"]) == 2
