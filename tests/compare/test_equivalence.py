"""equivalence on run folders made by hand, and on real ones with the real engines."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import BATCH, TRIALS, Command, Forker
from helpers import Capsys, change_attempts, run_of

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.compare import equivalence as verb
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.analysis import EquivalenceConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.ranking.equivalence import equivalence, kl_terms
from benchmarks.servers import Server

pytestmark = pytest.mark.usefixtures("undrawn")

A = {"a": "11110011", "b": "11010111", "c": "00001000"}
B = {"a": "11110010", "b": "11010101", "c": "00~00-01"}


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return [str(run_of(tmp_path, name, marks).path) for name, marks in (("x", A), ("y", B))]


def compared(*arguments: str) -> dict[str, Any]:
    verb.run(compose.load_as(EquivalenceConfig, [*arguments]))
    folder = Path(arguments[0]).parent / "_equivalence"
    [path] = folder.glob("*/equivalence.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def matrix(marks: dict[str, str]) -> Any:
    return [[int(mark == "1") for mark in line] for line in marks.values()]


def rewrite(run: str, **columns: Any) -> None:
    """The attempts of a run with other columns, one value a row."""
    rows = (
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    )
    change_attempts(Run(load_folder(Path(run), [])), lambda row: row | next(rows))


def test_numbers_are_those_of_the_outcomes(folders: list[str], capsys: Capsys, drawn: None) -> None:
    assert main.main(["equivalence", *folders, "replay=0", "margin=40"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    path = Path(folders[0]).parent / "_equivalence" / "x-y" / "equivalence.json"
    found = json.loads(path.read_text())
    expected = equivalence(matrix(A), matrix(B), 0.4)
    for key in expected._fields[:-1]:
        assert found["accuracy"][key] == pytest.approx(getattr(expected, key))
    assert found["verdict"] == found["accuracy"]["verdict"] == expected.conclusion == "equivalent"
    assert found["accuracy"]["unit"] == "trials" and found["shared_seeds"] == 8
    assert found["words"] in printed
    assert "equivalent within 40 points: accuracy of x minus y is +8.33 points" in printed
    accuracy, lengths, logprobs = found["scores"]
    assert (accuracy["a"], accuracy["b"]) == pytest.approx((13 / 24, 11 / 24))
    assert (lengths["a"], lengths["difference"], logprobs["b"]) == pytest.approx((5, 0, -0.5))
    assert "model.id: y /nowhere/y; all others /nowhere/x" in found["differences"]
    made = {file.name for file in path.parent.iterdir()}
    assert made == {*found["files"], "equivalence.json"}
    assert {"scores.tex", "tokens.md"} <= made


def test_verdicts_name_the_margin_and_what_would_settle_it(tmp_path: Path) -> None:
    good = {f"q{i}": "11111111" for i in range(30)}
    poor = {f"q{i}": ("0011" * (i % 2) + "1100" * 2)[:8] for i in range(30)}
    for name, marks in (("good", good), ("poor", poor), ("same", good)):
        run_of(tmp_path, name, marks)
    folder = tmp_path / "sums"
    n = equivalence(np.ones((30, 8)), np.ones((30, 8)), 0.005).trials
    for other, margin, words in (
        ("poor", 1, "different: accuracy of good minus poor is +50.00 points"),
        ("same", 2, "equivalent within 2 points"),
        ("same", 0.5, f"{n:.0f} trials of each run would decide it"),
    ):
        found = compared(str(folder / "good"), str(folder / other), "replay=0", f"margin={margin}")
        assert words in found["words"]
        shutil.rmtree(folder / "_equivalence")


def test_trials_with_one_seed_are_pairs(folders: list[str], tmp_path: Path) -> None:
    rewrite(folders[1], seed=[1237 + trial for _ in range(3) for trial in range(8)])
    both = verb.load(folders)
    assert both.shared == 5  # 1237 to 1241
    first, second = both.trials
    assert first.tolist() == [3, 4, 5, 6, 7, 0, 1, 2] and second.tolist() == list(range(8))
    expected = equivalence(np.array(matrix(A))[:, first], matrix(B))
    assert verb.decide(both, 0.01)[0] == pytest.approx(expected)
    independent = np.arange(24).reshape(3, 8)
    rewrite(folders[0], seed=independent.ravel().tolist())
    assert verb.load(folders).shared == 0
    # Of the third trial one question has another seed.
    swapped = independent[:, [1, 0, *range(2, 8)]] + 100 * (np.arange(24).reshape(3, 8) == 2)
    rewrite(folders[1], seed=swapped.ravel().tolist())
    both = verb.load(folders)
    assert both.shared == 7 and verb.unlike_tokens(both)[1].size == 3 * 7
    pairs = set(zip(*(of.tolist() for of in both.trials), strict=True))
    assert pairs == {(0, 1), (1, 0), *((t, t) for t in range(2, 8))}
    rewrite(folders[1], seed=[None] * 24)
    assert verb.load(folders).shared == 0
    late = run_of(tmp_path, "late", {"a": "111+.", "b": "10101", "c": "1.101"})
    assert verb.load([folders[0], str(late.path)]).trials[1].tolist() == [0, 2]


def test_one_trial_takes_questions_as_the_sample(tmp_path: Path) -> None:
    marks = {"x": "110100110110", "y": "010100110111"}
    folders = []
    for name, line in marks.items():
        run = run_of(tmp_path, name, {f"q{i:02d}": mark for i, mark in enumerate(line)})
        folders.append(str(run.path))
    found = compared(*folders, "replay=0")
    sides = ([list(map(int, line))] for line in marks.values())
    expected = equivalence(*sides, 0.01)
    assert found["accuracy"]["hi"] == pytest.approx(expected.hi)
    assert found["accuracy"]["unit"] == "questions"
    assert f"{expected.trials:,.0f} questions of each run would decide" in found["words"]
    assert "questions as a sample" in " ".join(found["notes"]["scores"])


def test_which_tokens_differ(folders: list[str]) -> None:
    tokens = [[1, 2, 3, 4, 5] for _ in range(24)]
    tokens[0], tokens[1], tokens[17] = [1, 2, 9, 4, 5], [1, 2, 3, 4], [7]
    rewrite(folders[1], token_ids=tokens)
    questions, differ = verb.unlike_tokens(verb.load(folders))
    assert questions.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert np.flatnonzero(differ).tolist() == [0, 1, 17]
    [share] = compared(*folders, "replay=0")["tokens"]
    assert share["mean"] == pytest.approx(3 / 24) and share["low"] < 3 / 24 < share["high"]


def refusal(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        verb.run(compose.load_as(EquivalenceConfig, [*arguments]))
    return str(caught.value)


def test_runs_that_cannot_be_compared_are_refused(folders: list[str], tmp_path: Path) -> None:
    x, y = folders
    other = str(run_of(tmp_path, "other", A, gold={"c": "7"}).path)
    raw = str(run_of(tmp_path, "raw", {"a": "++", "b": "++", "c": "++"}).path)
    gaps = str(run_of(tmp_path, "gaps", {"a": "1.", "b": ".1", "c": "1."}).path)
    assert "two run folders" in refusal(x) and "two run folders" in refusal(x, y, other)
    assert "margin=0" in refusal(x, y, "margin=0")
    assert "twice" in refusal(x, str(Path(x) / ".." / "x"))
    assert "question_hash: 2 of its 3 questions" in refusal(x, other)
    assert "raw: " in refusal(x, raw) and "gaps/grades: outcome" in refusal(x, gaps)
    one = [str(run_of(tmp_path, name, {"a": "1"}).path) for name in ("one", "two")]
    assert "sampling.trials=8" in refusal(*one)


def test_what_cannot_be_replayed_is_refused(folders: list[str], tmp_path: Path) -> None:
    x = folders[0]
    y = str(run_of(tmp_path, "plain", B, "engine.name=transformers").path)
    assert "model.id=/nowhere/plain" in (line := refusal(x, y)) and "replay=0" in line
    path = Path(y) / "questions.parquet"
    table = pq.read_table(path)
    prompts = pa.array([[1, 2, 3], [1, 2, 4], [1, 2, 3]], pa.list_(pa.int32()))
    place = table.schema.get_field_index("prompt_token_ids")
    shards.write_part(path, table.set_column(place, "prompt_token_ids", prompts))
    assert "prompt_token_ids: those of question b" in refusal(x, y)
    rewrite(x, logprobs=[None] * 24)
    assert "sampling.logprobs=true" in refusal(x, y)


def sibling(run: Path, name: str, *settings: str) -> Path:
    """A copy of a run that says it was made with other settings."""
    folder = run.parent / "pairs" / name
    shutil.copytree(run, folder)
    runfolder.save_config(Run(load_folder(folder, list(settings))))
    return folder


def replayed(forker: Forker, first: Path, second: Path, *settings: str) -> dict[str, Any]:
    """The verb in a process that has the engine of the shared run."""
    out, log = second.with_name(f"{second.name}-out"), str(second.with_name(f"{second.name}.log"))
    line = ["equivalence", str(first), str(second), f"out={out}", *settings]
    child = forker.ask(log=log, arguments=line, environment={}, before="")
    assert forker.ask(wait=child, log=log) == 0, Path(log).read_text()[-3000:]
    found: dict[str, Any] = json.loads((out / "equivalence.json").read_text())
    return found


def test_the_same_run_replayed_by_its_own_engine(
    forker: Forker, whole_run: tuple[Path, str]
) -> None:
    twice = sibling(whole_run[0], "twice")
    found = replayed(forker, whole_run[0], twice, "replay=60")
    gaps, kl, tokens = found["tokens"]
    assert gaps["number"] > 600 and tokens["number"] == 30 * TRIALS and tokens["mean"] == 0
    # As prompts tokens come in other batches than one by one, and bfloat16 may round otherwise.
    assert abs(gaps["mean"]) < 0.01 and 0 <= kl["mean"] < 0.001
    assert found["engine"]["engine"] == "vllm" and found["accuracy"]["difference"] == 0


def test_replay_gives_the_log_probs_of_the_other_engine(whole_run: tuple[Path, str]) -> None:
    """bfloat16 in vLLM against float32 in transformers, set beside one plain forward pass."""
    import torch
    from transformers import AutoModelForCausalLM

    run = whole_run[0]
    other = sibling(run, "plain", "engine.name=transformers", "model.dtype=float32")
    both = verb.load([str(run), str(other)])
    found = verb.replay(both, 20)
    assert len(found.questions) == 20 and len(set(found.questions.tolist())) == 20
    model = AutoModelForCausalLM.from_pretrained(compose.load([]).model.id, dtype=torch.float32)
    rows = {(r["question_id"], r["trial"]): r for r in pq.read_table(run / "attempts").to_pylist()}
    chosen = verb._chosen(both, 20)
    for number, (question, trial) in list(enumerate(chosen))[::5]:
        row = both.cohort.members[0].run.questions[question]
        attempt = rows[row["question_id"], trial]
        ids = torch.tensor([row["prompt_token_ids"] + attempt["token_ids"]])
        with torch.inference_mode():
            logprobs = torch.log_softmax(model(ids).logits[0, :-1], -1)
        expected = logprobs.gather(-1, ids[0, 1:, None])[-len(attempt["token_ids"]) :, 0]
        of_attempt = found.attempts == number
        np.testing.assert_allclose(found.logprobs_b[of_attempt], expected.numpy(), atol=1e-4)
        np.testing.assert_array_equal(
            found.logprobs_a[of_attempt], np.float32(attempt["logprobs"]).astype(float)
        )
    table = verb.of_tokens(both, found).rows
    assert table[0]["mean"] == pytest.approx((found.logprobs_a - found.logprobs_b).mean())
    assert table[1]["mean"] == pytest.approx(kl_terms(found.logprobs_a, found.logprobs_b).mean())
    assert 0 < table[1]["mean"] < 0.01


@pytest.mark.soak
def test_a_server_replays_as_the_engine(whole_run: tuple[Path, str], server: Server) -> None:
    run = whole_run[0]
    served = sibling(run, "served", "engine.name=openai", f"engine.url={server.url}")
    found = verb.replay(verb.load([str(run), str(served)]), 20)
    assert found.engine["engine"] == "openai" and len(found.logprobs_a) > 200
    np.testing.assert_allclose(found.logprobs_a, found.logprobs_b, atol=0.1)
    assert kl_terms(found.logprobs_a, found.logprobs_b).mean() < 1e-4


@pytest.mark.soak
def test_real_pairs(forker: Forker, tmp_path: Path) -> None:
    """What docs/equivalence.md tells, with fewer trials."""
    settings = {
        "plain": [],
        "twice": [BATCH],
        "float32": ["model.dtype=float32"],
        "hot": ["sampling.temperature=0.65"],
    }
    for name, own in settings.items():
        line = ["verifier=none", "sampling.trials=40", *own]
        Command(tmp_path / name, forker, *line).finish()
    found = {
        name: replayed(forker, tmp_path / "plain", tmp_path / name, "margin=2")
        for name in settings
        if name != "plain"
    }
    share = {name: of["tokens"][2]["mean"] for name, of in found.items()}
    kl = {name: of["tokens"][1]["mean"] for name, of in found.items()}
    assert share["twice"] < 0.01 < share["float32"] < share["hot"] < 0.1
    assert kl["twice"] < 1e-6 and kl["hot"] < 1e-6 < kl["float32"] < 1e-3
    assert found["hot"]["scores"][2]["low"] > 0  # sampled at 0.65 they are less likely
    for name in ("twice", "float32"):
        assert found[name]["verdict"] == "equivalent", found[name]["words"]
