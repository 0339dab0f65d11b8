"""Submissions to a real Slurm: preemption, lost nodes, signals, and what must not be restarted."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import slurm_cluster
from helpers import Capsys
from slurm_cluster import Cluster, wait_for

from bayes_at_n.pipeline.adaptive import looks, plan
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(slurm_cluster.missing()), reason=str(slurm_cluster.missing())),
]
QUESTIONS, TRIALS = 30, 8
# One thread each: the nodes share the cores of one machine.
SITE = "partition=low gpus=1 cpus=3 memory=1G time=00:30:00 cpu_jobs.partition=low"
SITE += " cpu_jobs.cpus=1 cpu_jobs.memory=1G"
RUN = ["model=demo", "dataset=demo", "engine=transformers", "rubric=exact-match"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with slurm_cluster.running() as found, pytest.MonkeyPatch.context() as patch:
        for key, value in {**found.env, "OMP_NUM_THREADS": "1"}.items():
            patch.setenv(key, value)
        yield found


def _submit(*settings: str) -> int:
    site = [f"cluster.{setting}" for setting in SITE.split()]
    return main(["submit", *RUN, *site, *settings])


def _pointer(run: Path, submission: int = -1) -> dict[str, str]:
    """The ids of a submission's jobs, by kind; by default the latest one of a run."""
    found = [*run.glob("_slurm/*/submission.json"), *run.parent.glob("_slurm/*/submission.json")]
    records = [json.loads(path.read_text()) for path in sorted(found, key=lambda p: p.parent.name)]
    told = [record["jobs"] for record in records if str(run) in record["runs"]]
    return {kind: job["id"] for kind, job in told[submission].items()}


def _output(folder: Path, pattern: str) -> str:
    """What jobs of the submissions in a folder printed."""
    files = sorted((folder / "_slurm").glob(f"*/{pattern}"))
    return "".join(path.read_text(errors="replace") for path in files)


def _rows(run: Path) -> Counter[tuple[str, int]]:
    """How often each attempt was made: rows in all files, duplicates too."""
    made: Counter[tuple[str, int]] = Counter()
    for part in (run / "attempts").glob("*.parquet"):
        table = pq.read_table(part, columns=["question_id", "trial"]).to_pydict()
        made.update(zip(table["question_id"], table["trial"], strict=True))
    return made


def _complete(run: Path, trials: int) -> None:
    """Exactly the attempts that are wanted, all of them scored."""
    damage = shards.Damage()
    found = [
        key
        for batch in shards.batches(run / "attempts", ATTEMPTS, ["question_id", "trial"], damage)
        for key in zip(*(batch[name].to_pylist() for name in ("question_id", "trial")), strict=True)
    ]
    assert not damage.lines and not list((run / "attempts").glob("*.journal"))
    assert len(found) == len(set(found)) == QUESTIONS * trials
    assert {trial for _, trial in found} == set(range(trials))
    assert json.loads((run / "scores.json").read_text())["attempts"] == QUESTIONS * trials


@pytest.mark.soak
def test_everything_goes_wrong_and_every_attempt_is_made_once(
    cluster: Cluster, tmp_path: Path, tiny_model: Path, capsys: Capsys
) -> None:
    root = tmp_path / "it's 100% $1"
    judged, plain = root / "demo", root / "none"
    other = tmp_path / "other"
    doomed, sound = other / "7", other / "8"
    named = f'run_dir="{root}/${{verifier.name}}"'
    work = [f"sampling.trials={TRIALS}", "engine.batch_size=8"]

    # Two runs that three workers share; a second submission of one of them; a run that cannot work,
    # and one of another engine beside it that can.
    assert _submit(*work, named, "verifier=demo,none", "cluster.workers=3") == 0
    assert _submit(*work, named, "verifier=none") == 0
    crash = '[ "$SLURM_JOB_NAME-$task" != generate-0 ] || LAUNCH="timeout -s KILL 1"'
    crash = f"task=$SLURM_ARRAY_TASK_ID; {crash}"
    small = [f'run_dir="{other}/${{engine.batch_size}}"', "engine.batch_size=7,8"]
    small += ["verifier=none", "sampling.trials=1", "cluster.cpus=1"]
    assert _submit(*small, f"cluster.setup='{crash}'") == 0
    first, second, third = _pointer(judged), _pointer(plain), _pointer(doomed)
    array = first["generate"]
    assert array == _pointer(plain, 0)["generate"] != second["generate"]

    # A warning for one task, preemption of another, and the node of a third loses its power.
    wait_for(lambda: list(cluster.states(array).values()).count("RUNNING") == 3, 120, "three tasks")
    wait_for(lambda: all(list(run.glob("attempts/*")) for run in (judged, plain)), 300, "attempts")
    queued = cluster.ask("squeue", "-h", "-r", "-t", "R", "-o", "%i %N").splitlines()
    node = dict(line.split() for line in queued)
    cluster.ask("scancel", "--signal=USR1", f"{array}_0")
    urgent = ["sbatch", "-p", "high", "-c", "3", "-w", node[f"{array}_1"], "-o", "/dev/null"]
    assert "Submitted" in cluster.ask(*urgent, "--wrap", "sleep 1")
    cluster.kill_node(node[f"{array}_2"])
    lost = f"nodename={node[f'{array}_2']}"
    cluster.ask("scontrol", "update", lost, "state=down", "reason=power")

    every = [*first.values(), *second.values(), *third.values()]
    wait_for(lambda: not cluster.ask("squeue", "-h", "-j", ",".join(every)).strip(), 900, "the end")
    for run in (judged, plain):
        _complete(run, TRIALS)
    again = sum(times - 1 for run in (judged, plain) for times in _rows(run).values())
    assert again <= 32  # of the node that was lost, at most what was claimed there, of both runs
    assert (root / "_report" / "index.html").is_file()
    for task in (0, 1):
        assert "ended with status 85" in _output(root, f"generate-{array}_{task}.out")
    for task in (0, 1, 2):
        assert "restart 1" in _output(root, f"generate-{array}_{task}.out")
    assert "restart 2" not in _output(root, f"generate-{array}_*.out")

    # Three starts in a row that made nothing end the run that cannot work, and what would follow;
    # the other one of that submission goes on.
    log = _output(other, "generate-*_0.out")
    assert log.count("ended with status 137") == 3 and "3 starts in a row" in log
    assert "30 attempts are pending" in _output(other, "grade-*_0.out")
    assert not list((other / "_slurm").glob("*/score-*_0.out"))  # cancelled, never begun
    _complete(sound, 1)
    assert (other / "_report" / "index.html").is_file()

    # Submitting again does what is pending: nothing here, everything there.
    capsys.readouterr()
    assert _submit(*work, named, "verifier=demo,none") == 0
    assert "nothing to submit" in capsys.readouterr().err
    cluster.start_node(node[f"{array}_2"])


@pytest.mark.soak
def test_a_race_goes_on_through_stops_and_ends_by_itself(
    cluster: Cluster, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = ("step-0300", "step-1800", "step-3900")
    race = [f"model.checkpoint={','.join(steps)}", "until=best", "verifier=none", "block=4"]
    race += ["dataset.limit=12", "sampling.trials=24", "engine.batch_size=8", "cluster.cpus=2"]
    assert _submit(*race, "cluster.max_running=2") == 0
    place = tmp_path / "runs" / "demo"
    runs = [place / f"demo-{step}" for step in steps]
    told = _pointer(runs[0])
    array = told["settle"]
    assert list(told) == ["settle", "grade", "score", "report"]

    # A warning for one task; the other one is taken off its node and queued again.
    wait_for(lambda: any(list(run.glob("attempts/*")) for run in runs), 300, "attempts")
    cluster.ask("scancel", "--signal=USR1", f"{array}_0")
    wait_for(lambda: "restart 1" in _output(place, f"settle-{array}_0.out"), 300, "a restart")
    cluster.ask("scontrol", "requeue", f"{array}_1")
    every = ",".join(told.values())
    wait_for(lambda: not cluster.ask("squeue", "-h", "-j", every).strip(), 900, "the end")

    race = plan.opened(place / "_settle" / "best")
    seen, _ = looks.look(race.contenders, race.goal)
    assert seen.states[-1].known.settled or seen.states[-1].trials == 24
    numbers = [json.loads(line)["look"] for line in (race.folder / looks.FILE).open()]
    assert numbers == list(range(1, len(numbers) + 1))
    for run, trials in zip(runs, seen.states[-1].spent.tolist(), strict=True):
        scores = json.loads((run / "scores.json").read_text())
        assert scores["attempts"] == 12 * trials and scores["stopped"]["until"] == "best"
        made = {key: rows for key, rows in _rows(run).items() if key[1] < trials}  # not ahead
        assert set(made.values()) == {1} or sum(made.values()) - len(made) <= 16  # of a kill
        assert {trial for _, trial in made} == set(range(trials))
    assert (place / "_report" / "index.html").is_file()
    assert main(["settle", str(Path("runs/demo/_settle/best"))]) == 0  # which samples nothing
    assert all(sum(_rows(run).values()) for run in runs)


def test_a_submission_samples_grades_scores_and_reports(
    cluster: Cluster, tmp_path: Path, tiny_model: Path
) -> None:
    run = tmp_path / "runs" / "run"
    assert _submit("verifier=none", f"run_dir={run}", "sampling.trials=1") == 0
    every = ",".join(_pointer(run).values())
    wait_for(lambda: not cluster.ask("squeue", "-h", "-j", every).strip(), 300, "the end")
    _complete(run, 1)
    assert (run / "_report" / "index.html").is_file()
