"""The variants of the demo's training and their fine-tuned twins, with a few steps each."""

from pathlib import Path

import pytest
from helpers import ROOT

TRUNK = ROOT / "demo" / "models" / "step-3000"
NAMES = ("constant", "linear")
pytestmark = pytest.mark.skipif(not TRUNK.is_dir(), reason="the embedded models are not there")


def test_variants_and_twins_are_whole_and_differ(tmp_path: Path) -> None:
    """Two variants of two steps with twins of one step."""
    import torch
    import train_demo
    from transformers import AutoModelForCausalLM, AutoTokenizer

    train_demo.make_variants(tmp_path, TRUNK, NAMES, steps=2, tune_steps=1, every=1)
    home = tmp_path / "variants"
    found = sorted(home.rglob("model.safetensors"))
    made = {str(path.parent.relative_to(home)): path.read_bytes() for path in found}
    steps = ("step-3001", "step-3002")
    expected = [f"{name}/{step}" for name in NAMES for step in steps]
    assert sorted(made) == sorted([*expected, *(f"{name}-tuned" for name in NAMES)])
    # The rates begin alike: so do the variants, and part at the second step.
    assert made["constant/step-3001"] == made["linear/step-3001"]
    assert len(set(made.values())) == len(made) - 1
    for folder in made:
        path = home / folder
        model = AutoModelForCausalLM.from_pretrained(path)
        assert model.dtype == torch.bfloat16
        assert AutoTokenizer.from_pretrained(path).eos_token == "<|im_end|>"
        names = [file.name for file in TRUNK.iterdir() if file.suffix in (".json", ".jinja")]
        for name in names:
            assert (path / name).read_bytes() == (TRUNK / name).read_bytes(), (folder, name)
    assert not list(tmp_path.rglob(".*"))
