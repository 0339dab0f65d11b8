"""The scripts of examples/ run as their docstrings say."""

import runpy
from pathlib import Path

import pytest
from helpers import Capsys

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("compare_matrices.py", "on other questions of the same kind with probability"),
        ("function_as_model.py", "3x4  1.00 of 16 trials"),
        ("own_metric.py", "always correct: 0.50 of the questions"),
    ],
)
def test_an_example_runs(
    script: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert printed in capsys.readouterr().out
