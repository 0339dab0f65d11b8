"""The pages: every command is one that the program accepts, every file that they name is there."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from helpers import ROOT, Capsys, make_run

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.cli.verbs import VERBS

PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "slurm/README.md"))]
PAGES += sorted(ROOT.glob("docs/*.md"))
# What stands for the names that pages invent.
MEANT = {"a": "qwen3-4b", "b": "limo-v2", "c": "qwen3-30b", "x": "aime24", "y": "aime25"}
MEANT |= {"SITE": "default", "NAME": "default", "$MODELS": "qwen3-4b"}
_PROGRAM = r"(?:\w+=\S+ +)*(?:python -m pipeline|bayes-at-n) +"
_LINE = re.compile(rf"(?m)^ *(?:\$ )?{_PROGRAM}(\w.*)$")
_SPAN = re.compile(rf"`(?:{_PROGRAM})?((?!export [A-Z])(?:{'|'.join(VERBS)}) [^`\n]+)`")
_SETTING = re.compile(r"-.*|[+~]|[\w.-]+=")
_FILE = re.compile(
    r"(?<![\w/.-])(?:benchmarks|configs|demo|docs|examples|pipeline|scripts|slurm|tests)/[\w./-]+"
)


def commands(page: Path) -> list[str]:
    """The commands of a page, in lines and in words of code, without what stands behind them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ").replace("\\|", "|")
    found = [re.split(r" {2,}| #| [|>&;]", one)[0] for one in _LINE.findall(text)]
    found = [re.sub(r"(\S+=)?\.\.\.", "", one) for one in found + _SPAN.findall(text)]
    return [re.sub(r"(?<=[=,])[$\w]+(?=,|\s|$)", lambda m: MEANT.get(m[0], m[0]), x) for x in found]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "demo" / "a"
    return str(make_run(folder, {"q": "+-"}, "verifier=demo").path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_command_is_accepted(page: Path, run: str, capsys: Capsys) -> None:
    """With one run folder in place of those that it names."""
    refused = []
    for command in commands(page):
        verb, *words = shlex.split(command)
        settings = [word for word in words if _SETTING.match(word)]
        folders = [run] if len(settings) < len(words) else []
        if "--file" in words:  # its value is no run folder
            folders, settings = [], words if len(words) > 1 else []
        if folders and verb == "submit":  # its jobs take the cluster, not the run folder
            settings = [word for word in settings if not word.startswith("cluster")]
        if main([verb, *folders, *settings, "--cfg", "job"]):
            refused.append((command, capsys.readouterr().err.strip()))
    assert not refused


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_file_and_benchmark_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    files = [name.rstrip("./") for name in _FILE.findall(spans) if not re.search("[A-Z]{4}", name)]
    missing = [name for name in files if not (ROOT / name).exists()]
    modules = re.findall(r"\b(benchmarks\.(?!md\b)\w+)", text)
    missing += [name for name in modules if not importlib.util.find_spec(name)]
    assert not missing


def test_the_numbers_of_models_and_datasets() -> None:
    [numbers] = re.findall(r"(\d+) models and (\d+) datasets", (ROOT / "README.md").read_text())
    models = {path.stem for path in ROOT.glob("configs/model/*.yaml")} - {"custom", "demo"}
    datasets = {path.stem for path in ROOT.glob("configs/dataset/*.yaml")}
    assert numbers == (str(len(models)), str(len(datasets - {"demo", "hub", "jsonl"})))
