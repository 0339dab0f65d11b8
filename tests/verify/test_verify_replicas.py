"""verifier.engine.replicas: the same verdicts, also when a replica or its parent is killed."""

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from forked import Command, strike
from helpers import again, make_run

from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import judge, stage
from bayes_at_n.pipeline.workers import process

TEXTS = {q: [rf"{n} tries, so \boxed{{{n % 5}}}" for n in range(12)] for q in ("q1", "q2")}
MARKS = {"q1": "001000010000", "q2": "000010000100"}
PLAIN = ["engine=transformers", "engine.device=cpu", "verifier.dtype=float32"]
TWO = "verifier.engine.replicas=2"
TOLERANCE = 0.25  # of a log-prob in bf16: tests/verify/test_verify_stage.py


def of_demo(folder: Path, model: Path, *more: str) -> Run:
    template = folder.with_name("mine.txt")
    template.write_text("Q: {question}\nGold: {gold}\n{response}\nA, B or C?\n")
    of_verifier = [f"verifier.id={model}", f"verifier.prompt={template}", "verifier.least_mass=0"]
    return make_run(folder, MARKS, "sampling.max_tokens=8", *of_verifier, *more, texts=TEXTS)


@pytest.fixture
def run(tmp_path: Path, tiny_model: Path) -> Run:
    return of_demo(tmp_path / "run", tiny_model, *PLAIN)


def verdicts(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    """By question and trial; every attempt once."""
    table = pq.read_table(run.path / "verdicts").to_pylist()
    found = {(row["question_id"], row["trial"]): row for row in table}
    assert len(table) == len(found) == sum(map(len, MARKS.values()))
    return found


def assert_same(found: Run, expected: Run, tolerance: float) -> None:
    ours, theirs = verdicts(found), verdicts(expected)
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        for name in ("logprob_a", "logprob_b", "logprob_c", "base_a", "base_b", "base_c"):
            np.testing.assert_allclose(row[name], theirs[key][name], atol=tolerance)
        assert row["tokens"] == theirs[key]["tokens"]


def at_work(parent: int | None = None) -> list[psutil.Process]:
    """The replicas of this process, or of another."""
    found = []
    for child in psutil.Process(parent).children():
        try:
            if "bayes_at_n.pipeline.workers" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    left = at_work()
    for one in left:
        one.kill()
    assert not left


# Loads at once, and thinks otherwise of every candidate; the first that has answered dies.
PRETENDED = """
import contextlib, os, signal, zlib
import numpy as np
import pyarrow as pa
from bayes_at_n.pipeline.store.columns import LABEL_LOGPROBS
from bayes_at_n.pipeline.verify import calibrate, judge
class Judge:
    answered = False
    def __init__(self, cfg, most):
        self.engine, self.description = self, {{"device": cfg.engine.device}}
    def ask(self, texts, step):
        step()
        with contextlib.suppress(FileExistsError):
            if self.answered:
                os.close(os.open({ended!r}, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        self.answered = True
        rngs = (np.random.default_rng(zlib.crc32(str(c).encode())) for _, c in texts)
        logprobs = np.log([rng.dirichlet([1, 1, 1]) for rng in rngs]).astype(np.float32)
        columns = {{"judged": [h for h, _ in texts], "tokens": [len(c.response) for _, c in texts]}}
        columns |= {{"cut": [False] * len(logprobs)}}
        columns |= calibrate.label_columns(logprobs, "logprob_")
        return pa.table(columns, schema=LABEL_LOGPROBS)
    def close(self):
        pass
judge.Judge = Judge
"""
MAIN_OF_WORKER = (
    "from bayes_at_n.pipeline.workers import process; import sys; sys.exit(process.main())"
)
# Batches of one text, and sessions that are saved at once.
OFTEN = f"from bayes_at_n.pipeline.workers import session\nsession.SAVE_S = 0.1\n{MAIN_OF_WORKER}"
SMALL = f"""
import sys
from bayes_at_n.pipeline.verify import prompts
from bayes_at_n.pipeline.workers import process
prompts.ROWS, process.PROGRAM = 1, [sys.executable, "-c", {OFTEN!r}]
"""
KILLS = 40


def test_two_replicas_give_the_same_verdicts_also_when_one_is_killed(
    run: Run, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code = PRETENDED.format(ended=str(tmp_path / "ended"))
    monkeypatch.setattr(process, "PROGRAM", [sys.executable, "-c", code + MAIN_OF_WORKER])
    monkeypatch.setattr(judge, "Judge", judge.Judge)  # taken back at the end
    exec(code, {})
    by_question = "verifier.calibration=question"
    stage.verify(again(run, TWO, by_question))
    said = capsys.readouterr().err
    assert "by SIGKILL" in said and said.count("starting it again") == 1
    assert "24 attempts judged with 30 prompts" in said
    parts = list(run.path.glob("label_logprobs/*/*.parquet"))
    engine = json.loads(pq.read_schema(parts[0]).metadata[b"made_by"])["engine"]
    assert (engine["replicas"], engine["device"]) == (2, "cpu")
    assert len(parts) > 4  # several for each
    one = of_demo(tmp_path / "one", tiny_model, *PLAIN, by_question)
    stage.verify(one)
    assert_same(run, one, 1e-4)
    stage.verify(again(run, by_question))  # how many judged is no part of what verdicts are
    assert "nothing pending" in capsys.readouterr().err


@pytest.mark.soak
def test_no_kill_of_a_replica_loses_or_doubles_a_verdict(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TEXTS", {q: [f"{q}: {n}" for n in range(60)] for q in TEXTS})
    monkeypatch.setitem(globals(), "MARKS", {q: 60 * "1" for q in MARKS})
    moments, kills, n = random.Random(7), 0, 0
    one = of_demo(tmp_path / "one", tiny_model, *PLAIN)
    stage.verify(one)
    while kills < KILLS:
        run, n = of_demo(tmp_path / f"run-{n}", tiny_model, *PLAIN), n + 1
        command = Command(run.path, None, before=SMALL, line=["verify", str(run.path), TWO])
        while not (work := [*run.path.glob("label_logprobs/*/_work")]):
            assert command.alive(), command.text()
            time.sleep(0.02)
        kills += strike(work[0], command.alive, KILLS - kills, moments)
        command.finish()
        assert_same(run, one, 1e-4)
        judged = pq.read_table(work[0].parent)["judged"].to_pylist()
        assert len(judged) == len(set(judged))
    print(f"{kills} kills of replicas in {n} runs")


@pytest.mark.soak
def test_two_replicas_of_vllm_give_the_same_verdicts(tmp_path: Path, tiny_model: Path) -> None:
    both = [of_demo(tmp_path / name, tiny_model) for name in ("one", "two")]
    for run, more in zip(both, ([], [TWO]), strict=True):
        Command(run.path, None, line=["verify", str(run.path), *more]).finish()
    assert_same(both[1], both[0], TOLERANCE)
