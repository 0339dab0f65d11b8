"""The variants of the demo's training and their fine-tuned twins, with a few steps each."""

import itertools
import re
import sys
from pathlib import Path

import pytest
from helpers import Capsys

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

TRUNK = ROOT / "demo" / "models" / "step-3000"
NAMES = ("constant", "linear")
pytestmark = pytest.mark.skipif(not TRUNK.is_dir(), reason="the embedded models are not there")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variants of two steps with twins of one step."""
    out = tmp_path_factory.mktemp("demo")
    make(out)
    return out


def make(out: Path) -> None:
    import train_demo

    train_demo.make_variants(out, TRUNK, NAMES, steps=2, tune_steps=1, every=1)


def weights(out: Path) -> dict[str, bytes]:
    """Of every checkpoint below, by folder."""
    found = sorted((out / "variants").rglob("model.safetensors"))
    return {str(path.parent.relative_to(out / "variants")): path.read_bytes() for path in found}


def times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(out.rglob("*"))}


def test_variants_and_twins_are_whole_and_differ(home: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = weights(home)
    steps = ("step-3001", "step-3002")
    expected = [f"{name}/{step}" for name in NAMES for step in steps]
    assert sorted(made) == sorted([*expected, *(f"{name}-tuned" for name in NAMES)])
    # The rates begin alike: so do the variants, and part at the second step.
    assert made["constant/step-3001"] == made["linear/step-3001"]
    assert len(set(made.values())) == len(made) - 1
    for folder in made:
        path = home / "variants" / folder
        model = AutoModelForCausalLM.from_pretrained(path)
        assert model.dtype == torch.bfloat16
        assert AutoTokenizer.from_pretrained(path).eos_token == "<|im_end|>"
        names = [file.name for file in TRUNK.iterdir() if file.suffix in (".json", ".jinja")]
        for name in names:
            assert (path / name).read_bytes() == (TRUNK / name).read_bytes(), (folder, name)
    assert not list(home.rglob(".*"))


def test_a_second_call_makes_nothing(home: Path, capsys: Capsys) -> None:
    before = times(home)
    make(home)
    assert times(home) == before
    said = [f"{name}: there already, nothing to do" for name in NAMES]
    assert capsys.readouterr().out.splitlines() == said


def test_a_variant_without_its_twin_is_made_again_with_the_same_bits(home: Path) -> None:
    before, old = weights(home), times(home)
    (home / "variants/linear-tuned/training.yaml").unlink()
    make(home)
    assert weights(home) == before
    new = times(home)
    changed = {path for path in old if path.name == "model.safetensors" and new[path] != old[path]}
    again = ("linear/step-3001", "linear/step-3002", "linear-tuned")
    assert changed == {home / "variants" / name / "model.safetensors" for name in again}


def test_fine_tuning_shows_only_clean_responses() -> None:
    import demo_task
    import train_demo

    held_out = {row["problem"] for row in demo_task.demo_questions()}
    for problem, reply, ends in itertools.islice(train_demo.clean_examples(5), 2_000):
        assert ends and problem not in held_out
        work, said = reply.split(" The answer is ")
        assert "=" in work or re.fullmatch(r"Powers: [0-9, ]+\.", work)
        assert said.startswith(r"\boxed{") and "Let us check" not in reply


def test_schedules_are_shares_of_the_full_rates_and_differ() -> None:
    import train_demo

    curves = {
        name: [train_demo.warmed(rate, 300)(step) for step in range(301)]
        for name, rate in train_demo.SCHEDULES.items()
    }
    assert len(curves) == 6
    assert all(min(curve) >= 0 and max(curve) <= 1.5 for curve in curves.values())
    assert all(curve[0] < 0.1 for curve in curves.values())
    assert len({tuple(curve) for curve in curves.values()}) == 6
    assert {name for name, curve in curves.items() if curve[-1] < 0.01} == {
        "cosine",
        "linear",
        "late-decay",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--variants", "--threads", "0"], "at least 1"),
        (["--steps", "0"], "at least 1"),
        (["--variants", "--out", "nowhere"], "nowhere/models/step-3000: no checkpoint"),
    ],
)
def test_senseless_commands_end_before_anything_is_written(
    given: list[str], message: str, capsys: Capsys
) -> None:
    import train_demo

    with pytest.raises(SystemExit):
        train_demo.main(given)
    assert message in capsys.readouterr().err.splitlines()[-1]
