"""An engine that another installed package offers samples a run like one of ours."""

import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import Capsys

from bayes_at_n.pipeline import engines as interface
from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.engines import Completion, Request

CODE = """
from test_entry_points import Constant
"""


class Constant(interface.Engine):
    """Answers 7 to everything."""

    def __init__(self, cfg: Any, longest: int, rows: Any = ()) -> None:
        self.cfg, self.tokenizer = cfg, None

    def generate(self, requests: Any) -> Generator[Completion | None]:
        for request in requests:
            if isinstance(request, Request):
                now = time.time()
                yield Completion(
                    request, r"\boxed{7}", "stop", [1, 2, 3], None, now, now, now, None, None
                )

    def describe(self) -> dict[str, Any]:
        return {"engine": "constant"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    about = tmp_path / "site" / "constant_engine-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: constant-engine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[bayes_at_n.engines]\nconstant = constant_engine:Constant\n"
    )
    (about.parent / "constant_engine.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(about.parent))
    program.offered.cache_clear()
    yield
    program.offered.cache_clear()
    sys.modules.pop("constant_engine", None)


def test_an_engine_of_another_package_samples(installed: None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ["run", "engine.name=constant", "stages=[prepare,generate]", f"run_dir={folder}"]
    words += ["sampling.trials=2", "dataset.limit=3", "sampling.logprobs=false"]
    assert main([*words, "sampling.prompt_logprobs=false"]) == 0
    [part] = folder.glob("attempts/*.parquet")
    assert pq.read_table(part)["text"].to_pylist() == [r"\boxed{7}"] * 6


def test_without_the_package_it_is_no_choice(tmp_path: Path, capsys: Capsys) -> None:
    program.offered.cache_clear()
    assert main(["run", "engine.name=constant", f"run_dir={tmp_path / 'run'}"]) == 2
    assert "engine.name=constant" in capsys.readouterr().err
