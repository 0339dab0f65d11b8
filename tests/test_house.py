"""The floor plan: imports run down only, and no packages import each other in a circle."""

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_no_import_runs_up(capsys) -> None:  # type: ignore[no-untyped-def]
    """The contracts are in pyproject.toml, [tool.importlinter]."""
    status = lint_imports(cache_dir=None, no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
