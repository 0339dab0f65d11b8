"""Scripts of a submission, and what `submit` refuses; nothing here needs a Slurm."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from helpers import Capsys, make_run

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.cluster import submit
from bayes_at_n.pipeline.cluster.submit import Submission
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

ODD = 'it\'s a $HOME "folder"\nof `two` lines; %A {{ kind }} #'


def _plan(folder: Path, *settings: str, names: tuple[str, ...] = ("a", "b")) -> Submission:
    """What runs of these names owe; the first letter is the model's."""
    runs = [Run(compose.load([*settings, "verifier=demo"])) for _ in names]
    for run, name in zip(runs, names, strict=True):
        run.cfg.run_dir = str(folder / name)
        run.cfg.model.name = name[0]
    return Submission(runs, runs, runs, folder / "_report", folder / "_slurm" / "1")


def _directives(script: str) -> list[str]:
    return [line[8:] for line in script.splitlines() if line.startswith("#SBATCH ")]


def _bash(script: str, *more: str) -> str:
    """What bash prints for a part of a script."""
    done = subprocess.run(["bash", "-c", script, "bash", *more], capture_output=True, check=True)
    return done.stdout.decode()


DEMO = ["submit", "model=demo", "dataset=demo", "sampling.trials=2"]


def test_every_script_is_bash_with_what_the_site_needs(tmp_path: Path) -> None:
    site = ["cluster=h200-8", "cluster.account=lab", "cluster.qos=long", "engine.replicas=8"]
    options = "cluster.options=['--constraint=h200','--comment=\"two words\"']"
    plan = _plan(tmp_path, *site, options)
    assert plan.kinds == ["generate", "grade", "verify", "score", "report"]
    texts = {kind: submit.render(plan, kind) for kind in plan.kinds}
    for kind, text in texts.items():
        subprocess.run(["bash", "-n"], input=text.encode(), check=True)
        assert text.startswith("#!/bin/bash\n") and "{{" not in text and "\n\n\n" not in text
        directives = _directives(text)
        assert f"--job-name={kind}" in directives and "--account=lab" in directives
        assert {"--requeue", "--open-mode=append", "--kill-on-invalid-dep=yes"} <= set(directives)
        assert ("--partition=gpu" in directives) == (kind in ("generate", "verify"))
        assert ("--constraint=h200" in directives) == (kind in ("generate", "verify"))
        assert ("--qos=long" in directives) == (kind in ("generate", "verify"))
        assert "\nexport HF_HUB_OFFLINE=1\n" in text
        assert ("\nexport VLLM_CACHE_ROOT=" in text) == (kind in ("generate", "verify"))
    generate = _directives(texts["generate"])
    assert {"--array=0-1%16", "--gres=gpu:8", "--cpus-per-task=96", "--mem=1000G"} <= set(generate)
    assert "--signal=USR1@300" in generate  # without B:, for the step
    assert {"--gres=gpu:1", "--cpus-per-task=12", "--mem=128000M", "--array=0-1%16"} <= set(
        _directives(texts["verify"])
    )
    of = plan.runs[1].cfg.verifier.engine
    of.tensor_parallel_size, of.replicas = 2, 4
    whole = _directives(submit.render(plan, "verify"))
    assert {"--gres=gpu:8", "--cpus-per-task=96"} <= set(whole)
    for run in plan.runs:
        run.cfg.engine.name = "openai"  # a server has the model, and the verifier runs here
    served = _directives(submit.render(plan, "generate"))
    assert "--partition=cpu" in served and not any("gpu" in line for line in served)
    assert "--partition=gpu" in _directives(submit.render(plan, "verify"))
    assert "--array=0-1" in _directives(texts["score"])
    assert not any("array" in line for line in _directives(texts["report"]))
    assert "srun --cpus-per-task=96 --time=1438 $LAUNCH" in texts["generate"]
    assert "(status == 85 || status == 143) && SECONDS < 86010" in texts["generate"]


def test_a_task_of_generate_serves_the_runs_of_one_model_at_any_path(tmp_path: Path) -> None:
    names = ("a y", "b", "a\n'", "b2", "s1", "s2")
    plan = _plan(tmp_path / ODD, "cluster.workers=2", names=names)
    for run in plan.runs[4:]:
        run.cfg.engine.name = "openai"  # a server
    served = [("a y", "a\n'"), ("b", "b2"), ("s1",), ("s2",)] * 2
    text = submit.render(plan, "generate")
    assert "--array=0-7" in _directives(text) and plan.tasks("grade") == len(names)
    shown = 'printf "%s\\0" "$here" "${runs[@]##*/}"'
    for task, runs in enumerate(served):
        head = f"SLURM_ARRAY_TASK_ID={task}\n{text[: text.index('PYTHON=')]}"
        assert _bash(head + shown).split("\0")[:-1] == [str(plan.folder), *runs]
    subprocess.run(["bash", "-n"], input=submit.render(plan, "report").encode(), check=True)


def _played(script: str, folder: Path, srun: str) -> tuple[int, str]:
    """Run a script with an `srun` of our own and an `scontrol` that only says so.

    The commands of Slurm are what this test has no use for: test_slurm.py has the real ones.
    """
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    for name, text in {"srun": srun, "scontrol": 'echo "scontrol $*"'}.items():
        (bin_ / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin_ / name).chmod(0o755)
    env = {"PATH": f"{bin_}:/usr/bin:/bin", "SLURM_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "1"}
    done = subprocess.run(["bash"], input=script, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_restarts_end_when_three_in_a_row_made_nothing(tmp_path: Path) -> None:
    plan = _plan(tmp_path / "it's", names=("a", "a2"))
    plan.folder.mkdir(parents=True)
    attempts = plan.runs[1].attempts  # the task's second run
    attempts.mkdir(parents=True)
    script = submit.render(plan, "generate")
    requeued = "scontrol requeue 77"

    def start(srun: str) -> tuple[int, bool, str]:
        status, out = _played(script, tmp_path, srun)
        return status, requeued in out, out

    mine = f"echo x >{shlex.quote(str(attempts))}/_0001-$(hostname -s)-1-00000.journal"
    other = f"echo x >{shlex.quote(str(attempts))}/_0001-elsewhere-1-00000.journal"
    assert start("exit 0")[:2] == (0, False)
    assert start("exit 2")[:2] == (2, False)
    assert start("exit 1")[:2] == (1, True)
    assert start(f"{other}; exit 1")[:2] == (1, True)
    assert start(f"{mine}; kill -9 $$")[:2] == (137, True)  # it made something: counted anew
    assert start("exit 86")[:2] == (86, True)
    assert start("exit 85")[:2] == (85, True)  # preempted: not counted
    assert start("exit 143")[:2] == (143, True)
    assert start("exit 1")[:2] == (1, True)
    status, again, out = start(f"{other}; exit 1")
    assert (status, again) == (1, False) and "3 starts in a row" in out


def test_dry_run_shows_the_scripts_and_writes_nothing(
    tmp_path: Path, tiny_model: Path, capsys: Capsys
) -> None:
    two = f"run_dir={tmp_path}/a,{tmp_path}/b"  # of one model: two tasks serve both
    assert main([*DEMO, two, "cluster.workers=2", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    for kind in submit.KINDS[1:]:
        assert f"{kind}.sbatch" in out and f"--job-name={kind}" in out
    assert (
        f"\n    {tmp_path}/a\n    {tmp_path}/b\n  ) ;;" in out and out.count("--array=0-1\n") == 4
    )
    assert f"# ---- sbatch --parsable --chdir={tmp_path}/_slurm/" in out
    after = ("aftercorr:ID_OF_GRADE", "afterany:ID_OF_VERIFY", "afterany:ID_OF_SCORE")
    for how in ("afterany:ID_OF_GENERATE", *after):
        assert f"--dependency={how}" in out
    assert re.search(r"/a: \d+ attempts, .*\n.*/b: \d+ attempts, .*\nabout \d+ attempts, ", out)
    assert re.search(r" GPU-hours on 2 GPUs .* of cluster=default\n", out)
    assert "nothing was written" in err
    assert not list(tmp_path.iterdir())


def test_a_race_is_an_array_of_settle(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    race = ["dataset=demo", "model=demo", "model.checkpoint=step-3800,step-3900", "until=top:1"]
    race += ["sampling.trials=20", "verifier=none", "cluster.workers=2", "cluster.gpus=2"]
    assert main(["submit", *race, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "looks after 3, 6, 10, 15, 20 trials" in " ".join(err.split())
    parts = out.split("# ---- ")[1:]
    kinds = [part.partition(".sbatch")[0].rpartition("/")[2] for part in parts]
    assert kinds == ["settle", "grade", "score", "report"]
    assert "--dependency=afterany:ID_OF_SETTLE" in parts[1] and not list(tmp_path.iterdir())
    script = parts[0].partition("\n")[2]
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    assert {"--array=0-3", "--gres=gpu:2", "--signal=USR1@300"} <= set(_directives(script))
    folder = tmp_path / "runs/demo/_settle/top-1"
    assert f"\npipeline settle {folder} trust=submitted # on any of its runs\n" in script
    here = re.search(r"^here=(.*)$", script, re.MULTILINE)
    assert here
    Path(here[1]).mkdir(parents=True)

    # What a task makes of any run of the race lets it begin anew.
    asked = 'echo "$@" >>asked'
    assert _played(script, tmp_path, f"{asked}; exit 0")[0] == 0
    words = f" -m bayes_at_n settle {folder} trust=submitted\n"
    assert (tmp_path / "asked").read_text().endswith(words)
    made = tmp_path / "runs/demo/demo-step-3900/attempts"
    made.mkdir(parents=True)
    mine = f"echo x >{made}/_0001-$(hostname -s)-1-00000.journal"
    starts = [_played(script, tmp_path, f"{each}exit 1") for each in ("", "", f"{mine}; ", "", "")]
    assert all("scontrol requeue 77" in out for _, out in starts)
    assert "3 starts in a row" in _played(script, tmp_path, "exit 86")[1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["cluster.time=00:04:00"], "cluster.warn_s=300"),
        (["cluster.gpus=4", "engine.tensor_parallel_size=3"], "engine.tensor_parallel_size=3"),
        (["cluster.gpus=4", "engine.replicas=5"], "engine.replicas=5"),
        (["cluster.gpus=4", "verifier.engine.replicas=8"], "verifier.engine.replicas=8 use 8"),
        (["cluster=default,h200-8"], "cluster: must be the same"),
        (["sampling.trials=range(0,5000)"], "1000 runs"),
        (["dataset=demo,demo"], "tag="),
        (["/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_what_cannot_work_is_one_line_before_anything_is_written(
    tmp_path: Path, capsys: Capsys, settings: list[str], says: str
) -> None:
    assert main([*DEMO, f"run_dir={tmp_path}/run", *settings, "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_runs_that_are_done_are_left_out(tmp_path: Path, capsys: Capsys) -> None:
    runs = [make_run(tmp_path / name, {"q": "11"}, "verifier=none") for name in ("a", "b", "c")]
    for run in runs[:2]:
        runfolder.write_json(run.path / "scores.json", {"attempts": 2})
    more = make_run(tmp_path / "d", {"q": "1."}, "verifier=none", "sampling.prompt_logprobs=false")
    planned = submit._planned
    off = [Run(load_folder(r.path, ["sampling.prompt_logprobs=false"])) for r in runs]
    plan = planned([*off, more])
    assert [r.path.name for r in plan.pending] == ["d"]
    assert [r.path.name for r in plan.unscored] == ["c", "d"]
    assert plan.kinds == ["generate", "grade", "score", "report"]  # no verifier
    assert plan.folder.parent == tmp_path / "_slurm"
    assert planned([off[2]]).kinds == ["grade", "score", "report"]
    assert planned(off[:2]).kinds == []
    assert planned([off[0]]).folder.parent == tmp_path / "a" / "_slurm"


def test_folders_of_runs_keep_their_settings(tmp_path: Path, capsys: Capsys) -> None:
    runs = tmp_path / "runs" / "sums"
    settings = ["engine.replicas=8", "cluster.gpus=8", "verifier=none"]
    settings += ["cluster.setup=module load x"]
    for name in ("a", "b"):
        make_run(runs / name, {"q": "1."}, *settings)
    (runs / "_grading").mkdir()
    every = [str(path) for path in sorted(runs.iterdir())]
    for named in ([str(tmp_path / "runs")], [str(runs)], every):
        cfgs = submit._configurations(named)
        assert [cfg.run_dir for cfg in cfgs] == [f"{runs}/a", f"{runs}/b"]
        assert {(c.cluster.setup, c.cluster.gpus) for c in cfgs} == {("module load x", 8)}
    [cfg] = submit._configurations([f"{runs}/a", "cluster=default", "cluster.gpus=4"])
    assert (cfg.cluster.setup, cfg.cluster.gpus, submit.replicas(cfg)) == ("", 4, 4)
    assert cfg.engine.replicas == "auto"  # in the folder: it may go on anywhere
    [cfg] = submit._configurations([f"{runs}/a", "cluster.gpus=2", "engine.replicas=1"])
    assert (cfg.cluster.setup, cfg.engine.replicas) == ("module load x", 1)
    assert main(["submit", str(runs / "_grading"), "--dry-run"]) == 2
    assert "not a run folder" in capsys.readouterr().err


def test_only_a_complete_run_is_graded(tmp_path: Path, capsys: Capsys) -> None:
    make_run(tmp_path / "done", {"q": "11"})
    make_run(tmp_path / "owing", {"q": "1.", "r": ".."})
    assert main(["grade", str(tmp_path / "done"), "--complete"]) == 0
    assert main(["grade", str(tmp_path / "owing"), "--complete"]) == 2
    assert "3 attempts are pending" in capsys.readouterr().err
