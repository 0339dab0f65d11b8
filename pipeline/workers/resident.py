"""Commands `run` in processes that stay, one a model, with its engine loaded."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Self

import psutil

from bayes_at_n.pipeline.config import sweep
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import devices

PROGRAM = [sys.executable, "-m", "bayes_at_n.pipeline.cli.resident"]
_LEAST = 4 << 30  # bytes of memory that another model may find: with less an earlier one goes


class Residents:
    """Processes that run commands `run`, one a model; as a context manager it ends them."""

    def __init__(self) -> None:
        self._by_model: dict[str, subprocess.Popen[str]] = {}  # the one used last comes last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._by_model:
            self._end_first()

    def run(self, model: str, run: Run, settings: Sequence[str]) -> int:
        """Run stages with these settings, which name the run; return the exit status.

        `model`: what has its engine in common. Raises Unfinished: it was stopped.
        """
        status = self._run(model, run, settings)
        if status in sweep.STOPPED:
            kept = "what is finished is kept, the same command continues"
            raise sweep.Unfinished(f"stopped at {run.path}; {kept}", status)
        return status

    def _run(self, model: str, run: Run, settings: Sequence[str]) -> int:
        process = self._by_model.pop(model, None)
        if process is None or process.poll() is not None:  # it may have been killed meanwhile
            # A GPU has room for one engine: it takes all the memory that it may.
            while self._by_model and (devices.on_gpus(run.cfg) or _available() < _LEAST):
                self._end_first()
            command, pipe = [*PROGRAM, str(os.getpid())], subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its status will say more
            process.stdin.write(json.dumps([*settings]) + "\n")
            process.stdin.flush()
        answers = process.stdout

        def answer() -> int:
            return int(line) if (line := answers.readline()) else process.wait()

        status = sweep.watched(process, answer)
        if process.poll() is None:
            self._by_model[model] = process
        return status

    def _end_first(self) -> None:
        process = self._by_model.pop(next(iter(self._by_model)))
        with process:
            assert process.stdin is not None
            process.stdin.close()


def _available() -> int:
    return int(psutil.virtual_memory().available)
