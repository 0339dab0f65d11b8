"""The command line: help that teaches, dry runs that write nothing, errors in one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, add_attempts, arithmetic, make_model, make_run, run_of, write_questions

from bayes_at_n.pipeline.cli.arguments import keys
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.cli.verbs import VERBS
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.compose import load
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import parquet
from bayes_at_n.pipeline.store.runfolder import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def settings(tiny: Path, tmp_path: Path) -> list[str]:
    """Settings of a run of three questions in a folder that is not there yet."""
    questions = write_questions(tmp_path / "sums.jsonl", arithmetic(3))
    return [
        "model=custom",
        f"model.id={tiny}",
        "dataset=jsonl",
        f"dataset.path={questions}",
        "sampling.trials=4",
        "sampling.max_tokens=10",
        f"run_dir={tmp_path / 'run'}",
    ]


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error; nothing is on standard output."""
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and err.count("\n") == 1, (out, err)
    return err


def help_of(capsys: pytest.CaptureFixture[str], *verb: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*verb, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_the_help_of_run_has_every_group_with_its_choices_and_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = help_of(capsys, "run")
    for group in {*compose.groups()} - {"cluster"}:
        assert f"  {group}={compose.default(group) or 'all'}, or " in text
        assert set(compose.choices(group)) <= {*re.split(r"[\s,=]+", text)}
    for key in (
        "sampling.trials=80",
        "tag=null",
        "verifier.engine.replicas=auto",
        "stages=[prepare,",
    ):
        assert f" {key}" in text
    assert "cluster." not in text and "  --dry-run " in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_is_about_it(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, verb)
    assert f"usage: python -m pipeline {verb} " in text
    commands = re.findall(r"^  python -m pipeline (\w+)", text, re.M)
    assert set(commands) == {verb}, "examples are its own"
    said = text.partition("settings KEY=VALUE")[2].partition("metrics, for")[0]
    shown = {*re.findall(r" ([\w.]+)=", said)} - {*compose.groups()}
    assert shown >= {key for key in keys(VERBS[verb]) if "." in key}
    if verb in ("score", "grade", "status", "categorize", "compare"):
        assert not {key for key in shown if re.match("model[.]|engine|study|report|cluster", key)}
    assert ("--dry-run" in text) == any(flag == "--dry-run" for flag, _ in VERBS[verb].flags)


def test_no_arguments_and_help_list_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n    {verb}" in text for verb in VERBS) and "sampling.trials" not in text
    assert "  python -m pipeline run model=qwen3-30b dataset=aime25\n" in text
    assert help_of(capsys) == text and text.count("\n") < 80


def test_a_misspelt_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu", "model=demo"]) == 2
    assert "rnu: no such verb (did you mean run?)" in one_error(capsys)


def program(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as its console script starts it."""
    script = tmp_path / "bayes-at-n"
    script.write_text(
        "import sys\nfrom bayes_at_n.pipeline.cli.main import main\nsys.exit(main())\n"
    )
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_calls_itself_as_it_was_called(tmp_path: Path) -> None:
    helped = program(tmp_path, "grade", "--help").stdout
    assert "usage: bayes-at-n grade " in helped and "  bayes-at-n grade RUN_FOLDER" in helped
    failed = program(tmp_path, "status", "model=demo")
    assert failed.returncode == 2 and "`bayes-at-n prepare`" in failed.stderr
    assert "python -m" not in helped + failed.stderr
    assert re.fullmatch(r"bayes-at-n \S+ .*\n", program(tmp_path, "--version").stdout)


# What neither help nor status needs; scipy alone is a hundredth of a second, its parts are not.
DEAR = {"torch", "transformers", "datasets", "vllm", "pandas", "numba", "matplotlib", "sympy"}
DEAR |= {
    "scipy.special",
    "scipy.stats",
    "scipy.sparse",
    "pyarrow.dataset",
    "hydra",
    "httpx",
    "jinja2",
}
DEAR |= {"pebble", "asyncio", "huggingface_hub"}


@pytest.mark.parametrize(
    ("arguments", "others", "most"),
    [
        (["--help"], {"numpy", "pyarrow", "omegaconf"}, 250),
        (["run", "--help"], {"pyarrow"}, 700),
        (["settle", "--help"], {"pyarrow"}, 700),
        (["status", "RUN"], set(), 900),
    ],
)
def test_imports(arguments: list[str], others: set[str], most: int, tmp_path: Path) -> None:
    """Start-up is imports; they are counted, as a busy machine has no time of its own."""
    run = run_of(tmp_path, "a", {"q1": "10", "q2": "1."})
    code = (
        "import sys\nfrom bayes_at_n.pipeline.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    words = [str(run.path) if word == "RUN" else word for word in arguments]
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert not modules & (DEAR | others) and len(modules) < most, len(modules)


@pytest.mark.soak
def test_a_dry_run_loads_no_torch(tmp_path: Path) -> None:
    words = ["run", "--dry-run", "verifier=demo", f"run_dir={tmp_path / 'run'}"]
    start = "from bayes_at_n.pipeline.cli.main import main"
    code = f"import sys\n{start}\nmain({words})\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "GiB of weights" in done.stdout
    assert not {"torch", "transformers"} & {*done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "model=qwen3-31b"], ["model=qwen3-31b", "qwen3-30b"]),
        (["status", "no/such/folder"], ["no/such/folder", "KEY=VALUE"]),
        (["score", "tests", "docs"], ["tests docs", "one run folder"]),
        (["status", "tests"], ["tests", "no run folder"]),
        (["run", "~model"], ["~model", "KEY=VALUE"]),
        (["score", "tests", "model=demo"], ["no run folder"]),
        (["prepare", "dataset=jsonl"], ["dataset.path"]),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    named: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments) == 2
    line = one_error(capsys)
    for word in named:
        assert word in line


@pytest.mark.parametrize("arguments", [["--nope"], ["run", "--nope"], ["score", "--dry-run"]])
def test_unknown_verbs_and_options(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "usage: python -m pipeline" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["generate", "grade", "score", "status"])
def test_a_run_that_is_not_prepared(
    verb: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *settings]) == 2
    assert "not prepared yet" in one_error(capsys)


@pytest.mark.parametrize("verb", ["run", "prepare", "generate"])
def test_dry_run_writes_nothing(
    verb: str, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main([verb, "--dry-run", *settings, "verifier=compass-3b"]) == 0
    assert sorted(tmp_path.rglob("*")) == before
    out = capsys.readouterr().out
    assert "sums-01, gold answer 2" in out
    assert "  | <|im_start|>user\n  | 1+1?\n  | \n" in out and "\\boxed{}.<|im_end|>" in out
    assert "questions: 3" in out and "owed: 12 of 12 attempts" in out
    # 12 attempts of at most 10 tokens, the paper's mean of their limit, 7.6 bytes of each
    assert "tokens: about 55 (assumed: 46% of the limit, as in the paper); at most 120" in out
    assert "disk: about 420B" in out and re.search(r"time: about .* on \d+ cores? here", out)
    assert re.search(r"verifier: compass-3b, 12 attempts, about \d.* tokens to read; ", out)


def test_dry_run_counts_what_is_there(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from helpers import add_attempts

    assert main(["prepare", *settings]) == 0
    run = Run(load(settings))
    add_attempts(run, {"sums-01": "1100", "sums-02": "1"})
    capsys.readouterr()
    files = {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    assert main(["run", "--dry-run", *settings]) == 0
    assert files == {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    out = capsys.readouterr().out
    assert "owed: 7 of 12 attempts" in out
    assert "tokens: about 35 (the mean of those so far); prompts" in out
    assert "price" not in out
    assert main(["run", "--dry-run", str(run.path), "sampling.trials=5"]) == 0
    assert "owed: 10 of 15 attempts" in capsys.readouterr().out


def test_dry_run_shows_the_price_of_what_is_owed(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from helpers import add_attempts

    assert main(["prepare", *settings]) == 0
    run = Run(load(settings))
    prompts = 4 * sum(len(row["prompt_token_ids"]) for row in run.questions)
    prices = ["engine.price_in=10000", "engine.price_out=20000"]  # a hundredth, two of a token
    assert main(["run", "--dry-run", *settings, *prices]) == 0
    most = (prompts + 2 * 120) / 100
    assert f"price: at most {most:,.2f}, with " in capsys.readouterr().out
    add_attempts(run, {"sums-01": "1100", "sums-02": "1"})  # of 3 and 5 tokens
    assert main(["run", "--dry-run", *settings, *prices]) == 0
    about = (prompts - 5 * 3 + 2 * 35) / 100
    assert f"price: about {about:,.2f}, with " in capsys.readouterr().out
    assert main(["run", "--dry-run", *settings, "engine.price_in=-1"]) == 2
    assert "engine.price_in=-1" in one_error(capsys)


def test_dry_run_refuses_what_prepare_would_refuse(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", *settings]) == 0
    capsys.readouterr()
    assert main(["run", "--dry-run", *settings, "sampling.temperature=1"]) == 2
    assert "sampling.temperature" in one_error(capsys)


def test_brackets_and_names_of_emoji_are_printed_as_they_are(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": "q[/b]", "problem": "[red]x[/red] :smile: [/]", "answer": "[/2]"}
    path = write_questions(tmp_path / "a[bold].jsonl", [row])
    settings = ["model=custom", f"model.id={tiny}", "dataset=jsonl", f"dataset.path='{path}'"]
    assert main(["run", "--dry-run", *settings, f"run_dir={tmp_path / 'run'}"]) == 0
    out = capsys.readouterr().out
    assert "q[/b], gold answer [/2]" in out
    assert "  | [red]x[/red] :smile: [/]\n" in out


def test_a_run_folder_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", {"a": "110", "b": "0~."})
    assert main(["score", str(run.path)]) == 0
    assert "Bayes@3" in capsys.readouterr().out
    assert main(["status", str(run.path)]) == 0
    assert "a 110   2/3" in capsys.readouterr().out
    assert main(["score", str(run.path), "model=demo"]) == 2
    assert "model=demo" in one_error(capsys)


def test_a_folder_with_an_equals_sign_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(tmp_path / "lr=0.1" / f"seed={i}", {"a": "110", "b": "0~."}) for i in "12"]
    monkeypatch.chdir(tmp_path / "lr=0.1")
    Path("sampling.trials=2").mkdir()  # no run, and no / in it: a setting
    for folder in (str(runs[0].path), "./seed=1", "seed=1"):
        assert main(["score", folder, "sampling.trials=2"]) == main(["status", folder]) == 0
        assert "Bayes@2" in (out := capsys.readouterr().out) and "a 110   2/3" in out
    assert main(["compare", *(str(run.path) for run in runs)]) == 0


def test_a_dry_run_estimates_what_is_not_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = ["run", "--dry-run", "dataset=demo", "verifier=none", "model=custom"]
    assert main([*asked, "model.id=no/body-4B"]) == 0
    out = capsys.readouterr().out
    assert "prefetch" in out and "tokens: about 36.2M" in out and "goes by its name" in out


def test_fewer_trials_than_are_there_see_a_changed_data_set(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [*settings, "verifier=none"]
    assert main(["prepare", *settings]) == 0
    run = Run(load_folder(tmp_path / "run", []))
    add_attempts(run, {row["question_id"]: "1101" for row in run.questions})
    assert main(["score", str(run.path)]) == 0
    capsys.readouterr()
    assert main(["run", *settings, "sampling.trials=2"]) == 0
    assert "4 trials are there, and stay; 2 were asked for" in capsys.readouterr().err
    path = tmp_path / "sums.jsonl"
    path.write_text(path.read_text().replace('"4"', '"5"'))
    assert main(["run", *settings, "sampling.trials=2"]) == 2
    assert "question sums-02 has changed" in one_error(capsys)


def test_a_verifier_that_cannot_be_had_does_not_keep_the_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "x", {"a": "1100", "b": "10-1"})
    later = "stages=[grade,verify,categorize,score]"
    settings = [str(run.path), later, "verifier.id=/nowhere/judge", "verifier.name=judge"]
    assert main(["run", *settings]) == 2
    out, err = capsys.readouterr()
    assert out.count("Bayes@4") == 1 and (run.path / "scores.json").is_file()
    last = err.splitlines()[-1]
    assert last.startswith("error: verify: verifier.id=/nowhere/judge") and "verifier=none" in last
    assert "verifier-only, verifier-probe are left out: they need a verifier" in err
    assert main(["run", *settings, "rubric=verifier-only"]) == 2
    assert "Bayes@4" in capsys.readouterr()[0]
    assert main(["run", *settings, "dataset.judge=all"]) == 2  # which decides the outcomes
    assert "Bayes@4" not in capsys.readouterr()[0]


def test_prefetch_of_what_is_here_says_where(
    settings: list[str], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prefetch", *settings, "verifier.id=null"]) == 0
    out = capsys.readouterr().out
    assert str(tiny) in out and "3 questions" in out and str(tmp_path / "sums.jsonl") in out
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir(mode=0o500)
    assert main(["prepare", *settings]) == 1
    assert "Permission denied" in one_error(capsys)


def test_a_run_folder_whose_place_is_taken(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("a file")
    assert main(["prepare", *settings]) == 1
    assert str(tmp_path / "run") in one_error(capsys)


def test_a_full_disk_while_preparing(
    settings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "writer", full)  # no other way to fill a disk here
    assert main(["prepare", *settings]) == 1
    assert "No space left on device" in one_error(capsys)
