"""The program behind `forked.Forker`: it imports vLLM, loads engines, and forks commands.

Each line of input is an order, answered with one line: load the engine of a run, fork a command,
or wait for one. A command that needs the very engine that is loaded takes it over.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from spared import SPARING, empty, spare

HEAVY = ("bayes_at_n", "torch", "transformers", "vllm", "math_verify")


def lend(engines: list[Any]) -> None:
    """Have commands take over what `engines` holds, and leave engines to the end of the process.

    Closing one takes down process groups whose threads stayed in the parent.
    """
    from bayes_at_n.pipeline.engines.vllm import VllmEngine
    from bayes_at_n.pipeline.engines.vllm_core import import_vllm

    load, kept = VllmEngine.__init__, []

    def take_over(self: Any, cfg: Any, longest: int, rows: Any = ()) -> None:
        self.cfg, (_, self.on_cpu) = cfg, import_vllm()
        for other in engines:
            if other._arguments(other.longest) == self._arguments(longest):
                self.__dict__ |= other.__dict__ | {"cfg": cfg}
                return
        load(self, cfg, longest, rows)
        kept.append(self)

    VllmEngine.__init__ = take_over  # type: ignore[method-assign]
    VllmEngine.close = lambda self: None  # type: ignore[method-assign]


def load(folder: Path) -> Any:
    from bayes_at_n.pipeline.config.folder import load_folder
    from bayes_at_n.pipeline.engines.vllm import VllmEngine
    from bayes_at_n.pipeline.store.runfolder import Run

    run = Run(load_folder(folder, []))
    longest = max(len(row["prompt_token_ids"]) + row["max_tokens"] for row in run.questions)
    engine: Any = VllmEngine(run.cfg, longest)
    engine.longest = longest
    return engine


def command(order: dict[str, Any]) -> None:
    """In the child: the command line as a person types it."""
    from bayes_at_n.pipeline.cli import main

    os.setpgid(0, 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])
    code = 99
    try:
        exec(order["before"], {"__name__": "__main__"})
        code = main.main(order["arguments"])
        sys.stdout.flush()
        Path(order["log"] + ".modules").write_text(json.dumps(list(sys.modules)))
    finally:
        os._exit(code)


def wait(order: dict[str, Any]) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
    modules = Path(order["log"] + ".modules")
    if code == 0 and modules.exists():  # what a whole run imports, once for all later commands
        for name in json.loads(modules.read_text()):
            if name.split(".")[0] in HEAVY:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        modules.unlink()
    return code


def serve() -> None:
    from matplotlib.figure import Figure

    from bayes_at_n.pipeline.config import compose
    from bayes_at_n.pipeline.engines.vllm_core import import_vllm

    answers = os.fdopen(os.dup(1), "w")
    if SPARING in os.environ:  # not in soak
        spare()
    os.dup2(2, 1)
    vllm, _ = import_vllm()
    vllm.LLM  # noqa: B018  # imported on first use
    Figure.savefig = empty(Figure.savefig)  # type: ignore[method-assign]
    engines: list[Any] = []
    lend(engines)
    for chosen in ([], ["verifier=none"]):  # remembered, and inherited
        compose.load(chosen)
    answer: Any = "ready"
    while True:
        print(answer, file=answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # taking down all that is imported takes seconds
        order = json.loads(line)
        if "load" in order:
            engines.append(load(Path(order["load"])))
            answer = len(engines)
        elif "wait" in order:
            answer = wait(order)
        else:
            gc.freeze()  # a child that looks through all this for garbage copies all its pages
            answer = os.fork()
            if not answer:
                command(order)
            with contextlib.suppress(OSError):
                os.setpgid(answer, answer)  # whichever of the two comes first


if __name__ == "__main__":
    serve()
