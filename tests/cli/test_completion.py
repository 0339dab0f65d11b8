"""What a shell offers after TAB: a real bash asks the real program."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import argcomplete
import pytest
from helpers import ROOT, run_of

from bayes_at_n.pipeline.cli.help import completions

BASH = """
try() {
  COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=()
  _python_argcomplete bayes-at-n "" ""
  echo "${COMPREPLY[@]}"
}
try "bayes-at-n st"
try "bayes-at-n run model=qwen3-4b,qwen3-30"
try "bayes-at-n score runs/sums/"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two runs, and the program on the PATH as an installation puts it there."""
    for name in ("a", "b"):
        run_of(tmp_path / "runs", name, {"q": "1."})
    script = tmp_path / "bin" / "bayes-at-n"
    script.parent.mkdir()
    lines = f"#!{sys.executable}", "from bayes_at_n.pipeline.cli.main import main", "main()", ""
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bash(place: Path) -> None:
    code = argcomplete.shellcode(["bayes-at-n"])  # type: ignore[no-untyped-call]
    command = ["bash", "--norc", "-c", code + BASH]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=place)
    assert done.stdout.splitlines() == [
        "status study",
        "qwen3-4b,qwen3-30b ",  # the line has model= already: = ends a word
        "runs/sums/a runs/sums/b",
    ]


def test_what_is_offered(place: Path) -> None:
    assert {"model=", "verifier=", "runs/"} <= {*completions("run", "")}
    assert {*completions("run", "")} & {"sampling.trials=", "bin/"} == set()
    assert [*completions("run", "sampling.tr")] == ["sampling.trials="]
    assert [*completions("grade", "eng")] == [] and "cluster=" in completions("submit", "clu")
    assert [*completions("compare", "dataset=")] == ["dataset=sums"]
    assert [*completions("report", "model=a,")] == ["model=a,a", "model=a,b"]
    assert [*completions("report", "rubric=exact")] == ["rubric=exact-match"]
    assert "runs/" not in completions("merge", "") and "out=" in completions("merge", "")
