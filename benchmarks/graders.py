"""Other people's graders, each in a process of its own and with the Python that has its packages.

`Peer` asks one grader about (gold, completion) pairs. It starts this file with the interpreter it
was given; the child imports only the standard library and what the peer needs. A pair that takes
longer than `PATIENCE` seconds ends the child; it counts as not accepted.

Where a package is not on PyPI, FOLDER is a clone of its repository, and the grader's own module is
loaded from there: NeMo-Skills' and open-instruct's without the rest of their packages, whose
imports (servers, trainers) it does not use.
"""

import contextlib
import importlib
import importlib.util
import json
import queue
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 20.0
Verdict = Callable[[str, str], bool]


class Peer:
    """A grader in a child process.

    Raises RuntimeError: it does not load there; the text says why.
    """

    def __init__(self, name: str, python: str, folder: str) -> None:
        """Start it and wait until it has loaded."""
        self.name, self._command = name, [python, "-W", "ignore", __file__, name, folder]
        self._start()

    def accepts(self, gold: str, completion: str) -> bool | None:
        """Whether it takes the completion for right; None: it did not answer in time, or died."""
        assert self._child.stdin
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps([gold, completion]) + "\n")
            self._child.stdin.flush()
        try:
            said = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            said = None
        if said is None:
            self.close()
            self._start()
            return None
        return said == "1"

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()

    def _start(self) -> None:
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, encoding="utf-8",
        )  # fmt: skip
        self._lines = queue.SimpleQueue[str | None]()
        threading.Thread(target=_read, args=(self._child, self._lines), daemon=True).start()
        said = self._lines.get(timeout=300)
        if said != "ready":
            raise RuntimeError(f"{self.name} does not load: {said}")


def _read(child: subprocess.Popen[str], lines: "queue.SimpleQueue[str | None]") -> None:
    assert child.stdout
    for line in child.stdout:
        lines.put(line.strip())
    lines.put(None)


def math_verify(folder: str) -> Verdict:
    """`verify(parse(gold), parse(completion))`, the defaults."""
    from math_verify import parse, verify

    return lambda gold, text: bool(verify(parse(_in_math(gold)), parse(text)))


def lighteval(folder: str) -> Verdict:
    """The metric of its MATH tasks, with LaTeX read in the gold, too."""
    metrics = importlib.import_module("lighteval.metrics.dynamic_metrics")
    output = importlib.import_module("lighteval.models.model_output")
    requests = importlib.import_module("lighteval.tasks.requests")
    gold_targets = (metrics.ExprExtractionConfig(), metrics.LatexExtractionConfig())
    targets = (
        metrics.ExprExtractionConfig(), metrics.LatexExtractionConfig(boxed_match_priority=0)
    )  # fmt: skip
    metric = metrics.MultilingualExtractiveMatchMetric(
        gold_extraction_target=gold_targets, pred_extraction_target=targets, precision=5
    )

    def verdict(gold: str, text: str) -> bool:
        doc = requests.Doc(query="", choices=[_in_math(gold)], gold_index=0)
        return bool(metric.compute(doc, output.ModelResponse(text=[text])))

    return verdict


def nemo_skills(folder: str) -> Verdict:
    """`math_equal(gold, extract_answer(completion))` of nemo_skills/evaluation/math_grader.py."""
    _stub("nemo_skills.utils", get_logger_name=lambda file: "nemo_skills")
    grader = _load(Path(folder, "nemo_skills/evaluation/math_grader.py"))
    return lambda gold, text: bool(grader.math_equal(gold, grader.extract_answer(text)))


def open_instruct(folder: str) -> Verdict:
    """The class `MathVerifier` of open_instruct/ground_truth_utils.py, alone."""
    import ast
    import logging
    import re

    _stub("open_instruct.logger_utils", setup_logger=logging.getLogger)
    names = dict(vars(_load(Path(folder, "open_instruct/math_utils.py"))))
    module = ast.parse(Path(folder, "open_instruct/ground_truth_utils.py").read_text("utf-8"))
    module.body = [
        node
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == "MathVerifier"
    ]
    base = type("VerifierFunction", (), {"__init__": lambda self, *a, **k: None})
    names |= {"VerifierFunction": base, "VerificationResult": types.SimpleNamespace, "re": re}
    source = "from __future__ import annotations\n" + ast.unparse(module)
    exec(compile(source, "MathVerifier", "exec"), names)  # their own source, from their clone
    verifier = names["MathVerifier"]()
    return lambda gold, text: verifier([], text, gold).score == 1.0


def qwen(folder: str) -> Verdict:
    """`math_equal` of Qwen2.5-Math's evaluation/, on answers as its math_eval.py prepares them."""
    sys.path[:0] = [str(Path(folder, "evaluation")), str(Path(folder, "evaluation/latex2sympy"))]
    grader, reader = importlib.import_module("grader"), importlib.import_module("parser")

    def verdict(gold: str, text: str) -> bool:
        answer = reader.extract_answer(text, "math")
        return bool(grader.math_equal(answer, reader.strip_string(gold), timeout=True))

    return verdict


LOADERS: dict[str, Callable[[str], Verdict]] = {
    "math-verify": math_verify,
    "lighteval": lighteval,
    "NeMo-Skills": nemo_skills,
    "open-instruct": open_instruct,
    "Qwen2.5-Math": qwen,
}


def _in_math(gold: str) -> str:
    return gold if "$" in gold or r"\boxed" in gold else f"${gold}$"


def _stub(name: str, **attributes: Any) -> None:
    """An empty module in place of one whose dependencies a grader never uses."""
    parent, _, child = name.rpartition(".")
    package = sys.modules.setdefault(parent, types.ModuleType(parent))
    package.__path__ = []
    made = types.ModuleType(name)
    vars(made).update(attributes)
    setattr(package, child, made)
    sys.modules[name] = made


def _load(file: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _serve(name: str, folder: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # graders print
    try:
        verdict = LOADERS[name](folder)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=answers, flush=True)
        return
    print("ready", file=answers, flush=True)
    for line in _lines():
        try:
            said = "1" if verdict(*json.loads(line)) else "0"
        except Exception:
            said = "error"
        print(said, file=answers, flush=True)


def _lines() -> Iterator[str]:
    yield from sys.stdin


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules are no packages of the peer's
    _serve(*sys.argv[1:3])
