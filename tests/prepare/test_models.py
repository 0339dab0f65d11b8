"""A model before it is loaded: where it is, how much it holds, and what tells it from others."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest
import tiny_models
from helpers import make_model

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.sampling import ModelConfig
from bayes_at_n.pipeline.prepare import models


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def at(path: Path | str, **settings: object) -> ModelConfig:
    return ModelConfig(name="m", id=str(path), **settings)  # type: ignore[arg-type]


def test_a_missing_folder_and_an_unreadable_config_are_named(tmp_path: Path) -> None:
    for name in ("./nope", "/nowhere/nope", "~/nope", "a/b/c", "nope"):
        with pytest.raises(UserError, match=f"model.id={name}: "):
            models.locate(at(name))
    for text in ("", "[1]", '{"a": 1}', '{"model_type": "no-such"}', "\x00"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=f"model.id={tmp_path}"):
            models.context(at(tmp_path))


def test_a_model_without_or_with_a_damaged_tokenizer(tiny: Path, tmp_path: Path) -> None:
    folder = copytree(tiny, tmp_path / "m")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError) as caught:
        models.tokenizer(at(folder))
    assert "\n" not in str(caught.value) and f"model.id={folder}" in str(caught.value)
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(UserError, match="could not be loaded") as caught:
        models.tokenizer(at(folder))
    assert "model.tokenizer=" in str(caught.value) and "prefetch" not in str(caught.value)


def test_remote_code_is_refused_unless_allowed(tmp_path: Path) -> None:
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(UserError, match=r"model\.trust_remote_code=true"):
        models.context(at(tmp_path))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with 96 MiB of weights, of which nothing is zero."""
    (folder := tmp_path / "large").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * (96 << 20))
    return folder


def test_every_byte_of_large_weights_counts_and_is_read_once(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, reads, digest = large / "model.safetensors", list[str](), hashlib.file_digest
    status = weights.stat()
    monkeypatch.setenv("XDG_CACHE_HOME", str(large.with_name("cache")))
    monkeypatch.setattr(hashlib, "file_digest", lambda f, k: reads.append(f.name) or digest(f, k))
    for seconds in (1, 1, 10, 10):  # a second after a change another one may not show
        now = status.st_ctime_ns + seconds * 10**9
        monkeypatch.setattr(models.time, "time_ns", lambda now=now: now)
        with ThreadPoolExecutor(3) as threads:
            [first] = {*threads.map(models.fingerprint, [at(large)] * (1 if seconds == 1 else 3))}
    assert 3 <= reads.count(str(weights)) <= 5
    with weights.open("r+b") as file:
        for sample in range(16):  # all but what an earlier version read
            file.seek(sample * (6 << 20) + (64 << 10))
            file.write(bytes((6 << 20) - (64 << 10)))
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))  # as rsync --inplace -t does
    changed = models.fingerprint(at(large))
    (large / "config.json").write_text('{"rope_theta": 5000.0}')
    assert len({first, changed, models.fingerprint(at(large))}) == 3


def test_an_adapter_counts_by_its_weights(tiny: Path, tmp_path: Path) -> None:
    adapters = [tiny_models.lora(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 2))]
    moved = copytree(adapters[0], tmp_path / "moved")

    def weights(adapter: Path | None) -> str:
        return models.fingerprint(at(tiny, adapter=adapter and str(adapter)))

    assert weights(adapters[0]) == weights(moved)
    assert len({weights(None), *map(weights, adapters)}) == 3
    (moved / "adapter_config.json").write_text('{"rank_pattern": {"x": 9}, "r": 4}')
    assert models.adapter_rank(at(tiny, adapter=str(moved))) == 9
    (moved / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="rank"):
        models.adapter_rank(at(tiny, adapter=str(moved)))
    for bad in ("/nowhere", str(tiny)):
        with pytest.raises(UserError, match=f"model.adapter={bad}"):
            models.adapter(at(tiny, adapter=bad))
