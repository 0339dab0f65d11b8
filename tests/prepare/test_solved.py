"""Options and gold texts by likelihood: log-probs, borders, what counts, scores, refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from helpers import Capsys, enlarge, grades, make_model, make_tokenizer, write_questions
from scipy import stats

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.store import selection
from bayes_at_n.pipeline.store.runfolder import Run, open_run

EXAMPLES = [{"q": f"1 + {n}?", "of": [str(n + 1), "none"], "a": 0} for n in range(4)]
QUESTIONS = [
    {"q": "2 + 2?", "of": ["4", "five", "it is 5", "22"], "a": 0},
    {"q": "What is 3 + 4?", "of": ["8", "seven", "é"], "a": 1},
    {"q": "10 - 1?", "of": ["nine", "9 or 8"], "a": 0},
    {"q": "Is 1 > 2?", "of": ["yes", "no", "both", "neither of them"], "a": 1},
    # One option begins with the other, over more than a block of vLLM's prefix cache.
    {"q": "Laugh.", "of": ["ha" * 60 + "!", "ha" * 60], "a": 1},
]
SHOTS = ["prompt.shots=2", "prompt.shots_seed=1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with larger weights."""
    path = make_model(tmp_path_factory.mktemp("model"))
    made = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    enlarge(made, 4)
    made.save_pretrained(path)
    return path


def words(folder: Path, model: Path, *more: str) -> list[str]:
    """The settings of a run by likelihood."""
    of = write_questions(folder / "questions.jsonl", QUESTIONS)
    examples = write_questions(folder / "examples.jsonl", EXAMPLES)
    data = f"dataset=jsonl dataset.path={of} dataset.answer=choice dataset.gold=index"
    data += " dataset.fields={id:null,problem:q,choices:of,answer:a} dataset.name=made"
    found = ["model=custom", f"model.id={model}", "model.dtype=float32", *data.split()]
    found += ["verifier=none", "sampling=likelihood"]
    if "engine=vllm" not in more:
        found += ["engine=transformers", "engine.device=cpu"]
    return [*found, f"prompt.shots_from={examples}", *more]


def run_of(folder: Path, model: Path, *more: str) -> Run:
    assert main(["run", *words(folder, model, *more), f"run_dir={folder / 'run'}"]) == 0
    return open_run(folder / "run")


@pytest.fixture(scope="module")
def letters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("letters"), model, "prompt=letter", *SHOTS)


@pytest.fixture(scope="module")
def cloze(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("cloze"), model, "prompt=cloze", *SHOTS)


@pytest.fixture(scope="module")
def gold(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("gold"), model, "prompt=text", "sampling=bits-per-byte")


def options(run: Run) -> list[list[dict[str, Any]]]:
    rows = pq.read_table(run.attempts).sort_by("question_id").to_pylist()
    return [row["options"] for row in rows]


def log_prob(model: Any, context: list[int], text: list[int]) -> float:
    """The log-prob of a text, from one forward pass without cache or padding."""
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([context + text])).logits[0].double(), -1)
    return sum(table[len(context) - 1 + i, token].item() for i, token in enumerate(text))


@pytest.mark.parametrize("name", ["letters", "cloze", "gold"])
def test_log_probs_are_those_of_transformers(
    name: str, model: Path, request: pytest.FixtureRequest
) -> None:
    """A token a byte, so that the border is where the bytes are; EOS stands before no context."""
    run, made = request.getfixturevalue(name), make_tokenizer()
    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    shown = [[*"ABCD"[: len(row["of"])]] if name == "letters" else row["of"] for row in QUESTIONS]
    if name == "gold":
        shown = [[row["of"][row["a"]]] for row in QUESTIONS]  # type: ignore[index]
    for question, texts, found in zip(run.questions, shown, options(run), strict=True):
        context = made(question["prompt"])["input_ids"]
        assert question["prompt_token_ids"] == context
        for text, option in zip(texts, found, strict=True):
            ids = made(f" {text}")["input_ids"]
            assert (option["tokens"], option["bytes"]) == (len(ids), len(text.encode()))
            for key, before in (("logprob", context), ("unconditional", [made.eos_token_id])):
                assert option[key] == pytest.approx(log_prob(plain, before, ids), abs=1e-4)


def test_prompts_hold_the_examples_in_the_order_of_the_seed(letters: Run, cloze: Run) -> None:
    shown = letters.questions[0]["prompt"].split("\n\n")
    assert shown[2] == "2 + 2?\nA. 4\nB. five\nC. it is 5\nD. 22\nAnswer:"
    assert [one.endswith("\nB. none\nAnswer: A") for one in shown[:2]] == [True, True]
    first = cloze.questions[0]["prompt"].split("\n\n")
    assert [one.split("\n")[0] for one in first[:2]] == [
        f"Question: {one.split(chr(10))[0]}" for one in shown[:2]
    ]
    assert first[2] == "Question: 2 + 2?\nAnswer:" and len(first) == 3


@pytest.mark.parametrize("by", ["sum", "token", "byte", "unconditional"])
def test_what_counts_is_derived_from_what_is_stored(cloze: Run, by: str) -> None:
    before = sorted(path.name for path in cloze.attempts.iterdir())
    assert main(["grade", str(cloze.path), f"grading.likelihood={by}"]) == 0
    chosen = []
    for found in options(cloze):
        values = {
            "sum": [o["logprob"] for o in found],
            "token": [o["logprob"] / o["tokens"] for o in found],
            "byte": [o["logprob"] / o["bytes"] for o in found],
            "unconditional": [o["logprob"] - o["unconditional"] for o in found],
        }
        chosen.append("ABCD"[int(np.argmax(values[by]))])
    graded = [row for _, row in sorted(grades(cloze).items())]
    assert [row["answer"] for row in graded] == chosen
    golds = [question["gold"] for question in cloze.questions]
    right = ["correct" if a == b else "wrong" for a, b in zip(chosen, golds, strict=True)]
    assert [row["outcome"] for row in graded] == right
    assert sorted(path.name for path in cloze.attempts.iterdir()) == before


def interval(values: list[float]) -> tuple[float, ...]:
    found = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return float(np.mean(values)), *map(float, found)


def test_scores_are_means_over_questions_with_their_intervals(letters: Run, capsys: Capsys) -> None:
    assert main(["score", str(letters.path)]) == 0
    assert "N=1" in capsys.readouterr().out
    scores = json.loads((letters.path / "scores.json").read_text())
    expected: dict[str, list[float]] = {name: [] for name in list(scores["likelihood"])[1:]}
    for question, found in zip(letters.questions, options(letters), strict=True):
        right = "ABCD".index(question["gold"])
        p = np.exp([o["logprob"] for o in found]) / np.exp([o["logprob"] for o in found]).sum()
        expected["probability"].append(p[right])
        expected["brier"].append(((p - np.eye(len(p))[right]) ** 2).sum())
        expected["log_score"].append(-np.log(p[right]))
        own = found[right]
        expected["bits_per_byte"].append(-own["logprob"] / np.log(2) / own["bytes"])
    for name, values in expected.items():
        of = scores["likelihood"][name]
        most = {"probability": 1.0, "brier": 2.0}.get(name, np.inf)
        clipped = np.clip(interval(values), 0.0, most)
        assert (of["value"], of["low"], of["high"]) == pytest.approx(clipped, rel=1e-5)
    right_ones = [row["outcome"] == "correct" for _, row in sorted(grades(letters).items())]
    accuracy = scores["likelihood"]["accuracy"]
    assert accuracy["value"] == scores["headline"]["value"] == np.mean(right_ones)
    assert accuracy["sigma"] == pytest.approx(stats.sem(right_ones))
    assert 0 <= accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1


def test_gold_texts_have_bits_per_byte(gold: Run) -> None:
    bits = [-of["logprob"] / np.log(2) / of["bytes"] for [of] in options(gold)]
    scores = json.loads((gold.path / "scores.json").read_text())
    ends = [scores["headline"][end] for end in ("value", "low", "high")]
    assert ends == pytest.approx(interval(bits), rel=1e-5)


@pytest.mark.parametrize("names", [["letters", "cloze", "gold"], ["gold"]])
def test_other_verbs_show_what_such_runs_score(
    names: list[str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folders = [request.getfixturevalue(name).path for name in names]
    words = [*map(str, folders), f"out={tmp_path}"]
    assert main(["compare", *words]) == main(["report", *words]) == main(["status", words[0]]) == 0
    [found] = json.loads((tmp_path / "compare.json").read_text())["datasets"]
    assert len(found.get("models", [])) == len(names) - 1
    rows = {(row["model"], row["measure"].replace(" ", "_")): row for row in found["likelihood"]}
    for name, folder in zip(selection.names(folders), folders, strict=True):
        assert main(["score", str(folder)]) == 0
        scores = json.loads((folder / "scores.json").read_text())["likelihood"]
        for measure, of in scores.items():
            assert of.items() <= rows.pop((name, measure)).items()
    assert not rows
    page = (tmp_path / "index.html").read_text()
    assert "Scores by likelihood" in page and ("log score" in page) == ("letters" in names)


def test_bits_per_byte_are_compared_by_question(gold: Run, tmp_path: Path) -> None:
    shutil.copytree(gold.path, tmp_path / "other")
    assert main(["compare", str(gold.path), str(tmp_path / "other"), f"out={tmp_path}"]) == 0
    [found] = json.loads((tmp_path / "compare.json").read_text())["datasets"]
    [row] = found["bits_per_byte"]
    assert row["low"] == row["value"] == row["high"] == 0
    assert row["minus"] == "other" and row["questions"] == len(gold.questions)


def test_the_same_command_scores_nothing_twice(letters: Run, model: Path, tmp_path: Path) -> None:
    before = pq.read_table(letters.attempts)["started"].to_pylist()
    again = words(letters.path.parent, model, "prompt=letter", *SHOTS)
    assert main(["run", *again, f"run_dir={letters.path}"]) == 0
    assert pq.read_table(letters.attempts)["started"].to_pylist() == before
    more = ["sampling.likelihood=gold", f"run_dir={letters.path}"]
    assert main(["run", *again, *more]) == 2  # another run


def test_questions_that_cannot_be_scored_are_named(model: Path, tmp_path: Path) -> None:
    def prepared(*more: str) -> None:
        prepare(Run(compose.load([*words(tmp_path, model), *more, f"run_dir={tmp_path / 'run'}"])))

    alone = write_questions(tmp_path / "one.jsonl", [{"q": "1?", "of": ["1"], "a": 0}])
    with pytest.raises(UserError, match=r"line 1: 1 option; there must be 2 to 26"):
        prepared("prompt=letter", f"dataset.path={alone}")
    long = write_questions(tmp_path / "long.jsonl", [{"q": "1?", "of": ["1", "1" * 600], "a": 0}])
    with pytest.raises(UserError, match=r"made-01: .*512 tokens"):
        prepared("prompt=cloze", f"dataset.path={long}")
