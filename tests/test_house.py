"""The floor plan: imports run down only, and no packages import each other in a circle."""

import ast
from pathlib import Path

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_no_import_runs_up(capsys) -> None:  # type: ignore[no-untyped-def]
    """The contracts are in pyproject.toml, [tool.importlinter]."""
    status = lint_imports(cache_dir=None, no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_the_program_is_named_in_one_place() -> None:
    """Called as `bayes-at-n` it says so: messages take PROGRAM of pipeline/base/program.py."""
    for path in sorted((Path(__file__).parent.parent / "pipeline").rglob("*.py")):
        if path.name == "program.py":
            continue
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        docstrings = {n.lineno for n in nodes if isinstance(n, ast.Expr)}
        texts = [n for n in nodes if isinstance(n, ast.Constant) and n.lineno not in docstrings]
        said = [n.lineno for n in texts if "python -m pipeline" in str(n.value)]
        assert not said, f"{path}, line {said[0]}: write {{PROGRAM}}"
