"""prepare: what a run folder holds, and what may never be mixed into it."""

import json
from pathlib import Path
from shutil import copytree

import pytest
from helpers import CHATML, Capsys, Setup, arithmetic, make_model, write_questions
from tiny_models import lora

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import differences
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.prepare import questions_table, stage
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def setup(tiny: Path, tmp_path: Path) -> Setup:
    return Setup(tiny, tmp_path)


def test_what_is_written(setup: Setup) -> None:
    run = setup.run()
    stage.prepare(run)
    rows = shards.read_whole(setup.folder / "questions.parquet", QUESTIONS).to_pylist()
    assert [r["question_id"] for r in rows] == [f"sums-0{n}" for n in range(1, 5)]
    assert rows[0]["problem"] == "1+1?" and rows[0]["gold"] == "2"
    assert rows[0]["prompt"].startswith("<|im_start|>user\n1+1?\n\nPlease reason step by step")
    assert rows[0]["prompt"].endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert rows[0]["max_tokens"] == 10 and rows[0]["prompt_logprobs"] is None
    manifest = json.loads((setup.folder / "manifest.json").read_text())
    assert manifest["source"]["model"] == str(setup.model)
    assert set(manifest["identity"]["questions"]) == {r["question_id"] for r in rows}
    assert {"torch", "transformers", "vllm"} <= set(manifest["created_with"]["packages"])
    written = {path.name for path in setup.folder.iterdir()}
    assert written == {"config.yaml", "manifest.json", "questions.parquet"}


def test_a_damaged_questions_table_is_made_again(setup: Setup, capsys: Capsys) -> None:
    stage.prepare(setup.run())
    path = setup.folder / "questions.parquet"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError, match=r"questions\.parquet: unreadable.*prepare"):
        _ = setup.run().questions
    stage.prepare(setup.run())
    assert path.read_bytes() == good
    assert "log-probs are pending" in capsys.readouterr().err


OTHERS = {
    "sampling.temperature=1.0": "sampling.temperature is 0.6 there and 1.0 here",
    "sampling.seeds=independent": "sampling.seeds is 'shared' there and 'independent'",
    "sampling.max_tokens=9": "max_tokens is 10 there and 9 here",
    "prompt=plain": "prompt.template is",
    "engine=transformers": "engine.name is 'vllm' there and 'transformers'",
    "engine.args.quantization=fp8": "args is {} there and {'quantization': 'fp8'}",
    "engine.args={made_tomorrow: {a: 1}}": "engine.args is {} there and {'made_tomorrow'",
    "dataset.limit=3": "question sums-04 is gone",
    "dataset.fields.answer=problem": "question sums-01, sums-02, sums-03 has changed",
}


def test_other_settings_are_refused(setup: Setup) -> None:
    stage.prepare(setup.run())
    for override, difference in OTHERS.items():
        message = setup.refused(override)
        for word in (str(setup.folder), "tag=NAME", difference):
            assert word in message


def test_a_cap_is_raised_once_and_on_record(setup: Setup) -> None:
    run = setup.run()
    stage.prepare(run)
    known = [row | {"prompt_logprobs": [0.5]} for row in run.questions]
    questions_table.write(run.path / "questions.parquet", known)
    for cap in (11, 11, 12):
        stage.prepare(setup.run(f"sampling.max_tokens={cap}"))
    run = Run(load_folder(setup.folder, []))
    assert run.cfg.sampling.max_tokens == 12
    assert run.questions == [row | {"max_tokens": 12} for row in known]
    raised = json.loads(run.manifest.read_text())["raised"]
    assert [(one["from"], one["to"]) for one in raised] == [(10, 11), (11, 12)]


def test_changed_weights_are_refused(setup: Setup, tmp_path: Path) -> None:
    setup.model = copytree(setup.model, tmp_path / "model")
    stage.prepare(setup.run())
    assert " adapter files:" in setup.refused(f"model.adapter={lora(tmp_path / 'lora')}")
    assert load_folder(setup.folder, []).model.adapter is None
    make_model(setup.model, seed=1)
    assert "model.weights is 'files:" in setup.refused()


def test_a_template_that_rejects_the_system_role(setup: Setup, tmp_path: Path) -> None:
    setup.model = copytree(setup.model, tmp_path / "model")
    (setup.model / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('No system role!') }}{% endif %}"
        + CHATML
    )
    message = setup.refused("model.system=Be brief")
    assert "No system role!" in message and "prompt.system_role=user" in message
    run = setup.run("model.system=Be brief", "prompt.system_role=user")
    stage.prepare(run)
    assert "user\nBe brief\n\n1+1?" in run.questions[0]["prompt"]


def test_a_model_without_a_chat_template(setup: Setup, tmp_path: Path) -> None:
    setup.model = make_model(tmp_path / "bare", template=None)
    assert "no chat template; a base model needs prompt.kind=plain" in setup.refused()
    run = setup.run("prompt=base", "model.system=Sums.", "prompt.prefix='It is '")
    stage.prepare(run)
    expected = "Sums.\n\nProblem:\n1+1?\n\nSolution, with the final answer in \\boxed{}:\nIt is "
    assert run.questions[0]["prompt"] == expected
    assert len(run.questions[0]["prompt_token_ids"]) == len(expected)  # a byte each, and no BOS


def solved(folder: Path, count: int = 6) -> str:
    """A file of examples: 1+1, 2+2, ..., of which the questions are the first four."""
    rows = [row | {"solution": f"It is {row['answer']}."} for row in arithmetic(count)]
    path = write_questions(folder / "solved.jsonl", [row | {"id": f"s{row['id']}"} for row in rows])
    return f"prompt.shots_from={path}"


def test_examples_stand_before_every_question_and_never_itself(
    setup: Setup, tmp_path: Path
) -> None:
    settings = ["model.system=Sums.", "prompt.kind=plain", "prompt.template='Q: {problem} A:'"]
    settings += ["prompt.shots=2", "prompt.solved=' {solution} So {answer}. '", solved(tmp_path)]
    rows = arithmetic(4)
    rows[3] = {"id": "s2", "problem": "What is 2 + 2?", "answer": "4"}  # an example's own id
    rows[1]["problem"] = " 2+ $2$?"
    write_questions(setup.questions, rows)
    run = setup.run(*settings)
    stage.prepare(run)
    one, two, three = (f"Q: {n}+{n}? A: It is {2 * n}. So {2 * n}. " for n in (1, 2, 3))
    assert [row["prompt"] for row in run.questions] == [
        f"Sums.\n\n{two}{three}Q: 1+1? A:",
        f"Sums.\n\n{one}{three}Q: 2+ $2$? A:",
        f"Sums.\n\n{one}{two}Q: 3+3? A:",
        f"Sums.\n\n{one}{three}Q: What is 2 + 2? A:",
    ]
    identity = runfolder.read_manifest(run)["identity"]
    assert identity["prompt.shots"] == 2 and len(identity["prompt.shots_hash"]) == 16
    assert differences.protocol(run)["prompt.shots_hash"] == identity["prompt.shots_hash"]
    stage.prepare(setup.run(*settings))
    assert "prompt.shots is 2 there and 0 here" in setup.refused(*settings[:3])
    solved(tmp_path, 1)
    assert "has only 1 different problems" in setup.refused(*settings)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("prompt.shots_from=train", "prompt.shots_from=train: no such file"),
        ("prompt.shots=6", "has only 5 examples that are not sums-01 itself"),
        ("prompt.solved=yes", "solution"),
        ("dataset.fields.solution=proof", "no field 'proof'; found id"),
        ("model.context=90", "fewer examples (prompt.shots)"),
    ],
)
def test_examples_that_cannot_be_had(
    setup: Setup, tmp_path: Path, setting: str, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        stage.prepare(setup.run("prompt.shots=2", solved(tmp_path), setting))
    assert words in str(caught.value) and not setup.folder.exists()
