"""Weights of other checkpoints in a loaded engine: real ones, and engines that swap badly."""

import ast
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import Forker
from helpers import make_model

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.engines import NotSupported

# Two are loaded, then swapped in turn; of each the tokens of 40 attempts, half of whose prompts are
# longer than a block of the cache, so that keys of old weights in it would show.
SWAPPED = """
from pathlib import Path
from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.engines import Request

def sampled(engine):
    texts = ("12 + 34 = ?", "What is 3 + 4? It is 7. " * 20)
    short, long = engine.tokenizer([*texts], add_special_tokens=False)["input_ids"]
    prompts = [(long[:150] if i % 2 else short) + [65 + i % 20] for i in range(40)]
    requests = [Request(f"q{i}", i, prompt, 60, i) for i, prompt in enumerate(prompts)]
    return {c.request.name: c.token_ids for c in engine.generate(requests) if c is not None}

found = []
with engines.keeping():
    for step in (2400, 3900, 2400, 3900):
        cfg = compose.load([f"model.id=MODELS/step-{step}", "engine.batch_size=16"])
        engine = engines.load(cfg, 400)
        by = engine.describe().get("weights")
        found.append((id(engine), by, sorted(sampled(engine).items())))
Path(FILE).write_text(repr(found))
import os
os._exit(0)
"""


def test_swapped_weights_sample_what_a_fresh_load_samples(
    forker: Forker, tiny_model: Path, tmp_path: Path
) -> None:
    file, log = tmp_path / "found", tmp_path / "log"
    code = SWAPPED.replace("MODELS", str(tiny_model.parent)).replace("FILE", repr(str(file)))
    assert forker.python(code, log) == 0, log.read_text()
    (first, *_, a), (second, by, b), (third, swapped, c), (fourth, _, d) = ast.literal_eval(
        file.read_text()
    )
    assert first != second == third == fourth and by is None and swapped == "swapped in place"
    assert a != b and c == a and d == b


class Fake:
    """An engine whose log-probs are of its layers and of its head; a swap may forget the head."""

    closed = False

    def __init__(self, cfg: Any, longest: int, rows: Any = ()) -> None:
        self.cfg, self.head = cfg, cfg.model.id

    def tokenizer(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [*range(40)]}

    def prompt_logprobs(self, prompts: list[list[int]]) -> list[Any]:
        names = f"{self.cfg.model.id} {self.head}"
        return [np.array([np.nan, *map(float, names.encode())], np.float32)]

    def close(self) -> None:
        self.closed = True


class Sound(Fake):
    def load_weights(self, cfg: Any) -> None:
        self.cfg, self.head = cfg, cfg.model.id


class Stale(Fake):
    def load_weights(self, cfg: Any) -> None:
        self.cfg = cfg


class Unable(Fake):
    def load_weights(self, cfg: Any) -> None:
        raise NotSupported("never")


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Settings of four models of one architecture, and of one with another tokenizer."""
    monkeypatch.setattr(engines, "_loads", {})
    monkeypatch.setattr(engines, "_proven", {})
    first = make_model(tmp_path / "m0")
    for n in range(1, 5):
        shutil.copytree(first, tmp_path / f"m{n}")
    (tmp_path / "m4" / "tokenizer_config.json").write_text("{}")
    return [compose.load([f"model.id={tmp_path}/m{n}"]) for n in range(5)]


@pytest.mark.parametrize(("made_by", "loads"), [(Sound, 3), (Stale, 5), (Unable, 5)])
def test_of_a_series_two_are_loaded_where_that_is_proven(
    made_by: type, loads: int, checkpoints: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayes_at_n.pipeline.base.program.Kind.made_by", made_by)
    with engines.keeping():
        used: list[Any] = [engines.load(cfg, 100) for cfg in checkpoints]
        assert [engine.closed for engine in used] == [engine is not used[-1] for engine in used]
        assert used[-1].cfg is checkpoints[-1]
    assert len({id(engine) for engine in used}) == loads
    assert [*engines._proven.values()] == [made_by is Sound]


def test_longer_requests_and_other_settings_load_anew(
    checkpoints: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayes_at_n.pipeline.base.program.Kind.made_by", Sound)
    other = compose.load([f"model.id={checkpoints[3].model.id}", "model.dtype=float32"])
    with engines.keeping():
        used = [engines.load(cfg, 100) for cfg in checkpoints[:3]]
        assert used[1] is used[2] is engines.load(checkpoints[0], 90)
        assert engines.load(other, 100) is not used[2]
        assert engines.load(checkpoints[1], 200) is not used[2]
