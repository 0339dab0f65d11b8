"""Fixtures that several test modules share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from pipeline.config import compose

# A shell that starts tests in the background has them ignore Ctrl-C, and all their children, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine: a check that fails by luck tells nobody what they broke.
# To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """A model this small gains nothing from a second one, and waits for it on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The folder of the embedded default model; tests that need it are skipped without it."""
    folder = Path(compose.load([]).model.id)
    if not (folder / "config.json").is_file():
        pytest.skip(f"the embedded model is not at {folder}; scripts/train_demo.py makes it")
    return folder
