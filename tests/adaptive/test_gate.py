"""compare with a gate: its verdicts through the command line, its evidence, its policies."""

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, add_attempts, run_of

from bayes_at_n.pipeline.adaptive import live
from bayes_at_n.pipeline.adaptive.race import Course, upcoming
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.resident import Order, Residents
from bayes_at_n.scoring.sequential import Race, Target, claimed

pytestmark = pytest.mark.usefixtures("undrawn")

QUESTIONS, MOST = 12, 40
CHANCES = {"base": 0.5, "better": 0.8, "worse": 0.2, "same": 0.5}


def marks(dataset: str, name: str, trials: int) -> dict[str, str]:
    """Outcomes of a model, the same whenever they are sampled."""
    rng = np.random.default_rng([*f"{dataset}/{name}".encode()])
    right = rng.random((QUESTIONS, MOST)) < CHANCES[name]
    return {f"q{q:02d}": "".join(map(str, row[:trials])) for q, row in enumerate(right.astype(int))}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    for dataset, name in itertools.product("xy", CHANCES):
        of = marks(dataset, name, 16)
        run_of(folder / "runs", name, of, "sampling.seeds=independent", dataset=dataset)
    return folder


@pytest.fixture
def root(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs, for tests that read them."""
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def copied(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, to sample more."""
    for dataset, name in itertools.product("xy", ("base", "same")):
        run = Path("runs", dataset, name)
        shutil.copytree(made / run, tmp_path / run)
    monkeypatch.chdir(tmp_path)


def policy(text: str) -> str:
    Path("policy.yaml").write_text(text)
    return "gate=policy.yaml"


BOTH = "datasets:\n  x: {no_worse: 2}\n  y: {better: 0}\n"


def gated(capsys: Capsys, *settings: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, the record, and what was said."""
    status = main.main(["compare", *settings, "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else {}, " ".join(err.split())


def test_go(root: Path, capsys: Capsys) -> None:
    status, found, _ = gated(capsys, "model=base,better", policy(BOTH))
    assert (status, found["verdict"]) == (0, "GO")
    assert [row["verdict"] for row in found["datasets"]] == ["holds", "holds"]
    for row in found["datasets"]:
        base, better = (
            "".join(marks(row["dataset"], name, 16).values()).count("1") / QUESTIONS / 16
            for name in ("base", "better")
        )
        assert row["difference"] == pytest.approx(100 * (better - base))
        assert row["low"] < row["difference"] < row["high"] and row["trials"] == 16
    written = json.loads(Path("runs/_gate-base+better/gate.json").read_text())
    assert written["verdict"] == "GO" and written["policy"]["datasets"]["x"]["no_worse"] == 2
    status = main.main(["compare", "model=base,better", "gate=policy.yaml"])
    shown = capsys.readouterr().out
    assert status == 0 and "\nGO: " in shown


def test_no_go_and_inconclusive(root: Path, capsys: Capsys) -> None:
    for models, code, verdict, each in (
        ("base,worse", 3, "NO-GO", ["fails", "fails"]),
        ("base,same", 4, "INCONCLUSIVE", ["open", "open"]),
    ):
        status, found, _ = gated(capsys, f"model={models}", policy(BOTH))
        assert (status, found["verdict"]) == (code, verdict)
        assert [row["verdict"] for row in found["datasets"]] == each
    # A claim is made for all datasets together: one that is far ahead does not wait for others.
    for dataset, like in (("x", "better"), ("y", "same")):
        of = marks(dataset, like, 16)
        run_of(Path("runs"), "half", of, "sampling.seeds=independent", dataset=dataset)
    status, found, _ = gated(capsys, "model=base,half", "gate=policy.yaml")
    assert status == 4 and [row["verdict"] for row in found["datasets"]] == ["holds", "open"]
    # One dataset by itself, of folders named outright; the first is BASE.
    policy("datasets: {x: {no_worse: 5}}")
    folders = ["runs/x/better", "runs/x/base"]
    assert gated(capsys, *folders, "gate=policy.yaml")[0] == 3
    assert gated(capsys, *folders[::-1], "gate=policy.yaml")[0] == 0


WRONG = [
    ("datasets: {x: {noworse: 1}}", "datasets.x.noworse: no such key (did you mean no_worse"),
    ("datasets: {x: 3}", "datasets.x.no_worse"),
    ("datasets: {x: {no_worse: 1, better: 2}}", "datasets.x.no_worse"),
    ("confidence: .9", "datasets={}"),
    ("datasets: {z: {no_worse: 1}}", "z: no such run"),
    ("datasets: {x: {no_worse: 1}}\nconfidence: 95", "confidence=95"),
    ("{", "not valid YAML"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_policy_is_one_line(root: Path, capsys: Capsys, text: str, message: str) -> None:
    status, found, said = gated(capsys, "model=base,same", policy(text))
    assert status == 2 and not found and message in said


def test_what_no_gate_can_decide(root: Path, capsys: Capsys) -> None:
    policy(BOTH)
    for settings, message in (
        (["model=base,same,worse", "gate=policy.yaml"], "model=BASE,NEW"),
        (["model=base,same", "gate=none.yaml"], "none.yaml"),
        (["model=base,same", "settle=true"], "settle=true"),
        (["model=base,same", "gate=policy.yaml", "budget.tokens=5"], "budget"),
    ):
        status, _, said = gated(capsys, *settings)
        assert status == 2 and message in said


def test_trials_that_share_luck_or_seeds_are_bet_on_whole(root: Path, capsys: Capsys) -> None:
    of_trial = {"base": np.arange(40) % 2, "lucky": (np.arange(40) % 5 < 3).astype(int)}
    for name, row in of_trial.items():
        right = np.tile(row, (QUESTIONS, 1))
        lines = {f"q{q:02d}": "".join(map(str, row)) for q, row in enumerate(right)}
        manifest = run_of(Path("runs"), name, lines, dataset="z").manifest
        engines = {"generated": {"engines": [{"engine": "transformers"}]}}
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | engines))
    policy("datasets: {z: {no_worse: 1}}")
    status, found, _ = gated(capsys, "model=base,lucky", "gate=policy.yaml")
    [row] = found["datasets"]
    assert status == 4 and row["p"] < 0.01 and row["seeds"] == "shared"
    assert "by whole trials" in row["sentence"]


def next_look(seen: Course) -> Any:
    """Nothing is sampled ahead."""
    trials, chosen = upcoming(seen.states, seen.goal)
    return np.where(chosen, trials, 0)


@pytest.fixture
def sampled(copied: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the workers of a gate sample, at once: folders, and up to how many trials."""
    found: list[tuple[str, int]] = []

    def begin(_: object, order: Order) -> None:
        verb, folder, *settings = order.command
        given = dict(setting.split("=", 1) for setting in settings)
        assert (verb, given["stages"]) == ("run", "[prepare,generate]")
        trials, _ = json.loads(Path(given["race"].strip("'")).read_text())[folder]
        found.append((folder, trials))
        config = Path(folder, "config.yaml")
        text = re.sub(r"\n  trials: [0-9]+", f"\n  trials: {trials}", config.read_text())
        config.write_text(text)
        dataset, name = Path(folder).parts[-2:]
        add_attempts(Run(load_folder(Path(folder), [])), marks(dataset, name, trials))

    monkeypatch.setattr(Residents, "begin", begin)
    monkeypatch.setattr(Residents, "ended", lambda *_: 0)
    monkeypatch.setattr(live, "WAIT_S", 0.001)
    monkeypatch.setattr(live, "wanted_trials", lambda seen, _: next_look(seen))
    return found


def test_settle_samples_until_it_is_decided(capsys: Capsys, sampled: list[tuple[str, int]]) -> None:
    text = f"trials: {MOST}\ndatasets:\n  x: {{no_worse: 12}}\n  y: {{no_worse: 12}}\n"
    before = gated(capsys, "model=base,same", policy(text))
    assert before[0] == 4
    status, found, _ = gated(capsys, "model=base,same", "gate=policy.yaml", "settle=true")
    assert (status, found["verdict"]) == (0, "GO")
    trials = [row["trials"] for row in found["datasets"]]
    assert all(16 <= one < MOST for one in trials) and max(trials) > 16
    assert {folder for folder, _ in sampled} <= {f"runs/{d}/{m}" for d in "xy" for m in CHANCES}
    for folder, reached in dict(sampled).items():
        stopped = runfolder.read_json(Path(folder, "manifest.json"))["stopped"]
        assert stopped["trials"] == reached == trials["xy".index(Path(folder).parts[1])]
    # What is decided stays so, and nothing more is sampled.
    count = len(sampled)
    again = gated(capsys, "model=base,same", "gate=policy.yaml", "settle=true")
    assert again[0] == 0 and again[1]["datasets"] == found["datasets"] and len(sampled) == count


def test_settle_ends_with_the_budget(capsys: Capsys, sampled: list[tuple[str, int]]) -> None:
    settings = ["model=base,same", policy(BOTH), "settle=true", "budget.tokens=2000"]
    status, found, _ = gated(capsys, *settings)
    assert status == 4 and not sampled and "the budget is spent" in found["sentence"]


def test_the_evidence_beyond_a_difference_is_fair() -> None:
    """At the difference itself the e-value has an expectation of at most 1: all outcomes added."""
    base, bound, expected, trials = 0.7, -0.2, 0.0, 3
    for outcomes in itertools.product((0, 1), repeat=2 * trials):
        pairs = np.reshape(outcomes, (trials, 2, 1))
        race, chance = Race(2, 1, Target("order")), 1.0
        for first, second in pairs:
            race.add([first, second], [[1], [1]])
            chance *= base if first else 1 - base
            chance *= base + bound if second else 1 - base - bound
        log_e = race.log_e_beyond([[0, -bound], [bound, 0]])
        expected += chance * np.exp([log_e[1, 0], log_e[0, 1]])
        assert race.log_e_beyond(0)[0, 1] == race.look().log_e[0, 1]
    assert (expected > 0.75).all() and (expected <= 1).all()


def closed(p: np.ndarray, level: float, local: Callable[[np.ndarray], float]) -> np.ndarray:
    """Closed testing with a local test: each hypothesis of which all intersections are rejected."""
    found = np.ones(p.size, bool)
    for size in range(1, p.size + 1):
        for of in itertools.combinations(range(p.size), size):
            if local(np.sort(p[[*of]])) > level:
                found[[*of]] = False
    return found


def test_claims_lie_between_holms_and_those_of_closed_testing_with_simes() -> None:
    rng, level, more = np.random.default_rng(1), 0.025, 0
    for _ in range(300):
        p = rng.uniform(0.0005, 0.03, size=4)
        found = claimed(-np.log(p), level)
        holm = closed(p, level, lambda of: of.size * of[0])
        simes = closed(p, level, lambda of: float(np.min(of * of.size / np.arange(1, 1 + of.size))))
        assert (holm <= found).all() and (found <= simes).all()
        assert found.all() or (p > level).any()
        more += int(found.sum() - holm.sum())
    assert more  # it is sharper than Holm's
