"""What a run is expected to take: sizes of real models, data sheets, arithmetic redone here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import to_markdown
from bayes_at_n.pipeline.paper import studies
from bayes_at_n.pipeline.prepare import estimate
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.runfolder import Totals
from benchmarks import models, synthetic

LAYERS, HEADS, SIZE, WEIGHTS = 36, 8, 128, 8_044_936_192  # Qwen3-4B
H200 = estimate.gpu_hardware("NVIDIA H200, 143771 MiB", 1, "here", 143771 << 20)
L4 = estimate.gpu_hardware("NVIDIA L4", 1, "here")


def model(folder: Path, weights: int = WEIGHTS, **more: Any) -> str:
    """A model's configuration and the index of its weights, without the weights."""
    folder.mkdir()
    shape = {"num_hidden_layers": LAYERS, "num_key_value_heads": HEADS, "head_dim": SIZE}
    shape |= {"model_type": "qwen3", "hidden_size": 2560, "num_attention_heads": 32}
    shape |= {"max_position_embeddings": 262144, "torch_dtype": "bfloat16", **more}
    (folder / "config.json").write_text(json.dumps(shape))
    index = {"metadata": {"total_size": weights}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return f"model.id={folder}"


def config(*settings: str) -> RunConfig:
    return compose.load(["model=custom", "model.name=m", "verifier=none", *settings])


def test_the_time_is_that_of_reading_weights_and_caches(tmp_path: Path) -> None:
    cfg = config(model(tmp_path / "m"))
    found = estimate.sampling_cost(cfg, [], 2400, H200)
    assert found.most == 2400 * 32768 and found.tokens == pytest.approx(0.46 * found.most)
    cache = 2 * 2 * LAYERS * HEADS * SIZE * round(32768 / 3)  # key and value in 16 bits
    room = int((143771 << 20) * 0.9) - (3 << 30) - WEIGHTS
    batch = room // cache
    step = (WEIGHTS + batch * cache) / 4.8e12 / 0.6 + 1.2e-3 + 2e-5 * batch
    last = ((WEIGHTS + cache) / 4.8e12 / 0.6 + 1.2e-3 + 2e-5) * 32768 / 2
    start = 80 + WEIGHTS / 1e9
    assert found.seconds == pytest.approx(found.tokens * step / batch + last + start, rel=1e-6)
    assert f"{batch} sequences" in found.how and "60%" in found.how
    eight = estimate.sampling_cost(cfg, [], 2400, H200._replace(gpus=8))
    assert eight.seconds == pytest.approx(found.tokens * step / batch / 8 + last + start, rel=1e-6)
    few = estimate.sampling_cost(cfg, [], 5, H200)
    assert few.seconds and "5 sequences" in few.how


@pytest.mark.parametrize(
    ("settings", "hardware", "reason"),
    [([], L4, "does not fit"), (["engine=openai", "engine.url=http://x/v1"], H200, "server")],
)
def test_what_is_not_known_says_why(
    settings: list[str], hardware: estimate.Hardware, reason: str, tmp_path: Path
) -> None:
    cfg = config(model(tmp_path / "m", 64 << 30), *settings)
    found = estimate.sampling_cost(cfg, [], 2400, hardware)
    assert found.seconds is None and reason in found.how and found.tokens > 0


def test_what_was_measured_goes_before_what_is_assumed(tmp_path: Path) -> None:
    cfg = config(model(tmp_path / "m"))
    found = estimate.sampling_cost(cfg, [], 100, H200, 500.0, Totals(2, 90.0, 180.0, 360_000))
    assert (found.tokens, found.most, found.seconds) == (50_000, 50_000, 25.0)
    assert "measured" in found.how and "mean" in found.basis


def test_the_table_of_the_docs_is_the_papers_numbers_and_arithmetic() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")]
    rows = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}
    kinds = [(title, 20, task) for task, title in studies.TASKS.items()] + [("total", 80, "total")]
    for title, runs, task in kinds:
        tokens, hours = studies.values([f"cost.completion.{task}", f"cost.hours.{task}"])
        gpu = 1e6 * tokens / 2000 / 3600 + runs * 15 / 60
        disk = tokens * estimate.BYTES_PER_TOKEN / 1000
        shown = [f"{tokens:,.1f}", f"{hours:,.1f}", f"{disk:.1f}", f"{gpu:.0f}"]
        shown += [f"{gpu / 8:.0f}", f"{gpu / 32:.0f}"]
        assert rows[title] == [f"{runs}", f"{2400 * runs:,}", *shown], title


def test_the_faq_has_the_twenty_models_and_what_each_takes() -> None:
    root = Path(__file__).parents[2]
    studies = to_markdown(models.table("H100"))
    page = (root / "docs" / "faq.md").read_text(encoding="utf-8")
    assert studies in page, "docs/faq.md is old: put in what python -m benchmarks.models prints"
    configs = (root / "configs" / "model").glob("*.yaml")
    numbers = {path.stem: yaml.safe_load(path.read_text()).get("table_id") for path in configs}
    order = sorted((number, name) for name, number in numbers.items() if number)
    assert list(models.MODELS) == [name for _, name in order]


def test_no_attempts_take_more_disk_than_estimated(tmp_path: Path) -> None:
    """Random ids, log-probs and text hardly compress: real attempts are smaller."""
    rng, tokens = np.random.default_rng(0), 15_000
    keys = [("q", trial) for trial in range(40)]
    shards.write_part(tmp_path / "part.parquet", synthetic.attempts(rng, keys, tokens))
    each = (tmp_path / "part.parquet").stat().st_size / (len(keys) * tokens)
    assert each == pytest.approx(estimate.BYTES_PER_TOKEN, abs=0.15)
