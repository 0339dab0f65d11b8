"""Several workers on one run folder: whoever dies, hangs, or comes twice, every attempt is made."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from forked import IN_FLIGHT, TRIALS, Attempts, Command, Forker, assert_whole, rows, stored
from forked import SETTINGS as FORKED
from helpers import small_disk

FILES = {"config.yaml", "manifest.json", "questions.parquet"}  # of a run that is prepared
SETTINGS = [*FORKED, f"sampling.trials={TRIALS}"]
# What silence means, in seconds that a test can wait for.
QUICK = """
from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.workers import claims
lease.EXPIRE_S, claims.HEARTBEAT_S = 4.0, 0.5
"""
# A host of its own, whose clock is wrong: nobody can ask whether a process there lives.
ELSEWHERE = (
    QUICK
    + """
import socket, time
true = time.time
time.time = lambda: true() + {seconds}
socket.gethostname = lambda: "{host}"
"""
)
# vLLM forgets requests that are aborted: those of one trial once, those of one question always.
# No request of this engine can be made to end with an error: that reason is put in.
UNFINISHED = """
from vllm.v1.engine.llm_engine import LLMEngine
step, seen = LLMEngine.step, set()
def once(name, ending):
    new = name.endswith(ending) and name not in seen
    seen.update([name] * new)
    return new
def aborting(self):
    for name in list(self.output_processor.external_req_ids):
        if "/demo-05/" in name or once(name, "/0"):
            self.abort_request([name])
    outputs = step(self)
    for output in outputs:
        if output.finished and once(output.request_id, "/1"):
            output.outputs[0].finish_reason = "error"
    return outputs
LLMEngine.step = aborting
"""
# vLLM's own detector, on texts that repeat the last token once.
REPETITION = """
from vllm.sampling_params import RepetitionDetectionParams
from bayes_at_n.pipeline.engines import vllm as engine
plain = engine._sampling_params
def detecting(cfg):
    params = plain(cfg)
    params.repetition_detection = RepetitionDetectionParams(max_pattern_size=1, min_count=2)
    return params
engine._sampling_params = detecting
"""


@pytest.fixture
def folder(prepared: Path, reference: tuple[Path, Attempts], tmp_path: Path) -> Path:
    """A run that owes all attempts; log-probs of its prompts are there."""
    folder = shutil.copytree(prepared, tmp_path / "run")
    shutil.copy(reference[0] / "questions.parquet", folder)
    return folder


@pytest.mark.parametrize(
    "then", ["replaced", *(pytest.param(x, marks=pytest.mark.soak) for x in ("renamed", "deleted"))]
)
def test_a_folder_that_goes_while_it_is_sampled_is_not_made_again(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path, then: str
) -> None:
    moved, prepared = folder.with_name("moved"), shutil.copytree(folder, folder.with_name("other"))
    command = start(folder, forker, hold=8)
    before = command.held()
    assert before
    if then == "deleted":
        shutil.rmtree(folder)
    else:
        folder.rename(moved)
    if then == "replaced":  # by a run of others
        prepared.rename(folder)
    command.release()
    assert command.wait() == 2
    assert "was deleted, renamed or replaced" in command.text()
    assert "Traceback" not in command.text()
    if then == "replaced":
        assert {path.name for path in folder.iterdir()} == FILES
    else:
        assert not folder.exists()
    if then != "deleted":
        assert stored(moved).items() >= before.items()
        start(moved, forker).finish()
        assert_whole(moved, reference[1])


def start(folder: Path, forker: Forker | None, **more: Any) -> Command:
    return Command(folder, forker, *SETTINGS, verb="generate", **more)


def sessions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "sessions").glob("*.json"))]


def both_sampling(commands: list[Command]) -> None:
    """Wait until every worker is held with something finished."""
    assert all([command.held() for command in commands]), [c.text()[-2000:] for c in commands]


def test_two_submissions_at_once(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    two = [start(folder, forker, hold=0) for _ in range(2)]
    both_sampling(two)
    for command in two:
        command.release()
    for command in two:
        command.finish()
    assert_whole(folder, reference[1])
    shares = [session["attempts"] for session in sessions(folder)]
    assert len(shares) == 2 and min(shares) > 0 and sum(shares) == len(reference[1])
    summary = json.loads((folder / "manifest.json").read_text())["generated"]
    assert summary["attempts"] == len(reference[1])


@pytest.mark.soak
def test_a_worker_that_is_suspended_is_followed_and_may_come_back(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    """Its heartbeat stops while its process lives."""
    one, other = (start(folder, forker, before=QUICK, hold=0) for _ in range(2))
    both_sampling([one, other])
    one.signal(signal.SIGSTOP)
    other.release()
    other.finish()
    assert len(stored(folder)) == len(reference[1])
    one.release()
    one.signal(signal.SIGCONT)
    one.finish()
    assert_whole(folder, reference[1], twice=True)
    assert rows(folder) <= len(reference[1]) + IN_FLIGHT  # what one step ends


def test_nodes_whose_clocks_differ_do_not_think_each_other_dead(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    hosts = {"n1": 3600, "n2": -3600}
    two = [
        start(folder, forker, before=ELSEWHERE.format(seconds=seconds, host=host), hold=0)
        for host, seconds in hosts.items()
    ]
    both_sampling(two)
    for command in two:
        command.release()
    for command in two:
        command.finish()
    assert_whole(folder, reference[1])  # nothing was made twice


def test_what_the_engine_does_not_finish_is_tried_again_and_then_owed(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    command = start(folder, forker, before=UNFINISHED)
    assert command.wait() == 1, command.text()[-2000:]
    said = " ".join(command.text().split())
    assert "engine=vllm returned 2 attempts unfinished, each 3 times (abort 6 times)" in said
    assert "same command tries again" in said and "Traceback" not in said
    pending = {key for key in reference[1] if key[0] == "demo-05"}
    assert stored(folder) == {k: row for k, row in reference[1].items() if k not in pending}
    [session] = sessions(folder)
    assert session["unfinished"] == {"abort": 6 + 29, "error": 29}
    assert session["state"] == "failed" and session["attempts"] == len(reference[1]) - TRIALS
    start(folder, forker).finish()
    assert_whole(folder, reference[1])


def test_a_text_that_goes_round_in_circles_is_finished_and_cut_off(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    Command(folder, forker, *SETTINGS, "stages=[generate,grade]", before=REPETITION).finish()
    found, columns = stored(folder), ["question_id", "trial", "finish_reason", "logprobs"]
    attempts = pq.read_table(folder / "attempts", columns=columns).to_pylist()
    boxes = {
        (row["question_id"], row["trial"]): row["box"]
        for row in pq.read_table(folder / "grades").to_pylist()
    }
    cut = set()
    for row in attempts:
        key = (row["question_id"], row["trial"])
        ids, whole = found[key]["token_ids"], reference[1][key]["token_ids"]
        assert ids == whole[: len(ids)] and len(row["logprobs"]) == len(ids)
        circles = [n for n in range(2, len(whole) + 1) if whole[n - 1] == whole[n - 2]]
        if row["finish_reason"] == "repetition":
            cut.add(key)
            assert len(ids) == circles[0] and boxes[key] == "truncated"
        else:
            assert ids == whole
    assert found.keys() == reference[1].keys() and 0 < len(cut) < len(found)
    [session] = sessions(folder)
    lengths = sum(row["finish_reason"] == "length" for row in attempts)
    assert session["truncated"] == len(cut) + lengths and session["unfinished"] == {}


@pytest.mark.parametrize(
    ("number", "environment"),
    [
        pytest.param(signal.SIGUSR1, {}, marks=pytest.mark.soak),
        (signal.SIGTERM, {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}),
    ],
)
def test_a_scheduler_s_warning_saves_and_asks_to_be_started_again(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path, number: int,
    environment: dict[str, str],
) -> None:  # fmt: skip
    command = start(folder, forker, environment=environment, hold=20)
    just_before = command.held()
    assert just_before
    command.signal(number)
    command.release()
    assert command.wait() == 85, command.text()[-2000:]
    assert stored(folder).items() >= just_before.items()
    [session] = sessions(folder)
    assert session["state"] == "stopped" and session["ended"]
    slurm = {"job": "7", "task": None, "restarts": 1} if environment else None
    assert session["slurm"] == slurm
    start(folder, forker).finish()
    assert_whole(folder, reference[1])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, to be filled or made read-only."""
    with small_disk(tmp_path / "disk", "16m") as disk:
        yield disk


def test_a_full_disk_stops_a_worker_and_loses_nothing(
    forker: Forker, reference: tuple[Path, Attempts], prepared: Path, disk: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    folder = shutil.copytree(prepared, disk / "run")
    command = start(folder, forker, logs=tmp_path, hold=20)
    assert command.held()
    size = shutil.disk_usage(disk).used // 1024 + 8
    subprocess.run(["mount", "-o", f"remount,size={size}k", disk], check=True)
    command.release()
    assert command.wait() == 2
    said, before = command.text(), stored(folder)
    assert "No space left on device" in said and "same command continues" in said
    assert "Traceback" not in said and len(before) >= 20
    subprocess.run(["mount", "-o", "remount,size=16m", disk], check=True)
    start(folder, forker, logs=tmp_path).finish()
    assert stored(folder).items() >= before.items()
    assert_whole(folder, reference[1])


def test_a_read_only_folder_is_said_at_once(
    forker: Forker, reference: tuple[Path, Attempts], disk: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(reference[0], disk / "run")
    for part in (folder / "attempts").iterdir():
        part.unlink()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    began = time.monotonic()
    command = start(folder, forker, logs=tmp_path)
    assert command.wait() == 2
    said = command.text()
    assert "Read-only file system" in said and str(folder) in said and "Traceback" not in said
    assert "loading" not in said and time.monotonic() - began < 60
    assert os.listdir(folder / "attempts") == []
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    start(folder, forker, logs=tmp_path).finish()
    assert_whole(folder, reference[1])
