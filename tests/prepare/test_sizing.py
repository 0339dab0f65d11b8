"""What `auto` becomes on given GPUs: a program named nvidia-smi prints what the real one would."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from helpers import Capsys

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import sizing
from bayes_at_n.pipeline.workers import devices

H200, H100 = 143771, 81559  # MiB
# As Qwen's 32B: 64 layers with 8 key heads of 128, 61.0 GiB in 16 bits.
LARGE: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_attention_heads": 40,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
ROWS = [{"prompt_token_ids": [0] * 200, "max_tokens": 32768}] * 2


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch, *mebibytes: int) -> None:
    """GPUs of these sizes, and a vLLM that is built for them."""
    listing = "".join(f"GPU {i}: NVIDIA (UUID: GPU-{i}a)\n" for i in range(len(mebibytes)))
    table = "".join(f"{i}, GPU-{i}a, {size}\n" for i, size in enumerate(mebibytes))
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncase $1 in -L) echo '{listing}';; *) echo '{table}';; esac\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices.program, "version", lambda name: None)


def large(folder: Path, *settings: str, weights: int = 65_527_752_704, **more: Any) -> RunConfig:
    """A folder with everything of a model but its weights, as `auto` in all places."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(LARGE | more))
    index = {"metadata": {"total_size": weights}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    auto = ["engine.tensor_parallel_size=auto", "engine.batch_size=auto", "engine.replicas=auto"]
    return compose.load(["model=custom", f"model.id={model}", *auto, *settings])


def numbers(engine: EngineConfig) -> tuple[Any, Any, Any]:
    return engine.tensor_parallel_size, engine.batch_size, engine.replicas


def test_a_model_of_32b_on_one_large_gpu_and_on_eight_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    machine(tmp_path, monkeypatch, H200)
    assert numbers(sizing.resolved(large(tmp_path), ROWS).engine) == (1, 22, 1)
    text = " ".join(capsys.readouterr().err.split())
    assert "engine.batch_size=auto: 22, 1 × (140.4 GiB × 0.9 − 3 GiB) − 61 GiB" in text
    assert "62.3 GiB for the cache / 2.7 GiB per attempt (11,123 tokens" in text
    machine(tmp_path, monkeypatch, *[H100] * 8)
    assert numbers(sizing.resolved(large(tmp_path), ROWS).engine) == (2, 28, 4)


def test_a_model_that_fits_nowhere_is_named_with_its_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, H100, H100)
    with pytest.raises(UserError, match=r"does not fit 2 GPUs: 2 × \(79\.6 GiB.*372\.5 GiB of wei"):
        sizing.resolved(large(tmp_path, weights=400 * 10**9), ROWS)


def test_where_something_is_not_known_nothing_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    machine(tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")  # and nvidia-smi knows neither
    with pytest.raises(UserError, match="of the GPUs' memory is unknown; set a number"):
        sizing.resolved(large(tmp_path), ROWS)
    cfg = large(tmp_path, "engine.tensor_parallel_size=1")
    assert numbers(sizing.resolved(cfg, ROWS).engine) == (1, 256, 2)
    assert "256, since the GPUs' memory is unknown" in capsys.readouterr().err


def test_on_a_cpu_and_with_a_server_there_is_one_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    cfg = large(tmp_path, "engine=transformers", "engine.device=cpu", "engine.batch_size=64")
    cfg.engine.tensor_parallel_size = 1
    assert numbers(sizing.resolved(cfg, ROWS).engine) == (1, 64, 1)
    machine(tmp_path, monkeypatch, H200, H200)
    served = ["engine=openai", "engine.url=http://host/v1", "engine.tensor_parallel_size=1"]
    assert numbers(sizing.resolved(compose.load(served), ROWS).engine) == (1, 256, 1)
    named = ["engine=transformers", "engine.device=cuda:1"]
    assert sizing.resolved(compose.load(named), ROWS).engine.replicas == 1
    assert "2 GPUs, 1 worker" in capsys.readouterr().err


def test_layers_with_a_window_hold_no_more_than_that(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention"] * 2
    small = {"num_hidden_layers": 4, "layer_types": kinds, "sliding_window": 100}
    cfg = large(tmp_path, **small, use_sliding_window=True).model
    assert sizing.cache_bytes(cfg, 1000) == 4096 * (2 * 1000 + 2 * 100)
    assert sizing.cache_bytes(cfg, 50) == 4096 * 4 * 50


def test_states_of_mamba_count_and_its_own_code_is_not_needed(tmp_path: Path) -> None:
    """As NVIDIA-Nemotron-Nano-9B-v2: 27 layers of Mamba 2, 4 of attention, 25 of neither."""
    shape = {"mamba_num_heads": 128, "mamba_head_dim": 80, "n_groups": 8, "ssm_state_size": 128}
    shape |= {"conv_kernel": 4, "head_dim": 128, "num_hidden_layers": 56}
    own = {"AutoConfig": "configuration_nemotron_h.NemotronHConfig"}  # a file that is not here
    more = {"hybrid_override_pattern": "M" * 27 + "*" * 4 + "-" * 25, "auto_map": own}
    cfg = large(tmp_path, **shape, **more, model_type="nemotron_h").model
    state = 4 * 128 * 80 * 128 + 2 * (128 * 80 + 2 * 8 * 128) * 3
    assert sizing.cache_bytes(cfg, 1000) == 4 * 4096 * 1000 + 27 * state
