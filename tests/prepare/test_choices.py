"""Multiple choice from dataset to score: options, their order, gold letters, position bias."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import BATCH, Command, Forker
from helpers import demo_questions, grades, make_run, write_questions

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.protocol import DatasetConfig, FieldNames
from bayes_at_n.pipeline.grade import stage as grading
from bayes_at_n.pipeline.prepare import questions, questions_table
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.prompts import options as lines_of
from bayes_at_n.verifiers import LETTERS

COLUMNS = ["Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"]
CHOICE = ["dataset.answer=choice", "prompt=choice"]
COUNT, TRIALS = 6, 4


def gpqa(folder: Path) -> Path:
    """Demo questions in the layout of GPQA: a column for each option, the correct one first."""
    rows = []
    for row in demo_questions()[:COUNT]:
        value = int(row["answer"])
        made = dict(zip(COLUMNS, map(str, (value, value + 1, value - 10, value + 70)), strict=True))
        rows.append({"id": row["id"], "Question": row["problem"], **made})
    return write_questions(folder / "choices.jsonl", rows)


def of_gpqa(folder: Path) -> list[str]:
    names = ",".join(COLUMNS)
    fields = f"dataset.fields={{problem: Question, answer: Correct Answer, choices: [{names}]}}"
    return ["dataset=jsonl", f"dataset.path={gpqa(folder)}", fields, *CHOICE]


def load(folder: Path, rows: list[dict[str, Any]], choices: Any, **more: Any) -> Any:
    path = write_questions(folder / "q.jsonl", rows)
    fields = FieldNames(id=None, problem="q", answer="a", choices=choices)
    return questions.load(DatasetConfig("q", str(path), fields=fields, answer="choice", **more))


@pytest.mark.parametrize(
    ("golds", "letters"),
    [
        (["C", "A"], "CA"),
        (["(c)", "(b)"], "CB"),
        ([2, 0], "CA"),
        (["six", "7"], "CA"),
        (["six", "A"], None),  # one way for all
        (["C", "D"], None),  # the second has three options
    ],
)
def test_how_golds_are_written(tmp_path: Path, golds: list[Any], letters: str | None) -> None:
    of = [["four", "five", "six"], ["7", "8", "9"]]
    rows = [{"q": f"q{i}", "a": g, "of": c} for i, (g, c) in enumerate(zip(golds, of, strict=True))]
    if letters is None:
        with pytest.raises(UserError, match="the gold answers are not all"):
            load(tmp_path, rows, "of")
        return
    found, _ = load(tmp_path, rows, "of")
    assert [q.gold for q in found] == list(letters)
    assert found[0].choices == ("four", "five", "six")


def test_options_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    row = {"q": "q", "a": "A", "of": ["1", "1"], "w": "1, 2", "one": ["1"], "n": ["1", None]}
    for choices, named in {"w": "'w'", "x": "'x'", "one": "2 to 26", "n": "'n'"}.items():
        with pytest.raises(UserError, match=named):
            load(tmp_path, [row], choices)
    assert "1 repeated option" in load(tmp_path, [row], "of")[1][0]
    other = row | {"of": ["2", "1"]}  # the same question with other options is another one
    assert len(load(tmp_path, [row, other], "of")[0]) == 2


@pytest.fixture
def prepared_choices(tiny_model: Path, tmp_path: Path) -> Any:
    def make(name: str, *more: str) -> Run:
        given = [*of_gpqa(tmp_path), "prompt.shuffle=none", "verifier=none"]
        given += [f"sampling.trials={TRIALS}", *more]
        run = Run(compose.load([f"run_dir={tmp_path / name}", *given]))
        prepare(run)
        return run

    return make


def test_the_order_is_of_a_seed_and_gold_follows(prepared_choices: Any) -> None:
    none = prepared_choices("none").questions
    run = prepared_choices("question", "prompt.shuffle=question")
    shuffled, other = (
        run.questions,
        prepared_choices("other", "prompt.shuffle=question", "prompt.shuffle_seed=1").questions,
    )
    assert all(row["gold"] == "A" for row in none)
    assert len({row["gold"] for row in [*shuffled, *other]}) > 1 and shuffled != other
    for a, b, c in zip(none, shuffled, other, strict=True):
        texts = [row["choices"][LETTERS.index(row["gold"])] for row in (a, b, c)]
        assert len(set(texts)) == 1 and sorted(a["choices"]) == sorted(b["choices"])
        assert a["question_hash"] == b["question_hash"] == c["question_hash"]
        lines = [f"{letter}) {text}" for letter, text in zip("ABCD", b["choices"], strict=True)]
        assert "\n".join([a["problem"] + "\n", *lines, "\nPlease reason"]) in b["prompt"]
    for changed in ("prompt.shuffle=none", "prompt.shuffle_seed=1"):
        with pytest.raises(UserError, match=r"prompt\.shuffle"):
            prepared_choices("question", "prompt.shuffle=question", changed)


def test_trials_use_templates_in_turn(prepared_choices: Any) -> None:
    """Also with an order of options for each; another list of templates is another run."""
    variants = 'prompt.variants=["Q: {problem} {choices} A:", "{choices} {problem}"]'
    run = prepared_choices("several", variants, "prompt.shuffle=trial")
    alone = prepared_choices("alone", "prompt.shuffle=trial")
    of_trial, of_alone = (questions_table.prompts_of_trials(one) for one in (run, alone))
    row, first = run.questions[0], alone.questions[0]
    prompts = [of_trial(row, trial)["prompt"] for trial in range(TRIALS)]
    shown = [lines_of(runfolder.as_presented(run.cfg, row, t)["choices"]) for t in range(TRIALS)]
    assert prompts[0] == of_alone(first, 0)["prompt"] and prompts[3] == of_alone(first, 3)["prompt"]
    assert f"Q: {row['problem']} {shown[1]} A:" in prompts[1]
    assert f"{shown[2]} {row['problem']}" in prompts[2]
    ids = [of_trial(row, trial)["prompt_token_ids"] for trial in range(TRIALS)]
    longest = max(map(len, ids))
    assert len({*map(len, ids)}) > 1 and row["max_tokens"] + longest <= first["max_tokens"] + len(
        ids[0]
    )
    with pytest.raises(UserError, match=r"prompt\.variants"):
        prepared_choices("several", "prompt.shuffle=trial")


def answering(run: Run, letter_of: Any) -> Run:
    """Attempts at a prepared run, each with the letter that `letter_of` says of its row."""
    rows = {row["question_id"]: row for row in run.questions}
    texts = {
        name: [
            rf"\boxed{{{letter_of(runfolder.as_presented(run.cfg, row, t), t)}}}"
            for t in range(TRIALS)
        ]
        for name, row in rows.items()
    }
    marks = dict.fromkeys(rows, "+" * TRIALS)
    folder = run.path.with_name(f"{run.path.name}-answered")
    made = make_run(folder, marks, texts=texts)
    shards.write_part(
        folder / "questions.parquet", pa.Table.from_pylist([*rows.values()], schema=QUESTIONS)
    )
    shutil.copy(run.manifest, folder)
    run.cfg.run_dir = made.cfg.run_dir
    return Run(run.cfg)


def test_letters_are_those_of_the_table(prepared_choices: Any) -> None:
    made = prepared_choices("trial", "prompt.shuffle=trial")
    run = answering(made, lambda row, trial: row["gold"] if trial else "A")
    grading.grade(run)
    found = grades(run)
    shown = {key: runfolder.as_presented(run.cfg, run.questions[0], key) for key in range(TRIALS)}
    assert len({tuple(row["choices"]) for row in shown.values()}) > 1
    for (name, trial), row in found.items():
        [question] = [q for q in run.questions if q["question_id"] == name]
        expected = runfolder.as_presented(run.cfg, question, trial)
        right = trial > 0 or expected["gold"] == "A"
        assert row["outcome"] == ("correct" if right else "wrong")
        assert (row["answer"] == "A") is right  # of the table, where the gold answer is A
        letter = expected["gold"] if trial else "A"
        assert row["reason"].endswith(f", shown as {letter}")


@pytest.mark.soak
def test_every_attempt_has_its_own_prompt(forker: Forker, tmp_path: Path) -> None:
    """Stored log-probs are those of a forward pass over its template, with its order of options."""
    given = [*of_gpqa(tmp_path), "prompt.shuffle=trial", f"sampling.trials={TRIALS}", BATCH]
    given.append('prompt.variants=["{choices} {problem}"]')
    more = ["verifier=none", "rubric=exact-match", "stages=[prepare,generate,grade,score]"]
    Command(tmp_path / "run", forker, *given, *more).finish()
    sampled = Run(load_folder(tmp_path / "run", []))
    assert {row["grader"] for row in grades(sampled).values()} == {"choice"}
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(sampled.cfg.model.id, dtype=torch.float32)
    rows = {row["question_id"]: row for row in sampled.questions}
    of_trial = questions_table.prompts_of_trials(sampled)
    own, tables = [], []
    attempts = pq.read_table(sampled.attempts).to_pylist()
    assert len(attempts) == COUNT * TRIALS
    for attempt in attempts:
        row = rows[attempt["question_id"]]
        prompt = of_trial(row, attempt["trial"])["prompt_token_ids"]
        assert attempt["prompt_tokens"] == len(prompt)
        assert row["max_tokens"] + len(prompt) <= 512
        for ids, errors in ((prompt, own), (row["prompt_token_ids"], tables)):
            with torch.inference_mode():
                logits = model(torch.tensor([ids + attempt["token_ids"]])).logits[0]
            logits = logits[len(ids) - 1 : -1].log_softmax(-1)
            expected = logits.gather(-1, torch.tensor(attempt["token_ids"])[:, None])[:, 0]
            errors.append(float(np.abs(np.array(attempt["logprobs"]) - expected.numpy()).mean()))
    assert np.mean(own) < 0.05 < np.mean(tables)
