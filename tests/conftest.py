"""Fixtures that several test modules share; how the tests share two processes and their time."""

import contextlib
import gc
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked import BATCH, TRIALS, Attempts, Command, Forker, forking, stored
from hypothesis import settings
from matplotlib.figure import Figure
from spared import COMPOSING, composing, empty, spare

from bayes_at_n.pipeline.base import console
from bayes_at_n.pipeline.config import compose
from benchmarks.servers import Server, serving

# Two test processes on two cores: more threads in each would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

# Run folders are marked with a key of the tests, not with the user's.
os.environ["XDG_STATE_HOME"] = f"{tempfile.gettempdir()}/bayes-at-n-tests-{os.getuid()}"

# A shell that starts tests in the background has them ignore Ctrl-C, and all their children, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine: a check that fails by luck tells nobody what they broke.
# To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

# Files of one group run one after the other in one process and share what is dear to make.
ENGINE = (
    "budget",
    "choices",
    "continue",
    "crash",
    "equivalence_runs",
    "judge",
    "multiprocess",
    "races",
    "run",
    "servers",
    "stops",
    "together",
    "verify_stage",
    "weights",
    "workers",
)
TOGETHER = {f"test_{name}.py": "engine" for name in ENGINE}

BUDGET = 520  # CPU-seconds of the tests: with ruff and mypy, six minutes on two cores with slack


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(Path(file).name, file)

    return Groups(config, log)


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported is no garbage: looking through it takes 6 % of the time


def pytest_runtest_setup() -> None:
    """How much a command of the test before said is forgotten."""
    os.environ.pop(console.MODES, None)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") == "not soak":
        spare()
    config.pluginmanager.register(Cost())  # hooks of this file would leave out doctests elsewhere


def _used() -> float:
    """CPU-seconds of this process and its children; of a forker or server that still runs, too."""
    seconds = sum(os.times()[:4])
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, psutil.Error):  # one that is just ending
            for pid in children.read_text().split():
                seconds += sum(psutil.Process(int(pid)).cpu_times()[:4])
    return seconds


class Cost:
    """CPU-seconds of every file and of the processes it starts, as a table at the end."""

    def __init__(self) -> None:
        self.used = self.collecting = 0.0
        self.last = False
        self.files: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        self.last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if self.last and call.when == "teardown":  # looking takes a millisecond: once a file
            before, self.used = self.used, _used()
            report.cpu_seconds = self.used - before
            report.collecting, self.collecting = self.collecting, 0.0
        return report

    def pytest_collection_finish(self) -> None:
        self.used = self.collecting = _used()  # of no file, though the first test follows it

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.files[report.nodeid.split("::")[0]] += getattr(report, "cpu_seconds", 0.0)
        self.files["collecting"] += getattr(report, "collecting", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = sum(self.files.values())
        if total < 60:
            return
        dearest = sorted(self.files.items(), key=lambda pair: -pair[1])[:10]
        terminalreporter.section(f"{total:.0f} CPU-seconds, the dearest files", sep="-")
        for file, seconds in dearest:
            terminalreporter.line(f"{seconds:6.1f}  {file}")
        if total > BUDGET and terminalreporter.config.getoption("markexpr") == "not soak":
            terminalreporter.line(f"That is more than the {BUDGET} that six minutes have room for.")


@pytest.fixture
def drawn() -> None:
    """For a test that wants real pictures."""


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty PDF and PNG files; tests of plots draw them all."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(Figure, "savefig", empty(Figure.savefig))


@pytest.fixture(autouse=True, scope="module")
def whole_composition(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where composition is the subject, Hydra composes everything anew."""
    subject = request.module.__name__.rpartition(".")[2] in COMPOSING
    with composing() if subject else contextlib.nullcontext():
        yield


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
    with forking() as process:
        yield process


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
