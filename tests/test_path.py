"""The way of an attempt through the house, from the engine to the page, in modules."""

import dataclasses
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bayes_at_n.pipeline.api.verbs import evaluate
from bayes_at_n.pipeline.cli.main import main

TEXT = r"a text that is nowhere else: \boxed{4}"
QUESTIONS, TRIALS = 3, 5
ROWS = {"text", "outcome"}  # columns of tables that hold attempts
SUMS = [{"problem": f"{n}+{n}?", "answer": 2 * n} for n in range(1, QUESTIONS + 1)]
STAGES = ("generate", "grade", "score", "compare", "report")
MOST = 41  # modules, those of scoring and verifiers among them; wanted are 25
MOST_TWICE = 46  # times that one is entered again within a stage; wanted is none


def carries(value: Any, depth: int = 2) -> bool:
    """Whether this is or holds an attempt: its text, rows of its tables, the matrix of outcomes."""
    if isinstance(value, str):
        return TEXT in value
    if isinstance(value, pa.Table | pa.RecordBatch):
        return bool(ROWS & {*value.column_names})
    if isinstance(value, np.ndarray):
        return value.shape[-2:] == (QUESTIONS, TRIALS)
    if depth and isinstance(value, Mapping):
        return any(carries(one, depth - 1) for one in list(value.values())[:20])
    if depth and isinstance(value, list | tuple | set):
        return any(carries(one, depth - 1) for one in list(value)[:20])
    if depth and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return any(carries(getattr(value, name, None), depth - 1) for name in names)
    return False


@pytest.fixture
def way() -> Iterator[list[tuple[str, str]]]:
    """The modules that an attempt passes, as it passes them, each with the stage at work."""
    found, stage = list[tuple[str, str]](), ["generate"]

    def look(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("bayes_at_n."):
            return
        package = name.split(".")[2] if name.count(".") > 1 else ""
        if package in STAGES:
            stage[0] = package
        if any(map(carries, list(frame.f_locals.values()))):
            found.append((stage[0], name))

    sys.setprofile(look)
    threading.setprofile(look)
    yield found
    sys.setprofile(None)
    threading.setprofile(None)


@pytest.mark.soak
def test_an_attempt_passes_few_modules(
    way: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = itertools.chain([TEXT], itertools.repeat(r"\boxed{1}"))  # one attempt among others
    model = lambda prompts: list(itertools.islice(texts, len(prompts)))  # noqa: E731
    evaluate(model=model, name="m", dataset=SUMS, trials=TRIALS)
    main(["report", "runs/questions/m", "out=page"])
    sys.setprofile(None)
    again = 0
    for stage in STAGES:
        names = [name for name, _ in itertools.groupby(n for s, n in way if s == stage)]
        again += sum(count > 1 for count in Counter(names).values())
        print(f"{stage}: {len(set(names))} modules, entered {len(names)} times")
    modules = {name for _, name in way}
    print(f"{len(modules)} modules, {again} of them entered again within a stage")
    assert len(modules) <= MOST and again <= MOST_TWICE
