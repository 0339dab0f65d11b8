"""Fixtures that several test modules share."""

from pathlib import Path

import pytest
from hypothesis import settings

from pipeline import config

# The same examples on every machine: a check that fails by luck tells nobody what they broke.
# To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The folder of the embedded default model; tests that need it are skipped without it."""
    folder = Path(config.load([]).model.id)
    if not (folder / "config.json").is_file():
        pytest.skip(f"the embedded model is not at {folder}; scripts/train_demo.py makes it")
    return folder
