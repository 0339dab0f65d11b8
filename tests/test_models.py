"""A model before it is loaded: where it is, how much it holds, and what tells it from others."""

import json
from pathlib import Path
from shutil import copytree

import pytest
from helpers import make_model

from pipeline.base.errors import UserError
from pipeline.config.settings import ModelConfig
from pipeline.prepare import models


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def at(path: Path | str, **settings: object) -> ModelConfig:
    return ModelConfig(name="m", id=str(path), **settings)  # type: ignore[arg-type]


def test_locate(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models.locate(at(tiny)) == str(tiny.resolve())
    assert models.locate(at("Qwen/Qwen3-4B")) == "Qwen/Qwen3-4B"
    monkeypatch.chdir(tiny.parent)
    assert models.locate(at("tiny")) == models.locate(at("./tiny")) == str(tiny.resolve())


@pytest.mark.parametrize("name", ["./nope", "../nope", "/nowhere/nope", "~/nope", "a/b/c", "nope"])
def test_a_missing_folder_is_named(name: str) -> None:
    with pytest.raises(UserError) as caught:
        models.locate(at(name))
    assert f"model.id={name}: no such folder" in str(caught.value)
    assert "hub id OWNER/NAME" in str(caught.value)


def test_a_missing_folder_names_its_neighbours(tiny: Path) -> None:
    with pytest.raises(UserError, match=r"there: .*tiny"):
        models.locate(at(tiny.parent / "tinny"))


def test_a_folder_or_file_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError, match=r"holds no config\.json"):
            models.locate(at(path))


def test_context_is_the_smaller_of_both(tiny: Path) -> None:
    assert models.context(at(tiny)) == 512
    assert models.context(at(tiny, context=100)) == 100
    assert models.context(at(tiny, context=9999)) == 512


def test_context_that_nobody_states(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bloom"}))
    with pytest.raises(UserError, match=r"set model\.context=N"):
        models.context(at(tmp_path))
    assert models.context(at(tmp_path, context=77)) == 77


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', '{"model_type": "no-such"}', "\x00"])
def test_an_unreadable_config_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError) as caught:
        models.context(at(tmp_path))
    assert "\n" not in str(caught.value) and f"model.id={tmp_path}" in str(caught.value)


def test_a_model_without_or_with_a_damaged_tokenizer(tiny: Path, tmp_path: Path) -> None:
    folder = copytree(tiny, tmp_path / "m")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError) as caught:
        models.tokenizer(at(folder))
    assert "\n" not in str(caught.value) and f"model.id={folder}" in str(caught.value)
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(UserError, match="could not be loaded"):
        models.tokenizer(at(folder))


def test_remote_code_is_refused_unless_allowed(tmp_path: Path) -> None:
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(UserError, match=r"model\.trust_remote_code=true"):
        models.context(at(tmp_path))


def test_the_fingerprint_knows_weights_and_config(tiny: Path, tmp_path: Path) -> None:
    fingerprint = models.fingerprint(at(tiny))
    assert fingerprint.startswith("sha256:") and len(fingerprint) == len("sha256:") + 16
    copy = copytree(tiny, tmp_path / "copy")
    assert models.fingerprint(at(copy)) == fingerprint  # the place does not matter
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    changed = models.fingerprint(at(copy))
    config = json.loads((copy / "config.json").read_text()) | {"rope_theta": 5000.0}
    (copy / "config.json").write_text(json.dumps(config))
    assert len({fingerprint, changed, models.fingerprint(at(copy))}) == 3


def test_large_weights_are_sampled(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_HASH_WHOLE_UP_TO", 0)
    monkeypatch.setattr(models, "_SAMPLE_BYTES", 64)
    other = make_model(tmp_path / "other", seed=1)  # the same sizes, other weights
    fingerprint = models.fingerprint(at(tiny))
    assert fingerprint != models.fingerprint(at(other))
    assert fingerprint == models.fingerprint(at(copytree(tiny, tmp_path / "copy")))
