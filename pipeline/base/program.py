"""The program's name, as it was called, and the location of its files."""

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

IMPORTED_FROM = Path(__file__).absolute().parents[3]  # in sys.path; `bayes_at_n/pipeline` is a link
PACKAGES = Path(__file__).resolve().parents[2]  # folder of `pipeline` and the other packages
_INSTALLED = PACKAGES / "pipeline" / "_files"  # in a wheel: the other files of the checkout
ROOT = _INSTALLED if _INSTALLED.is_dir() else PACKAGES

_SCRIPT = "bayes-at-n"  # [project.scripts] of pyproject.toml
_INHERITED = "BAYES_AT_N_CALLED"  # environment variable for child processes


def name(called: str, environment: Mapping[str, str]) -> str:
    """Return the program's name from the first word of its command line.

    >>> name("/bin/bayes-at-n", {}), name("pytest", {}), name("pytest", {_INHERITED: "bayes-at-n"})
    ('bayes-at-n', 'python -m pipeline', 'bayes-at-n')
    """
    if Path(os.path.realpath(called)).stem == _SCRIPT:  # without .exe; a link may be renamed
        return Path(called).stem
    module = "bayes_at_n" if Path(called).parent.name == "bayes_at_n" else "pipeline"
    return environment.get(_INHERITED, f"python -m {module}")


PROGRAM = name(sys.argv[0], os.environ)


def find_local(path: str) -> Path | None:
    """Return the existing file or folder of a path, as given or relative to the project, if any."""
    candidates = (Path(path).expanduser(), ROOT / path)
    return next((candidate for candidate in candidates if candidate.exists()), None)


def set_environment() -> None:
    """Set environment variables that child processes and libraries read when they start."""
    os.environ.setdefault(_INHERITED, PROGRAM)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # about missing torch


def run_and_exit(main: Callable[[], int]) -> None:
    """End the process with the status of `main`, and with torch loaded without tearing it down.

    Python takes torch's and vLLM's modules apart for 2 to 10 s after the last line of output.
    """
    status = [1]

    def leave() -> None:  # the first handler registered is the last one called
        if "torch" in sys.modules:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status[0])

    atexit.register(leave)
    status[0] = main()
    sys.exit(status[0])
