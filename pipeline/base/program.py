"""What the program is called, for help, errors and remedies: as whoever started it called it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_SCRIPT = "bayes-at-n"  # [project.scripts] of pyproject.toml
INHERITED = "BAYES_AT_N_CALLED"  # by the processes that a command starts


def name(called: str, environment: Mapping[str, str]) -> str:
    """The program's name from the first word of its command line.

    >>> name("/usr/bin/bayes-at-n", {}), name("/src/pipeline/__main__.py", {}), name("pytest", {})
    ('bayes-at-n', 'python -m pipeline', 'python -m pipeline')
    >>> name("/src/pipeline/__main__.py", {"BAYES_AT_N_CALLED": "bayes-at-n"})
    'bayes-at-n'
    """
    if Path(os.path.realpath(called)).stem == _SCRIPT:  # .exe; a link has a name of its own
        return Path(called).stem
    module = "bayes_at_n" if Path(called).parent.name == "bayes_at_n" else "pipeline"
    return environment.get(INHERITED, f"python -m {module}")


PROGRAM = name(sys.argv[0], os.environ)


def set_environment() -> None:
    """What processes and libraries read when they start: our name, and to be less noisy."""
    os.environ.setdefault(INHERITED, PROGRAM)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
