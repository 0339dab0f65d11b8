"""The table of vLLM's names: the installed version has them all, and the project uses no other."""

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vllm_names
from forked import Forker
from helpers import ROOT

from bayes_at_n.pipeline.config import compose

TABLE = Path(vllm_names.__file__)
FILES = [
    path
    for folder in ("pipeline", "benchmarks", "tests", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path not in (TABLE, Path(__file__))
]
IMPORT = re.compile(r"^\s*from (vllm[\w.]*) import ([\w, ]+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"^\s*(vllm\b[\w.]*)\.(\w+)", re.MULTILINE)  # set, or used for its own sake
VARIABLE = re.compile(r"\bVLLM_[A-Z0-9_]*[A-Z0-9]\b")

# Run where vLLM has been imported.
CHECK = """
import sys
from pathlib import Path
sys.path.append(FOLDER)
import vllm_names
renamed = {"vllm.sampling_params:RequestOutputKind": ("DELTA", "LAST"), "vllm.v1.engin:Core": ()}
passed = {"vllm:SamplingParams": ("seed", "sead"), "vllm:LLM.generate": ("prompts", "tqdm")}
found = [vllm_names.gone(), vllm_names.gone(renamed, passed, ("VLLM_NO_SUCH_THING",))]
Path(FILE).write_text(repr(found))
"""


def test_the_installed_vllm_has_every_name(forker: Forker, tmp_path: Path) -> None:
    """A failure lists what is gone: mend engines/vllm.py, then the bound in pyproject.toml."""
    file, log = tmp_path / "found", tmp_path / "log"
    code = CHECK.replace("FILE", repr(str(file))).replace("FOLDER", repr(str(TABLE.parent)))
    assert forker.python(code, log) == 0, log.read_text()
    here, renamed = ast.literal_eval(file.read_text())
    assert here == []
    assert renamed == [
        "vllm.sampling_params:RequestOutputKind.LAST",
        "vllm.v1.engin:Core",
        "vllm:SamplingParams(sead=)",
        "vllm:LLM.generate(tqdm=)",
        "environment variable VLLM_NO_SUCH_THING",
    ]


@pytest.mark.parametrize("on_cpu", [True, False])
def test_every_argument_of_the_engine_is_in_the_table(tiny_model: Path, on_cpu: bool) -> None:
    from bayes_at_n.pipeline.engines.vllm import VllmEngine

    engine: Any = VllmEngine.__new__(VllmEngine)
    engine.cfg, engine.on_cpu = compose.load(["engine.batch_size=8"]), on_cpu
    known = vllm_names.PARAMETERS["vllm.engine.arg_utils:EngineArgs"]
    assert set(engine._arguments(100)) <= {*known}


def test_every_import_and_variable_is_in_the_table() -> None:
    table = {*vllm_names.ATTRIBUTES}
    for path in FILES:
        text = path.read_text()
        used = {
            f"{module}:{name.split(' as ')[0].strip()}"
            for module, names in IMPORT.findall(text)
            for name in names.split(",")
        }
        used |= {f"{module}:{name}" for module, name in ATTRIBUTE.findall(text)}
        assert used <= table, path
        assert {*VARIABLE.findall(text)} <= {*vllm_names.VARIABLES}, path


def test_every_parameter_of_a_sampled_token_is_in_the_table() -> None:
    known = vllm_names.PARAMETERS["vllm:SamplingParams"]
    gc.disable()  # a collection inside of ast.parse may run Python (CPython issue 106905)
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    gc.enable()
    for path, tree in trees.items():
        for name in _passed_to_sampling_params(tree):
            assert name in known, f"{path}: {name}"


def _passed_to_sampling_params(tree: ast.AST) -> Iterator[str]:
    """Keywords of `SamplingParams(...)` and of `_prefill(...)`, which hands them on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("SamplingParams", "_prefill"):
                yield from (keyword.arg for keyword in node.keywords if keyword.arg)


def test_only_the_engine_of_the_pipeline_imports_vllm() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        if path.is_relative_to(ROOT / "pipeline") and IMPORT.search(path.read_text())
    }
    names = ("vllm", "vllm_import", "vllm_reasoning", "vllm_worker")
    assert importing == {f"pipeline/engines/{name}.py" for name in names}
