"""The real command with the real vLLM engine, in processes that can be killed, many a minute.

Importing vLLM and loading an engine takes longer than everything else, so the command runs in a
child of a process that has done both: this file is also its program (`serve`). Each line of its
input is an order, answered with one line: load the engine of a run, fork a command, or wait for
one. A command that needs the very engine that is loaded takes it over.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import attempt_seed
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS

TRIALS = 2
BATCH = "engine.batch_size=32"  # of the engine that is loaded
# Not all at a time: those that are killed have begun others than they have stored.
IN_FLIGHT = 30
SETTINGS = [BATCH, f"engine.in_flight={IN_FLIGHT}", "verifier=none", "rubric=exact-match"]
# Holds a writer that has stored more than so many attempts for as long as a file is there: whatever
# is done to its process then finds it at work, however busy the machine is.
HELD = """
import os, time
from pathlib import Path
from bayes_at_n.pipeline.generate.attempts import AttemptWriter
def hold(append=AttemptWriter.append):
    def appending(self, rows):
        append(self, rows)
        while self.written > {attempts} and Path({file!r}).exists():
            Path({file!r} + f".{{os.getpid()}}").touch()
            time.sleep(0.02)
    AttemptWriter.append = appending
hold()
"""
MAIN = """
import sys
from bayes_at_n.pipeline.cli import main
sys.exit(main.main(sys.argv[1:]))
"""
SPARING = "BAYES_AT_N_TESTS_SPARE"  # environment variable: forked commands spare, too
COMPOSING = ("test_command_line", "test_config", "test_install")  # test Hydra itself
HEAVY = ("bayes_at_n", "torch", "transformers", "vllm", "math_verify")
Key = tuple[str, int]
Attempts = dict[Key, dict[str, Any]]


class Forker:
    """A process that has imported everything and forks commands."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def ask(self, **order: Any) -> int:
        assert self.process.stdin and self.process.stdout
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def python(self, code: str, log: Path) -> int:
        """The exit status of a program, which finds vLLM and torch imported."""
        child = self.ask(log=str(log), arguments=[], environment={}, before=code)
        return self.ask(wait=child, log=str(log))

    def load(self, folder: Path) -> None:
        """The engine of a run, for all later commands that need the same."""
        self.ask(load=str(folder))

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


class Command:
    """`python -m pipeline` in a process group of its own, or the same in a forked child.

    Args:
        folder: the run folder.
        forker: None starts the command as a person types it.
        arguments: settings, or flags.
        verb: what to do.
        environment: on top of this process's.
        before: Python that runs first.
        hold: stop there once more attempts than these are stored, until `release`.
        logs: where what it prints goes; none: beside the run folder.
        line: all that is typed, of a verb that does not take `run_dir`.
    """

    def __init__(
        self,
        folder: Path,
        forker: Forker | None,
        *arguments: str,
        verb: str = "run",
        environment: dict[str, str] | None = None,
        before: str = "",
        hold: float | None = None,
        logs: Path | None = None,
        line: list[str] | None = None,
    ) -> None:
        self.folder, self.forker = folder, forker
        self.log = (logs or folder.parent) / f"{folder.name}-{time.time_ns()}.log"
        self.code: int | None = None
        self.holder = Path(f"{self.log}.held")
        if hold is not None:
            self.holder.touch()
            before += HELD.format(attempts=hold, file=str(self.holder))
        line = line or [verb, f"run_dir={folder}", *arguments]
        if forker is not None:
            self.pid = forker.ask(
                log=str(self.log), arguments=line, environment=environment or {}, before=before
            )
            return
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *(["-c", before + MAIN] if before else ["-m", "pipeline"]), *line],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | (environment or {}),
            )
        self.pid = self.process.pid

    def alive(self) -> bool:
        if self.forker is None:
            return self.process.poll() is None
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    def signal(self, number: int) -> None:
        """To the whole process group, as a terminal does."""
        os.killpg(self.pid, number)

    def wait(self) -> int:
        """The exit status, negative if a signal ended it."""
        if self.code is None:
            if self.forker is None:
                self.code = self.process.wait()
            else:
                self.code = self.forker.ask(wait=self.pid, log=str(self.log))
        return self.code

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def finish(self) -> str:
        """Let it run to its end, which must be a good one; returns what it printed."""
        code = self.wait()
        assert code == 0, self.text()[-3000:]
        return self.text()

    def held(self) -> Attempts:
        """What is stored, once the command is held; nothing if it ended before."""
        while not list(self.holder.parent.glob(f"{self.holder.name}.*")):
            if not self.alive():
                return {}
            time.sleep(0.02)
        return stored(self.folder)

    def release(self) -> None:
        self.holder.unlink()


def stored(
    folder: Path, columns: Sequence[str] = ("question_id", "trial", "seed", "text", "token_ids")
) -> Attempts:
    """What a reader finds; fails if a key comes twice."""
    found: Attempts = {}
    for batch in shards.batches(folder / "attempts", ATTEMPTS, columns, shards.Damage()):
        for row in batch.to_pylist():
            key = (row["question_id"], row["trial"])
            assert key not in found
            found[key] = row
    return found


def strike(folder: Path, alive: Callable[[], bool], most: int, moments: random.Random) -> int:
    """Kill -9 the workers of a folder, each a while after its first attempt; count the kills."""
    struck = set[str]()
    while len(struck) < most and alive():
        for path in folder.glob("sessions/*.json"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                session = json.loads(path.read_bytes())
                if session["attempts"] and not session["ended"] and path.stem not in struck:
                    time.sleep(moments.uniform(0, 0.3))
                    os.kill(session["pid"], signal.SIGKILL)
                    struck.add(path.stem)
        time.sleep(0.02)
    return len(struck)


def rows(folder: Path) -> int:
    """Attempts in the sealed parts, with those that were made twice."""
    return sum(pq.read_metadata(path).num_rows for path in (folder / "attempts").glob("*.parquet"))


def assert_whole(folder: Path, expected: Attempts, twice: bool = False) -> None:
    """Exactly M×N unique attempts in sealed parts, the right seeds, and the reference's texts.

    Args:
        folder: of the run.
        expected: the reference's attempts.
        twice: some may have been made twice; a reader must see one.
    """
    found = stored(folder)
    assert found == expected
    assert rows(folder) == len(expected) or (twice and rows(folder) > len(expected))
    cfg = load_folder(folder, [])
    assert all(row["seed"] == attempt_seed(cfg, *key) for key, row in found.items())
    attempts = folder / "attempts"
    assert not list(attempts.glob("*.journal")) and not list(attempts.glob(".*"))
    assert not (folder / "claims").exists() and not list(folder.glob("*.lease"))


def spare() -> None:
    """Compose each choice of groups once in this process and its forks, and wait for no disk.

    Hydra itself composes, and itself applies values to a copy of what it made of the groups. The
    tests cut power by cutting files: whether a disk keeps its word is none of theirs.
    """
    import hydra

    from bayes_at_n.pipeline.base import program

    os.environ[SPARING] = "1"
    program.commit = functools.cache(program.commit)
    program.version = functools.cache(program.version)
    program.describe()  # remembered, and inherited
    os.fsync = lambda file: None
    hydra.compose = functools.partial(_compose, hydra.compose, {})


def _compose(
    whole: Callable[..., Any], made: dict[Any, Any], name: str, words: Sequence[str]
) -> Any:
    """As `hydra.compose`, faster where only packaged files take part."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from bayes_at_n.pipeline.config import compose

    loader: Any = GlobalHydra.instance().config_loader()
    of: Any = ConfigStore.instance().repo
    places = [place.path for place in loader.get_search_path().get_path()]
    values = [word for word in words[1:] if "." in word.partition("=")[0] and "hydra" not in word]
    if (
        words[0] != "hydra.searchpath=[]"
        or str(compose.CONFIGS.resolve()) not in places
        or any(module in os.environ.get("PYTEST_CURRENT_TEST", "") for module in COMPOSING)
    ):
        return whole(name, words)
    groups = tuple(word for word in words if word not in values)
    key = OmegaConf.get_type(of["settings.yaml"].node), groups
    if key not in made:
        made[key] = pickle.dumps(whole(name, groups))
    node = pickle.loads(made[key])  # quicker than a copy
    ConfigLoaderImpl._apply_overrides_to_config([*map(compose.parse, values)], node)
    return node


def empty(savefig: Callable[..., None]) -> Callable[..., None]:
    """`Figure.savefig` with empty PDF and PNG files: drawing takes longer than all else."""

    @functools.wraps(savefig)
    def without(figure: Any, file: Any, *, format: str, **more: Any) -> None:
        if format not in ("pdf", "png"):
            savefig(figure, file, format=format, **more)

    return without


def lend(engines: list[Any]) -> None:
    """Have commands take over what `engines` holds, and leave engines to the end of the process.

    Closing one takes down process groups whose threads stayed in the parent.
    """
    from bayes_at_n.pipeline.engines.vllm import VllmEngine
    from bayes_at_n.pipeline.engines.vllm_core import import_vllm

    load, kept = VllmEngine.__init__, []

    def take_over(self: Any, cfg: Any, longest: int, rows: Any = ()) -> None:
        self.cfg, (_, self.on_cpu) = cfg, import_vllm()
        for other in engines:
            if other._arguments(other.longest) == self._arguments(longest):
                self.__dict__ |= other.__dict__ | {"cfg": cfg}
                return
        load(self, cfg, longest, rows)
        kept.append(self)

    VllmEngine.__init__ = take_over  # type: ignore[method-assign]
    VllmEngine.close = lambda self: None  # type: ignore[method-assign]


def load(folder: Path) -> Any:
    from bayes_at_n.pipeline.config.folder import load_folder
    from bayes_at_n.pipeline.engines.vllm import VllmEngine
    from bayes_at_n.pipeline.store.runfolder import Run

    run = Run(load_folder(folder, []))
    longest = max(len(row["prompt_token_ids"]) + row["max_tokens"] for row in run.questions)
    engine: Any = VllmEngine(run.cfg, longest)
    engine.longest = longest
    return engine


def command(order: dict[str, Any]) -> None:
    """In the child: the command line as a person types it."""
    from bayes_at_n.pipeline.cli import main

    os.setpgid(0, 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])
    code = 99
    try:
        exec(order["before"], {"__name__": "__main__"})
        code = main.main(order["arguments"])
        sys.stdout.flush()
        Path(order["log"] + ".modules").write_text(json.dumps(list(sys.modules)))
    finally:
        os._exit(code)


def wait(order: dict[str, Any]) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
    modules = Path(order["log"] + ".modules")
    if code == 0 and modules.exists():  # what a whole run imports, once for all later commands
        for name in json.loads(modules.read_text()):
            if name.split(".")[0] in HEAVY:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        modules.unlink()
    return code


def serve() -> None:
    from matplotlib.figure import Figure

    from bayes_at_n.pipeline.config import compose
    from bayes_at_n.pipeline.engines.vllm_core import import_vllm

    answers = os.fdopen(os.dup(1), "w")
    if SPARING in os.environ:  # not in soak
        spare()
    os.dup2(2, 1)
    vllm, _ = import_vllm()
    vllm.LLM  # noqa: B018  # imported on first use
    Figure.savefig = empty(Figure.savefig)  # type: ignore[method-assign]
    engines: list[Any] = []
    lend(engines)
    for chosen in ([], ["verifier=none"]):  # remembered, and inherited
        compose.load(chosen)
    answer: Any = "ready"
    while True:
        print(answer, file=answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # taking down all that is imported takes seconds
        order = json.loads(line)
        if "load" in order:
            engines.append(load(Path(order["load"])))
            answer = len(engines)
        elif "wait" in order:
            answer = wait(order)
        else:
            gc.freeze()  # a child that looks through all this for garbage copies all its pages
            answer = os.fork()
            if not answer:
                command(order)
            with contextlib.suppress(OSError):
                os.setpgid(answer, answer)  # whichever of the two comes first


if __name__ == "__main__":
    serve()
