"""Runs to export."""

from pathlib import Path

import pytest
from helpers import make_run, run_of
from record_files import ODD_TEXTS


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one dataset, one with trials pending, cut off and not graded; a third."""
    root = tmp_path_factory.mktemp("runs")
    run_of(root, "x")
    unequal = {"a": "1101011", "b": ".~-.1", "c": ".(+u"}
    names = ("dataset.name=sums", "model.name=y", "model.id=/nowhere/y")
    make_run(root / "sums" / "y", unequal, *names, texts={"a": ODD_TEXTS})
    run_of(root, "x <b>", {"d": "0-1"}, dataset="terms")
    return root
