"""verifier.engine.replicas: the same verdicts, also when a replica or its parent is killed."""

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from forked import Command, strike
from helpers import Capsys, make_run

from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import stage

TEXTS = {q: [rf"{n} tries, so \boxed{{{n % 5}}}" for n in range(12)] for q in ("q1", "q2")}
MARKS = {"q1": "001000010000", "q2": "000010000100"}
PLAIN = ["engine=transformers", "engine.device=cpu", "verifier.dtype=float32"]
TWO = "verifier.engine.replicas=2"
KILLS = 30
TOLERANCE = 0.25  # of a log-prob in bf16: tests/verify/test_verify_stage.py


def of_demo(folder: Path, model: Path, *more: str) -> Run:
    template = folder.with_name("mine.txt")
    template.write_text("Q: {question}\nGold: {gold}\n{response}\nA, B or C?\n")
    of_verifier = [f"verifier.id={model}", f"verifier.prompt={template}", "verifier.least_mass=0"]
    return make_run(folder, MARKS, "sampling.max_tokens=8", *of_verifier, *more, texts=TEXTS)


def verdicts(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    """By question and trial; every attempt once."""
    table = pq.read_table(run.path / "verdicts").to_pylist()
    found = {(row["question_id"], row["trial"]): row for row in table}
    assert len(table) == len(found) == 24
    return found


def assert_same(found: Run, expected: Run, tolerance: float) -> None:
    ours, theirs = verdicts(found), verdicts(expected)
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        for name in ("logprob_a", "logprob_b", "logprob_c", "base_a", "base_b", "base_c"):
            np.testing.assert_allclose(row[name], theirs[key][name], atol=tolerance)
        assert row["tokens"] == theirs[key]["tokens"]


# Batches of one text, and sessions that are saved at once.
WORKER = """
import sys
from bayes_at_n.pipeline.workers import process, session
session.SAVE_S = 0.1
sys.exit(process.main())
"""
SMALL = f"""
import sys
from bayes_at_n.pipeline.verify import prompts
from bayes_at_n.pipeline.workers import process
prompts.ROWS, process.PROGRAM = 1, [sys.executable, "-c", {WORKER!r}]
"""


@pytest.mark.soak
def test_no_kill_of_a_replica_loses_or_doubles_a_verdict(
    tmp_path: Path, tiny_model: Path, capsys: Capsys
) -> None:
    moments, kills, runs = random.Random(7), 0, list[Run]()
    one = of_demo(tmp_path / "one", tiny_model, *PLAIN)
    stage.verify(one)
    while kills < KILLS:
        run = of_demo(tmp_path / f"run-{len(runs)}", tiny_model, *PLAIN)
        command = Command(run.path, None, before=SMALL, line=["verify", str(run.path), TWO])
        while not (work := [*run.path.glob("label_logprobs/*/_work")]):
            assert command.alive(), command.text()
            time.sleep(0.02)
        kills += strike(work[0], command.alive, KILLS - kills, moments)
        said = command.finish()
        assert said.count("by SIGKILL") == said.count("starting it again")
        assert "24 attempts judged with 27 prompts" in said
        assert_same(run, one, 1e-4)
        judged = pq.read_table(work[0].parent)["judged"].to_pylist()
        assert len(judged) == len(set(judged))
        runs.append(run)
    print(f"{kills} kills of replicas in {len(runs)} runs")
    [part, *_] = runs[0].path.glob("label_logprobs/*/*.parquet")
    engine = json.loads(pq.read_schema(part).metadata[b"made_by"])["engine"]
    assert (engine["replicas"], engine["device"]) == (2, "cpu")
    capsys.readouterr()
    stage.verify(runs[0])  # how many judged is no part of what verdicts are
    assert "nothing pending" in capsys.readouterr().err


@pytest.mark.soak
def test_two_replicas_of_vllm_give_the_same_verdicts(tmp_path: Path, tiny_model: Path) -> None:
    both = [of_demo(tmp_path / name, tiny_model) for name in ("one", "two")]
    for run, more in zip(both, ([], [TWO]), strict=True):
        Command(run.path, None, line=["verify", str(run.path), *more]).finish()
    assert_same(both[1], both[0], TOLERANCE)
