"""Fixtures that several test modules share."""

from pathlib import Path

import pytest

from pipeline import config


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The folder of the embedded default model; tests that need it are skipped without it."""
    folder = Path(config.load([]).model.id)
    if not (folder / "config.json").is_file():
        pytest.skip(f"the embedded model is not at {folder}; scripts/train_demo.py makes it")
    return folder
