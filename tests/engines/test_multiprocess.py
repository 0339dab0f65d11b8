"""The engine core of vLLM in a process of its own, as on GPUs: killed, stopped, loaded again."""

import os
import signal
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from forked import IN_FLIGHT, SETTINGS, TRIALS, Attempts, Command, Forker, assert_whole, stored

from bayes_at_n.pipeline.engines import vllm_core

APART = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
SAMPLED = "stages=[prepare,generate]"


# Once an engine is loaded, as in the forker, vLLM looks at its variables no more.
ASKED = f"""
import os
from vllm.envs import disable_envs_cache
os.environ |= {APART}
disable_envs_cache()
"""
CLOSED = f"""{ASKED}
from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.engines import vllm_core
from bayes_at_n.pipeline.config import compose
engine = engines.load(compose.load(["engine.batch_size=4"]), 64)
assert engine.next_logprobs([[5, 6, 7]], [1, 2], lambda: None).shape == (1, 2)
family = engine.core.family
assert len(family) > 1 and all(map(vllm_core.lives, family))
engine.core.close()
assert not any(map(vllm_core.lives, family))
os._exit(0)
"""


def start(
    folder: Path, forker: Forker | None, *more: str, hold: float | None = None, before: str = ""
) -> Command:
    few = ["engine.batch_size=8", f"engine.in_flight={IN_FLIGHT}", f"sampling.trials={TRIALS}"]
    before = ASKED * bool(forker) + before
    return Command(folder, forker, *few, *more, environment=APART, before=before, hold=hold)


def family(command: Command) -> list[psutil.Process]:
    return psutil.Process(command.pid).children(recursive=True)


def named(processes: list[psutil.Process], name: str) -> psutil.Process:
    return next(p for p in processes if f"VLLM::{name}" in " ".join(p.cmdline()))


def gone(processes: list[psutil.Process]) -> bool:
    return vllm_core.end(processes, 60) == 0


@pytest.mark.soak
def test_a_killed_core_is_one_line_and_what_is_finished_is_kept(
    forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    folder, total = tmp_path / "run", len(reference[1])
    command = start(folder, forker, SAMPLED, hold=total // 8)
    before = command.held()
    processes = family(command)
    named(processes, "EngineCore").kill()
    command.release()
    assert command.wait() == 1, command.text()
    said = command.text()
    assert "failed while generating: its process was killed by SIGKILL (out of memory?)" in said
    assert said.count("error:") == 1 and "Traceback" not in said and gone(processes)
    assert before and all(stored(folder).get(key) == row for key, row in before.items())
    Command(folder, forker, *SETTINGS, SAMPLED, f"sampling.trials={TRIALS}").finish()
    assert_whole(folder, reference[1])  # what both engines made


@pytest.mark.soak
def test_the_processes_of_a_closed_engine_have_ended(forker: Forker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert forker.python(CLOSED, log) == 0, log.read_text()


@pytest.mark.soak
def test_a_verifiers_engine_is_loaded_when_the_first_one_is_gone(
    reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    said = start(folder, None).finish()
    assert "did not end and were killed" not in said
    assert_whole(folder, reference[1])
    judged = sum(pq.read_metadata(p).num_rows for p in folder.glob("verdicts/*.parquet"))
    assert judged == len(reference[1])


@pytest.mark.soak
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("number", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGUSR1", 85), ("SIGKILL", -9)]
)
def test_signals_leave_no_process_and_lose_nothing(
    reference: tuple[Path, Attempts], tmp_path: Path, size: int, number: str, code: int
) -> None:
    """A terminal signals the group of the command, Slurm (SIGUSR1) every process of a step."""
    folder, total = tmp_path / "run", len(reference[1])
    command = start(folder, None, SAMPLED, f"engine.tensor_parallel_size={size}", hold=total // 8)
    before = command.held()
    processes = family(command)
    named(processes, "Worker_TP1" if size == 2 else "Worker")
    for process in processes if number == "SIGUSR1" else ():
        process.send_signal(signal.SIGUSR1)
    command.signal(signal.Signals[number])
    command.release()
    assert command.wait() == code, command.text()
    assert "Traceback" not in command.text() and gone(processes)
    assert before and all(stored(folder).get(key) == row for key, row in before.items())
    if size == 1:  # sums over two processes may round otherwise
        start(folder, None, SAMPLED).finish()
        assert_whole(folder, reference[1])


@pytest.mark.soak
@pytest.mark.parametrize("number", ["SIGINT", "SIGKILL"])
def test_while_the_core_starts(tmp_path: Path, number: str) -> None:
    """A signal to the command, or a core that is killed."""
    command = start(tmp_path / "run", None, SAMPLED)
    while not (cores := [p for p in family(command) if os.getpgid(p.pid) == p.pid]):
        time.sleep(0.02)
    processes = family(command)
    if number == "SIGINT":
        command.signal(signal.SIGINT)
        assert command.wait() == 130, command.text()
    else:
        cores[0].kill()
        assert command.wait() == 1, command.text()
        assert "could not load" in command.text()
    assert gone(processes)
