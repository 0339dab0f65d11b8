"""Several runs of one model served by one real vLLM engine, and what may happen to one of them."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked import HELD, Attempts, Command, Forker, assert_whole, stored
from helpers import demo_questions, write_questions

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import provenance, runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import devices, resident
from bayes_at_n.pipeline.workers.resident import Order, Residents

WORK = """
import os
from pathlib import Path
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.generate.stage import work
from bayes_at_n.pipeline.store.runfolder import Run
try:
    work([Run(load_folder(Path(name), [])) for name in {folders}])
except UserError as error:
    print(error, flush=True)
    os._exit(error.exit_code)
os._exit(0)
"""
# The second run's folder is renamed when it holds some attempts.
MOVING = """
from bayes_at_n.pipeline.generate.attempts import AttemptWriter
def hook(append=AttemptWriter.append):
    def appending(self, rows):
        append(self, rows)
        run = self.folder.parent
        if run.name == "greedy" and self.written > 5 and run.exists():
            run.rename(run.with_name("renamed"))
    AttemptWriter.append = appending
hook()
"""


@pytest.fixture
def pair(prepared: Path, tmp_path: Path) -> list[Path]:
    """Two run folders of one model: one as `reference`, one that decodes greedily."""
    folders = [tmp_path / "sampled", tmp_path / "greedy"]
    for folder in folders:
        shutil.copytree(prepared, folder)
    more = ["sampling.top_k=1", "sampling.logprobs=false", "sampling.trials=2"]
    (folders[1] / "manifest.json").unlink()
    run = Run(load_folder(folders[1], more))
    runfolder.save_config(run)
    manifest = json.loads((folders[0] / "manifest.json").read_text())
    manifest["identity"] |= provenance.identity(run.cfg)
    runfolder.write_json(run.manifest, manifest)
    return folders


def work(forker: Forker, folders: Sequence[Path], before: str = "", wait: bool = True) -> int:
    """The exit status of a worker that serves these runs; without `wait` its process id."""
    code = before + WORK.format(folders=[*map(str, folders)])
    log = str(folders[0].with_name("log"))
    child = forker.ask(log=log, arguments=[], environment={}, before=code)
    return forker.ask(wait=child, log=log) if wait else child


def session(folder: Path) -> dict[str, Any]:
    [path] = (folder / "sessions").glob("*.json")
    return dict(json.loads(path.read_text()))


def agree(found: Attempts, expected: Attempts) -> float:
    """The share of equal texts; keys and seeds are all equal. Other batches round otherwise."""
    assert found.keys() == expected.keys()
    assert all(row["seed"] == expected[key]["seed"] for key, row in found.items())
    return sum(found[key]["text"] == expected[key]["text"] for key in found) / len(found)


def test_two_protocols_share_an_engine_and_keep_their_own(
    forker: Forker, pair: list[Path], reference: tuple[Path, Attempts]
) -> None:
    assert work(forker, pair) == 0
    sampled, greedy = map(stored, pair)
    assert agree(sampled, reference[1]) > 0.95
    assert len(greedy) == 60
    texts = [greedy[question, 0]["text"] == greedy[question, 1]["text"] for question, _ in greedy]
    assert sum(texts) > 0.95 * len(texts)  # top_k=1 leaves nothing to draw
    run = Run(load_folder(pair[1], []))
    assert not runfolder.pending(run)
    one, other = map(session, pair)
    assert one["pid"] == other["pid"] and one["state"] == other["state"] == "done"
    # They share the time of their worker, and neither bears all of it.
    whole = max(s["updated"] for s in (one, other)) - one["started"]
    assert min(one["lived_s"], other["lived_s"]) > 0
    assert one["lived_s"] + other["lived_s"] <= 1.01 * whole


def test_a_run_whose_folder_goes_ends_alone(
    forker: Forker, pair: list[Path], reference: tuple[Path, Attempts]
) -> None:
    assert work(forker, pair, MOVING) == 2
    assert agree(stored(pair[0]), reference[1]) > 0.95
    assert session(pair[0])["state"] == "done"
    assert not pair[1].exists()
    renamed = pair[1].with_name("renamed")
    kept = stored(renamed)
    assert 5 < len(kept) < 60
    assert work(forker, [renamed]) == 0
    found = stored(renamed)
    assert len(found) == 60 and kept.items() <= found.items()


def test_a_killed_worker_loses_and_doubles_nothing_of_any_run(
    forker: Forker, pair: list[Path], reference: tuple[Path, Attempts]
) -> None:
    held = pair[0].with_name("held")
    held.touch()
    child = work(forker, pair, HELD.format(attempts=20, file=str(held)), wait=False)
    while not list(held.parent.glob("held.*")):
        time.sleep(0.05)
    kept = [stored(folder) for folder in pair]
    os.kill(child, signal.SIGKILL)
    forker.ask(wait=child, log=str(pair[0].with_name("log")))
    held.unlink()
    assert work(forker, pair) == 0
    for folder, before in zip(pair, kept, strict=True):
        found = stored(folder)
        assert before.items() <= found.items()
        assert_whole(folder, found)
    assert agree(stored(pair[0]), reference[1]) > 0.95


# The worker ends the second run only when the first one has a score.
WAITING = """
import sys
from bayes_at_n.pipeline.workers import process
process.PROGRAM = [sys.executable, "-c", '''
import sys, time
from pathlib import Path
from bayes_at_n.pipeline.generate.job import Job
from bayes_at_n.pipeline.workers import process
def closing(self, close=Job.close):
    while self.run.cfg.dataset.name == "hard" and not Path("{scores}").exists():
        time.sleep(0.05)
    close(self)
Job.close = closing
sys.exit(process.main())
''']
"""


@pytest.mark.soak
def test_complete_runs_are_scored_while_others_are_sampled(forker: Forker, tmp_path: Path) -> None:
    rows, names = demo_questions()[:3], ("easy", "hard")
    paths = [str(write_questions(tmp_path / f"{name}.jsonl", rows)) for name in names]
    easy, hard = (tmp_path / "runs" / name / "demo-step-3900" for name in names)
    line = ["run", "model=demo", "trials=2", "verifier=none", f"runs={tmp_path / 'runs'}"]
    line.append(f"dataset={','.join(paths)}")
    before = WAITING.format(scores=easy / "scores.json")
    Command(tmp_path / "log", forker, line=line, before=before).finish()
    assert session(easy)["pid"] == session(hard)["pid"]
    assert json.loads((hard / "scores.json").read_text())["attempts"] == 6


def few(tmp_path: Path, name: str) -> list[str]:
    dataset = f"dataset={write_questions(tmp_path / 'few.jsonl', demo_questions()[:3])}"
    more = ["verifier=none", "stages=[prepare,generate,grade]", f"run_dir={tmp_path / name}"]
    return ["model=demo", dataset, *more]


def ordered(settings: list[str], gpus: str | None = None) -> Order:
    cfg = compose.load(settings)
    return Order(Path(cfg.run_dir).name, ["run", *settings], cfg, gpus)


@pytest.mark.soak
def test_a_resident_keeps_its_engine_for_the_next_block(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = few(tmp_path, "run")
    with Residents() as residents:
        for trials in (1, 3):
            order = ordered([*settings, f"sampling.trials={trials}"])
            assert residents.run(order) == 0
            assert len(stored(Path(order.label))) == 3 * trials
    assert capfd.readouterr().err.count("loading demo-step-3900") == 1


# In the place of a process that runs commands: its status is in its last setting.
STAND_IN = """
import json, os, sys
with open(int(sys.argv[2]), "w", buffering=1) as answers:
    for line in sys.stdin:
        *_, said = json.loads(line)
        text = f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')} {said}\\n"
        os.write(2, text.encode())
        print(said, file=answers)
"""


def test_residents_stay_are_replaced_and_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The GPUs are imaginary: there, whoever is not asked now makes room."""
    monkeypatch.setattr(resident, "PROGRAM", [sys.executable, "-c", STAND_IN])
    monkeypatch.setattr(devices, "on_gpus", lambda cfg: True)
    cfg = compose.load([f"run_dir={tmp_path}"])
    a, b = (Order(name, ["0"], cfg, gpu) for name, gpu in ("a0", "b1"))

    def statuses(residents: Residents, *orders: Order) -> list[int | None]:
        for order in orders:
            residents.begin(order)
        return [residents.ended(order, wait=True) for order in orders]

    def asked(residents: Residents, *orders: Order) -> list[tuple[int, str]]:
        assert statuses(residents, *orders) == [int(order.command[-1]) for order in orders]
        said = [line.split() for line in capfd.readouterr().err.splitlines()]
        return sorted((int(pid), gpus) for pid, gpus, _ in said)

    with Residents() as residents:
        both = asked(residents, a, b)
        assert sorted(gpus for _, gpus in both) == ["0", "1"]
        assert asked(residents, a._replace(command=["7"]), b) == both
        for pid, _ in both:
            os.kill(pid, signal.SIGKILL)
        assert {*statuses(residents, a, b)} <= {0, 137}  # whether that is known by now or not
        capfd.readouterr()
        again = asked(residents, a, b)
        assert not {*again} & {*both}
        [alone] = asked(residents, a._replace(gpus="0,1"))  # the other has left
        assert alone[1] == "0,1" and not any(psutil.pid_exists(pid) for pid, _ in again)
        residents.begin(stopped := a._replace(command=["130"]))
        with pytest.raises(resident.Unfinished) as error:
            residents.run(stopped)  # waits for it
        assert error.value.exit_code == 130 and capfd.readouterr().err.count(" 130") == 1
    assert not psutil.pid_exists(alone[0])
