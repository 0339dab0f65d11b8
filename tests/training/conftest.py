"""Where runs of trajectories are made."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, below which runs are made."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
