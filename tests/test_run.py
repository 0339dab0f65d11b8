"""The main job from end to end, with the real vLLM engine on the CPU and the embedded model."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from forked import BATCH, TRIALS, Command, Forker
from helpers import ROOT

from bayes_at_n import scoring
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.settings import attempt_seed
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store.runfolder import open_run

SAMPLED = "stages=[prepare,generate]"


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return sorted(found, key=lambda row: (row["question_id"], row["trial"]))


def test_every_attempt_is_there_once_with_its_seed(whole_run: tuple[Path, str]) -> None:
    attempts = rows(whole_run[0] / "attempts")
    questions = pq.read_table(whole_run[0] / "questions.parquet").to_pylist()
    keys = [(a["question_id"], a["trial"]) for a in attempts]
    wanted = {(q["question_id"], t) for q in questions for t in range(TRIALS)}
    assert len(questions) == 30 and len(keys) == len(set(keys)) and set(keys) == wanted
    cfg = compose.load(["run_dir=x"])
    assert all(a["seed"] == attempt_seed(cfg, a["question_id"], a["trial"]) for a in attempts)
    assert len({a["seed"] for a in attempts}) == len(attempts)
    for a in attempts:
        assert len(a["token_ids"]) == len(a["logprobs"]) == a["completion_tokens"] <= 96
        assert a["finish_reason"] == ("length" if a["completion_tokens"] == 96 else "stop") or (
            a["completion_tokens"] == 96  # the end token may be the ninety-sixth
        )
        assert a["started"] <= a["first_token"] <= a["finished"]
    assert not [*whole_run[0].glob("attempts/*.journal"), *whole_run[0].glob("*.lease")]


def test_logprobs_are_the_model_s_own(whole_run: tuple[Path, str]) -> None:
    """Prompt and completion log-probs against one plain forward pass in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(compose.load([]).model.id, dtype=torch.float32)
    questions = {
        q["question_id"]: q for q in pq.read_table(whole_run[0] / "questions.parquet").to_pylist()
    }
    errors = []
    for attempt in rows(whole_run[0] / "attempts")[::5]:
        question = questions[attempt["question_id"]]
        ids = question["prompt_token_ids"] + attempt["token_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        expected = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        stored = question["prompt_logprobs"][1:] + attempt["logprobs"]
        assert np.isnan(question["prompt_logprobs"][0])
        errors.append(np.abs(np.array(stored) - expected.numpy()).mean())
    assert max(errors) < 0.1 and np.mean(errors) < 0.05  # bfloat16 against float32


def test_scores_agree_with_the_stored_outcomes(whole_run: tuple[Path, str]) -> None:
    scores = json.loads((whole_run[0] / "scores.json").read_text())
    saved = np.load(whole_run[0] / "matrix.npz")
    grades = rows(whole_run[0] / "grades")
    R = np.array([g["outcome"] == "correct" for g in grades], dtype=int).reshape(30, TRIALS)
    assert (saved["R"] == R).all()
    assert list(saved["question_ids"]) == sorted({g["question_id"] for g in grades})
    mu, sigma = scoring.bayes(R)
    assert scores["uniform_prior"]["bayes"]["mu"] == pytest.approx(mu)
    assert scores["uniform_prior"]["bayes"]["sigma"] == pytest.approx(sigma)
    assert scores["uniform_prior"]["avg"]["mean"] == pytest.approx(R.mean())
    assert 0.2 < R.mean() < 0.95  # the demo model knows something, and not everything
    assert f"Bayes@{TRIALS}" in whole_run[1] and "nothing pending" in whole_run[1]
    shares = scores["shares"]
    assert sum(shares[o] for o in ("correct", "wrong", "no_answer", "unparsable", "timeout")) == (
        pytest.approx(1)
    )


def test_the_same_command_owes_nothing_and_more_trials_extend(
    whole_run: tuple[Path, str], forker: Forker, tmp_path: Path
) -> None:
    folder = shutil.copytree(whole_run[0], tmp_path / "run")
    before = rows(folder / "attempts")
    text = Command(folder, forker, f"sampling.trials={TRIALS}").finish()
    assert "nothing pending" in text and "loading" not in text
    more = f"sampling.trials={TRIALS + 1}"
    Command(folder, forker, more, BATCH, verb="generate").finish()
    after = rows(folder / "attempts")
    assert len(after) == 30 * (TRIALS + 1)
    assert [a for a in after if a["trial"] < TRIALS] == before
    status = Command(folder, forker, more, verb="status").finish()
    assert f"{30 * (TRIALS + 1)}/{30 * (TRIALS + 1)}" in status and " pending" not in status
    Command(folder, forker, more, verb="grade").finish()
    Command(folder, forker, more, verb="score").finish()
    assert np.load(folder / "matrix.npz")["R"].shape == (30, TRIALS + 1)


def test_a_trial_is_the_same_alone_and_among_others(
    whole_run: tuple[Path, str], forker: Forker, tmp_path: Path
) -> None:
    settings = ["sampling.trials=2", "dataset.limit=3", SAMPLED]
    Command(tmp_path / "few", forker, *settings).finish()
    few = rows(tmp_path / "few" / "attempts")
    all_of_them = {(a["question_id"], a["trial"]): a for a in rows(whole_run[0] / "attempts")}
    for attempt in few:
        twin = all_of_them[attempt["question_id"], attempt["trial"]]
        assert (attempt["text"], attempt["logprobs"]) == (twin["text"], twin["logprobs"])


NO_PLATFORM = """
import vllm.platforms
from vllm.platforms.interface import UnspecifiedPlatform
vllm.platforms._current_platform = UnspecifiedPlatform()
"""


# A build for CUDA 13, whose processes are spawned, on a node with a driver of CUDA 12.4.
OLD_DRIVER = """
import ctypes, os, torch
from bayes_at_n.pipeline.engines import vllm_core
class Driver:
    def cuDriverGetVersion(version):
        version._obj.value = 12040 * (os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn")
vllm_core.program.version = lambda name: None
torch.version.cuda, ctypes.CDLL = "13.0", lambda name: Driver
"""


@pytest.mark.parametrize("before", [NO_PLATFORM, OLD_DRIVER], ids=["no GPU", "old driver"])
def test_a_gpu_build_is_refused_in_one_line(forker: Forker, tmp_path: Path, before: str) -> None:
    """A vLLM that finds no platform at all, as a CUDA build does on a machine without a GPU."""
    command = Command(tmp_path / "x", forker, "sampling.trials=1", before=before)
    assert command.wait() == 2
    said = "no GPU.*engine=transformers" if before == NO_PLATFORM else r"CUDA 12\.4.*driver\s580"
    assert re.search(said, command.text(), re.DOTALL)


def test_an_engine_that_fails_at_log_probs_of_prompts_samples_all_the_same(
    whole_run: tuple[Path, str], prepared: Path, forker: Forker, tmp_path: Path
) -> None:
    """As vLLM's Model Runner V2 did: vllm-project/vllm#44106."""
    folder, few = shutil.copytree(prepared, tmp_path / "run"), [BATCH, f"sampling.trials={TRIALS}"]
    stages = ["verifier=none", "stages=[generate,grade,categorize]"]
    bad = "from bayes_at_n.pipeline.engines.vllm import VllmEngine as V\n"
    bad += "V.prompt_logprobs = lambda *_: {}[42]"
    said = Command(folder, forker, *few, *stages, before=bad).finish()
    assert "failed (no 42)" in said and "VLLM_USE_V2_MODEL_RUNNER" in said
    texts, others = ([a["text"] for a in rows(of / "attempts")] for of in (folder, whole_run[0]))
    assert texts == others
    assert signals.read(open_run(folder))["prompt_bpt"].null_count == len(texts)
    again = Command(folder, forker, *few, verb="generate").finish()
    assert "nothing pending" in again and "loading" not in again
    other = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    Command(folder, forker, *few, verb="generate", environment=other).finish()
    assert not pq.read_table(folder / "questions.parquet")["prompt_logprobs"].null_count


def test_manifest_says_what_made_the_run(whole_run: tuple[Path, str]) -> None:
    manifest = json.loads((whole_run[0] / "manifest.json").read_text())
    assert manifest["created_with"]["packages"]["vllm"] and manifest["identity"]["model.weights"]
    [path] = (whole_run[0] / "sessions").glob("*.json")
    session = json.loads(path.read_text())
    assert session["attempts"] == 30 * TRIALS and session["ended"] is True
    engine = session["engine"]
    assert engine["logprobs_mode"] == "raw_logprobs" and engine["attention"] == ["CPU_ATTN"]
    assert engine["batch_invariant"] is False and engine["runner"] == "V1"
    assert manifest["generated"]["engines"] == [engine]
    assert session["completion_tokens"] == sum(
        a["completion_tokens"] for a in rows(whole_run[0] / "attempts")
    )


LOAD_TWICE = """
import psutil
from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.config import compose as config
from bayes_at_n.pipeline.engines import Request

if __name__ == "__main__":
    cfg = config.load(["engine.batch_size=256"])
    requests = [Request("q", i, [5, 6, 7, 8], 20, i) for i in range(40)]
    for _ in range(2):
        engine = engines.load(cfg, longest=200)
        done = sum(made is not None for made in engine.generate(requests))
        used = psutil.Process().memory_info().rss
        engine.close()
        del engine
        print(done, used >> 20, psutil.Process().memory_info().rss >> 20)
"""


@pytest.mark.soak
def test_a_closed_engine_gives_its_memory_back(tmp_path: Path) -> None:
    """With a key-value cache of a gibibyte: another model must find it free."""
    script = tmp_path / "twice.py"
    script.write_text(LOAD_TWICE)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (n1, used1, after1), (n2, used2, after2) = (
        map(int, line.split()) for line in done.stdout.splitlines()[-2:]
    )
    assert n1 == n2 == 40
    assert used1 - after1 > 700 and used2 - after2 > 700  # MiB
    assert used2 < 1.1 * used1 and after2 < 1.1 * after1
