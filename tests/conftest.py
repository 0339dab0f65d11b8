"""Fixtures that several test modules share; how the tests share two processes and their time."""

import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import BATCH, TRIALS, Attempts, Command, Forker, empty, spare, stored
from hypothesis import settings
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base import console
from bayes_at_n.pipeline.config import compose
from benchmarks.servers import Server, serving

# Two test processes on two cores: more threads in each would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

NEEDS_ENGINE = re.compile(r"\b(forker|server|reference|whole_run): ")  # fixtures of a test

# Run folders are marked with a key of the tests, not with the user's.
os.environ["XDG_STATE_HOME"] = f"{tempfile.gettempdir()}/bayes-at-n-tests-{os.getuid()}"

# A shell that starts tests in the background has them ignore Ctrl-C, and all their children, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine: a check that fails by luck tells nobody what they broke.
# To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run a file in one process, and all files that need a loaded engine in the same one."""
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "engine" if config.rootpath / file in engine else file

    files = [] if _soaking(config) else Path(__file__).parent.rglob("test_*.py")
    engine = {file for file in files if NEEDS_ENGINE.search(file.read_text("utf-8"))}
    return Groups(config, log)


def _soaking(config: pytest.Config) -> bool:
    return config.getoption("markexpr") != "not soak"


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported is no garbage: looking through it takes 6 % of the time


def pytest_runtest_setup() -> None:
    """How much a command of the test before said is forgotten."""
    os.environ.pop(console.MODES, None)


def pytest_configure(config: pytest.Config) -> None:
    if not _soaking(config):
        spare()


@pytest.fixture
def drawn() -> None:
    """For a test that wants real pictures."""


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty PDF and PNG files; tests of plots draw them all."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(Figure, "savefig", empty(Figure.savefig))


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The folder of the embedded default model; tests that need it are skipped without it."""
    folder = Path(compose.load([]).model.id)
    if not (folder / "config.json").is_file():
        pytest.skip(f"the embedded model is not at {folder}; scripts/train_demo.py makes it")
    return folder


@pytest.fixture(scope="session")
def forker(tiny_model: Path) -> Iterator[Forker]:
    """Forks commands that have vLLM imported."""
    forker = Forker()
    yield forker
    forker.end()


@pytest.fixture(scope="session")
def prepared(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with its questions, whose engine is loaded. Not to be written to."""
    folder = tmp_path_factory.mktemp("prepared") / "run"
    Command(folder, forker, BATCH, f"sampling.trials={TRIALS}", verb="prepare").finish()
    forker.load(folder)
    return folder


@pytest.fixture(scope="session")
def whole_run(forker: Forker, prepared: Path) -> tuple[Path, str]:
    """A real run that nothing disturbed, and what it printed. Not to be written to."""
    folder = prepared.with_name("whole")
    shutil.copytree(prepared, folder)
    return folder, Command(folder, forker, BATCH, f"sampling.trials={TRIALS}").finish()


@pytest.fixture(scope="session")
def reference(whole_run: tuple[Path, str]) -> tuple[Path, Attempts]:
    """The same run, and its attempts."""
    return whole_run[0], stored(whole_run[0])


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """vLLM's own server with the embedded model; many at a time, as the engine of `reference`."""
    log = tmp_path_factory.mktemp("server") / "log"
    many = ["--max-num-seqs", BATCH.partition("=")[2]]
    with serving(tiny_model, log, *many, "--enable-scale-out") as started:
        yield started
