"""kill -9 at any moment of any verb: the same command again ends as if nothing had been.

A moment is counted, not timed: every change of a name in the file system and every file that is
opened to be written is one (Python's audit events), and before the n-th the process ends.
"""

import json
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from forked import TRIALS, Command, Forker

pytestmark = pytest.mark.soak
# Appends a line for every moment; before the n-th the process is killed, or its whole group.
STRIKE = """
import os, signal, sys
def prepare(number, whole, root, log, main=os.getpid(), seen=[0]):
    kinds = {{"open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.symlink"}}
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    def place(path, folder):
        path = os.fsdecode(path)
        return os.path.join(os.readlink(f"/proc/self/fd/{{folder}}"), path) if folder >= 0 else path
    def strike(event, given):
        if event not in kinds or os.getpid() != main or not isinstance(given[0], (str, bytes)):
            return
        if event == "open" and not given[2] & writing:
            return
        folder = -1 if event in ("open", "os.symlink") else given[-1]
        if not (path := place(given[0], folder)).startswith(root):
            return
        seen[0] += 1
        os.write(out, f"{{event}} {{path.removeprefix(root)}}\\n".encode())
        if seen[0] == number:
            os.killpg(0, signal.SIGKILL) if whole else os.kill(main, signal.SIGKILL)
    sys.addaudithook(strike)
prepare({number}, {whole}, {root!r}, {log!r})
"""
# `settle` samples below where it is, in children: forked here, so that they find the engines.
FORKED = """
import os
os.chdir({root!r})
from bayes_at_n.pipeline.adaptive import live
from bayes_at_n.pipeline.workers import resident
children = {{}}
def begin(self, order):
    from bayes_at_n.pipeline.cli import main
    if not (pid := os.fork()):
        try:
            os._exit(main.main(order.command))
        finally:
            os._exit(99)
    children[id(order)] = pid
def ended(self, order):
    pid, status = os.waitpid(children[id(order)], os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None
resident.Residents.begin, resident.Residents.ended = begin, ended
# How much is sampled ahead is chance.
live.IDLE, live.forecast = 0, lambda seen: None
"""
# Dies in the middle of a file, at its first byte beyond so many.
HALF = """
import resource, signal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
"""
KILLS, FEW = 12, 3  # of every verb
# One attempt at a time: the company in a batch moves the last bits of log-probs.
ALONE = ["engine.batch_size=1", "engine.args={enable_prefix_caching: false}"]
SETTINGS = [*ALONE, f"sampling.trials={TRIALS}"]
OTHER = "model.checkpoint=step-2400"
STAGES = ["prepare", "generate", "grade", "verify", "categorize", "score"]
BESIDE = ["compare", "report", "prr", "equivalence", "study", "replay", "import", "merge", "status"]
VERBS = [*STAGES, "run", "settle", *BESIDE]
PART = re.compile(r"_?\d{15,}-[\w.-]+?-\d+-\d{5}(-taken)?\.(parquet|sound)")
# When, where and how fast: differs between two runs that nothing disturbed.
CHANCE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?|\d{8}T\d{6}-[0-9a-f]{8}"
    r"|(?<=vllm_dist_)[0-9a-f]+|(?<=vllm_mm_)[\w-]+"
)
CLOCKS = ["started", "first_token", "finished"]
# Of sessions, killed ones among them; and the digest of a table that holds times.
TOLD = ("generated", "cost", "time", "made_from")
RECORDS = "".join(
    f'{{"model": "m{m}", "dataset": "d", "question": "q{q}", "trial": {t}, "correct": {q % 2}}}\n'
    for m in range(2)
    for q in range(4)
    for t in range(2)
)


def line(verb: str, root: Path) -> list[str]:
    """The arguments of a command; all it writes is below `root`."""
    runs, models = root / "runs" / "demo", Path("demo/models")
    a, b, c, d = (str(runs / name) for name in "abcd")
    out = f"out={root / verb}"
    return {
        "prepare": [verb, f"run_dir={a}", *SETTINGS],
        "run": [verb, f"run_dir={a}", *SETTINGS],
        "score": [verb, a, "caps=auto"],
        "status": [verb, a, "--check"],
        "compare": [verb, a, b, out],
        "report": [verb, a, b, out],
        "prr": [verb, f"before={a},{b}", f"after={c},{d}", out],
        "equivalence": [verb, a, b, "replay=0", out],
        "study": [verb, "study=tau", "dataset=demo", f"runs={root / 'runs'}", out],
        "replay": ["settle", f"replay={a},{b}", "until=best", out],
        "settle": [
            verb, "model.checkpoint=step-3900,step-2400", *SETTINGS, "block=1", "until=best",
            out,
        ],
        "import": [verb, f"source={root / 'records.jsonl'}", f"runs={root / 'imported'}"],
        "merge": [verb, f"checkpoints=[{models / 'step-0300'},{models / 'step-0600'}]", out],
    }.get(verb, [verb, a])  # fmt: skip


def rows(paths: list[Path]) -> list[str]:
    """Of all these parts, in the order of their text: a row that is there twice is there twice."""
    tables = [pq.read_table(path) for path in paths]
    return sorted(
        repr(row)
        for table in tables
        for row in table.drop_columns([c for c in CLOCKS if c in table.column_names]).to_pylist()
    )


def content(path: Path) -> Any:
    if path.suffix == ".parquet":
        return rows([path])
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tolist() for name in arrays.files}
    if path.suffix not in (".json", ".jsonl", ".yaml", ".html", ".js"):
        return path.read_bytes()
    text = CHANCE.sub("?", path.read_text())
    if path.suffix == ".json" and isinstance(found := json.loads(text), dict):
        return {key: value for key, value in found.items() if key not in TOLD}
    return text


def page(root: Path) -> str:
    index = root / "report" / "index.html"
    return index.read_text() if index.exists() else ""


def held(root: Path) -> dict[str, Any]:
    """All that is below a folder; parts as rows, for what is in which is chance."""
    parts: dict[str, list[Path]] = {}
    found: dict[str, Any] = {}
    for path in sorted(path for path in root.rglob("*") if not path.is_dir()):
        place = path.relative_to(root)
        if PART.fullmatch(path.name):
            if path.suffix == ".parquet":
                parts.setdefault(str(place.parent / "*"), []).append(path)
        elif path.suffix == ".damaged":
            continue  # what was torn is kept to be looked at
        elif place.match("report/attempts/*/*") and path.parent.name not in page(root):
            continue  # a report that was killed: its files stay for an hour
        elif place.parts[-2] not in ("sessions", "logs") if len(place.parts) > 1 else True:
            found[CHANCE.sub("?", str(place))] = content(path)
    return found | {place: rows(of) for place, of in parts.items()}


class Place:
    """A folder in which a verb is tried again and again, from the same start."""

    def __init__(self, forker: Forker, root: Path, verb: str) -> None:
        self.forker, self.root, self.verb = forker, root, verb
        self.log = root.with_suffix(".log")

    def restore(self, start: Path) -> None:
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(start, self.root, dirs_exist_ok=True)

    def run(self, before: str = "") -> int:
        if self.verb == "settle":
            before = FORKED.format(root=str(self.root)) + before
        order = {"arguments": line(self.verb, self.root), "environment": {}, "before": before}
        child = self.forker.ask(log=str(self.log), **order)
        return self.forker.ask(wait=child, log=str(self.log))

    def strike(self, number: int, whole: bool) -> tuple[int, list[str]]:
        """The status, and the moments until then."""
        (events := self.root.with_suffix(".events")).unlink(missing_ok=True)
        code = self.run(
            STRIKE.format(number=number, whole=whole, root=f"{self.root}/", log=str(events))
        )
        return code, events.read_text().splitlines()

    def finish(self) -> dict[str, Any]:
        code = self.run()
        assert code == 0, self.log.read_text()[-3000:]
        return held(self.root)


@pytest.fixture(scope="module")
def starts(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What is there before each verb."""
    folder = tmp_path_factory.mktemp("starts")
    root = folder / "root"
    (runs := root / "runs" / "demo").mkdir(parents=True)
    (root / "records.jsonl").write_text(RECORDS)
    found: dict[str, Path] = {}

    def begin(verb: str) -> None:
        found[verb] = shutil.copytree(root, folder / verb)

    for verb in ("prepare", "run"):
        Command(runs / "b", forker, *SETTINGS, OTHER, verb=verb, logs=folder).finish()
        if verb == "prepare":
            forker.load(runs / "b")
    for verb in STAGES:
        begin(verb)
        Place(forker, root, verb).finish()
        if verb == "prepare":
            forker.load(runs / "a")
    for name, of in zip("cd", "ab", strict=True):
        shutil.copytree(runs / of, runs / name)
    for verb in BESIDE:
        begin(verb)
    found["run"] = found["settle"] = found["prepare"]
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_at_any_moment_changes_nothing(
    forker: Forker, starts: dict[str, Path], verb: str
) -> None:
    """Every fourth is killed a second time, on the way back; every second with all its children."""
    place, start = Place(forker, starts["prepare"].with_name("root"), verb), starts[verb]
    place.restore(start)
    code, moments = place.strike(0, whole=False)
    assert code == 0 and bool(moments) == (verb != "status")
    whole, rng, kills = held(place.root), random.Random(verb), 0
    for turn, number in enumerate(rng.sample(range(len(moments)), min(KILLS, len(moments)))):
        place.restore(start)
        strikes = [number + 1] + [rng.randint(1, len(moments))] * (turn % 4 == 3)
        for at in strikes:
            code, seen = place.strike(at, whole=turn % 2 == 0 or verb == "settle")
            # It may have been nearly done, or other threads may have come first.
            assert code == -signal.SIGKILL or (code == 0 and len(seen) < at), (at, seen)
            kills += code != 0
        assert place.finish() == whole, (verb, strikes, seen[-3:])
    assert kills >= min(KILLS, len(moments)) * 0.9
    print(f"{verb}: {kills} kills, at {len(moments)} moments")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("status", "settle")])
def test_a_kill_in_the_middle_of_a_file_changes_nothing(
    forker: Forker, starts: dict[str, Path], verb: str
) -> None:
    place, start = Place(forker, starts["prepare"].with_name("root"), verb), starts[verb]
    place.restore(start)
    before = {path: path.stat().st_size for path in place.root.rglob("*")}
    whole = place.finish()
    made = [path for path in place.root.rglob("*") if path.is_file() and path not in before]
    sizes, rng, kills = sorted({path.stat().st_size for path in made}), random.Random(verb), 0
    for _ in range(FEW):
        place.restore(start)
        code = place.run(HALF.format(size=rng.randrange(max(rng.choice(sizes), 1))))
        assert code in (0, -signal.SIGXFSZ), place.log.read_text()[-3000:]
        kills += code != 0
        assert place.finish() == whole, verb
    assert kills
    print(f"{verb}: {kills} kills in the middle of a file")


@pytest.fixture
def disk(starts: dict[str, Path]) -> Iterator[Path]:
    """The folder of all tries as a file system of its own."""
    root = starts["prepare"].with_name("root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "t", root]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield root
    subprocess.run(["umount", "-l", root], check=True)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "status"])
def test_a_full_disk_is_said_and_changes_nothing(
    forker: Forker, starts: dict[str, Path], disk: Path, verb: str
) -> None:
    place, start, rng, full = Place(forker, disk, verb), starts[verb], random.Random(verb), 0
    place.restore(start)
    used = shutil.disk_usage(disk).used
    whole = place.finish()
    needed = shutil.disk_usage(disk).used - used
    for _ in range(FEW):
        place.restore(start)
        left = max(rng.randrange(needed) // 4096, 1) * 4096
        size = shutil.disk_usage(disk).used + left
        subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
        code, said = place.run(), place.log.read_text()
        assert code in (0, 1, 2) and "Traceback" not in said, said[-3000:]
        assert not code or "No space left" in said or "its disk has" in said, said[-3000:]
        full += code != 0
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        assert place.finish() == whole, (verb, left)
    print(f"{verb}: {full} full disks")
