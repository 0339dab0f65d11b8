"""merge: the mean of checkpoints against an independent one, and all that must be refused."""

import json
import os
import shutil
import signal
import struct
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from helpers import Capsys
from safetensors.torch import load_file, save_file

from bayes_at_n.pipeline.base.errors import Interrupted, UserError
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config.protocol import ModelConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.training import average, merge
from bayes_at_n.pipeline.training.checkpoints import INDEX, MANIFEST, WEIGHTS

Tensors = Mapping[str, torch.Tensor]
CONFIG: dict[str, Any] = {
    "architectures": ["TinyForCausalLM"],
    "model_type": "tiny",
    "hidden_size": 8,
    "tie_word_embeddings": False,
    "transformers_version": "5.0.0",
}
FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
DEMO = ROOT / "demo" / "models"


def save(folder: Path, tensors: Tensors, shards: int = 0, **config: Any) -> Path:
    """A checkpoint; with `shards`, in so many files and an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    if not shards:
        save_file(dict(tensors), folder / WEIGHTS, metadata={"format": "pt"})
        return folder
    weight_map = {}
    for i in range(shards):
        name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[i::shards]}
        save_file(part, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def load(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, by the library."""
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def some(seed: int, dtype: torch.dtype = torch.bfloat16, size: int = 40) -> dict[str, torch.Tensor]:
    """A few tensors: a matrix, a vector, a scalar, an empty one, whole numbers, truth values."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "embed.weight": torch.randn(size, 8, generator=generator).to(dtype),
        "layers.10.weight": torch.randn(8, 8, generator=generator).to(dtype),
        "layers.2.weight": torch.randn(8, generator=generator).to(dtype),
        "scale": torch.randn((), generator=generator).to(dtype),
        "empty": torch.zeros(0, 8).to(dtype),
        "steps": torch.arange(5),
        "mask": torch.tensor([True, False, True]),
    }


def assert_mean(out: Path, sources: list[Path], leave_out: str = "") -> None:
    """Every tensor within a digit of the float64 mean; whole numbers as they were."""
    made, parts = load(out), [load(source) for source in sources]
    assert list(made) and set(made) == set(parts[-1])
    for name, tensor in made.items():
        if name == leave_out:
            continue
        assert tensor.dtype == parts[-1][name].dtype and tensor.shape == parts[-1][name].shape
        if not tensor.dtype.is_floating_point:
            assert torch.equal(tensor, parts[-1][name])
            continue
        mean = torch.stack([part[name].double() for part in parts]).mean(dim=0)
        tiny, step = torch.finfo(tensor.dtype).smallest_normal, torch.finfo(tensor.dtype).eps
        torch.testing.assert_close(tensor.double(), mean, rtol=step, atol=tiny, equal_nan=True)


def fingerprint(folder: Path) -> str:
    return models.fingerprint(ModelConfig(name="", id=str(folder)))


def refused(sources: list[Path], out: Path, *words: str) -> None:
    """One line with these words, and nothing left behind but the folder that `out` was to be in."""
    out.parent.mkdir(parents=True, exist_ok=True)
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(UserError) as error:
        merge.merge(sources, out)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert sorted(out.parent.rglob("*")) == before


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [save(tmp_path / f"step-{n}", some(n)) for n in (1, 2, 3)]


@pytest.mark.parametrize("shards", [(0, 0, 3), (3, 4, 0)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_mean_in_any_dtype_and_sharding(
    tmp_path: Path, shards: tuple[int, int, int], dtype: torch.dtype
) -> None:
    """Older ones may have other dtypes; what is the same everywhere, as NaN, stays bit by bit."""
    same = torch.tensor([1.0, -torch.inf, torch.nan, -0.0]).to(dtype)
    dtypes = (torch.float64, torch.float16, dtype)
    sources = [
        save(tmp_path / f"step-{n}", some(n, d) | {"same": same}, s)
        for n, (s, d) in enumerate(zip(shards, dtypes, strict=True))
    ]
    out = merge.merge(sources, tmp_path / "mean")
    kept = load(out)["same"]
    assert kept.view(torch.uint8).tolist() == same.view(torch.uint8).tolist()
    assert_mean(out, sources, leave_out="same")
    newest = {path.name: path for path in sources[-1].glob("*.safetensors")}
    assert {path.name for path in out.glob("*.safetensors")} == set(newest)
    for name, path in newest.items():
        size = struct.unpack("<Q", path.read_bytes()[:8])[0] + 8  # the header, to the byte
        assert (out / name).read_bytes()[:size] == path.read_bytes()[:size]
    recorded = yaml.safe_load((out / MANIFEST).read_text())
    assert recorded["sources"] == [
        {"path": str(source), "weights": fingerprint(source)} for source in sources
    ]
    assert recorded["weights"] == fingerprint(out)


def nearest(value: float, dtype: torch.dtype) -> float:
    """The number of a dtype that is nearest, ties to even, by whole numbers and fractions alone."""
    digits, least = {torch.bfloat16: (8, -133), torch.float16: (11, -24)}[dtype]
    if value == 0 or not np.isfinite(value):
        return value
    exact = Fraction(value)
    exponent = max(np.frexp(value)[1].item() - digits, least)  # of the last digit
    near = float(round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent)
    return near if abs(near) <= torch.finfo(dtype).max else float(np.copysign(np.inf, value))


def _hard(dtype: torch.dtype) -> list[float]:
    """Numbers at, just above and just below ties, from the smallest to the largest."""
    digits = 8 if dtype == torch.bfloat16 else 11
    found = [0.0, -0.0, torch.finfo(dtype).max, 5e-324, 2.0**-134, 2.0**-25, 2.0**-150, 1e300]
    for exponent in (-149, -134, -133, -127, -126, -30, -25, -24, -15, -14, 0, 1, 15, 127):
        for whole in (1, 2, 3, 2 ** (digits - 1), 2 ** (digits - 1) + 1, 2**digits - 1):
            for part in (0.0, 0.25, 0.5, 0.75):
                tie = (whole + part) * 2.0 ** (exponent - digits + 1)
                found += [tie, np.nextafter(tie, 0).item(), np.nextafter(tie, np.inf).item()]
                found += [tie * (1 + 2.0**-k) for k in (20, 24, 25, 33, 52)]
    return [sign * value for value in found for sign in (1, -1)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_are_rounded_once(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    some_bits = torch.randint(-(2**63), 2**63 - 1, (2000,), generator=generator)
    spread = torch.randn(2000, generator=generator, dtype=torch.float64)
    values = [*some_bits.view(torch.float64).tolist(), *spread.tolist(), *_hard(dtype)]
    # Means of numbers of a dtype: those below float32's normal ones have few digits.
    values = [v for v in values if abs(v) >= 2.0**-126 or dtype == torch.float16]
    values += (torch.arange(-600, 600, dtype=torch.float64) * 2.0**-135).tolist()
    total = torch.tensor([v for v in values if not np.isnan(v)], dtype=torch.float64)
    out = average.average([total], dtype)
    assert out.double().tolist() == [nearest(value, dtype) for value in total.tolist()]
    assert torch.equal(out.signbit(), total.signbit())
    assert out.double().tolist() != total.to(dtype).double().tolist() or dtype == torch.float16
    nan = torch.tensor([torch.nan, torch.inf], dtype=torch.float64)
    out = average.average([nan], dtype)
    assert out[0].isnan() and out[1] == torch.inf


def test_many_blocks_many_checkpoints_and_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of more than a block, read ahead over their borders."""
    monkeypatch.setattr(average, "_BLOCK", 1 << 18)
    sources = [save(tmp_path / f"step-{n}", some(n, size=45_001), n % 3) for n in range(5)]
    assert_mean(merge.merge(sources, tmp_path / "mean"), sources)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        again = merge.merge(sources, tmp_path / "again")
    finally:
        torch.set_num_threads(threads)
    for path in again.glob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "mean" / path.name).read_bytes()


def test_what_comes_along_and_what_stays(tmp_path: Path, three: list[Path]) -> None:
    kept = ["generation_config.json", "tokenizer_config.json", "chat_template.jinja", "own.py"]
    kept += ["merges.txt", "special_tokens_map.json", "tokenizer.model"]
    left = ["trainer_state.json", "optimizer.pt", "training_args.bin", "model.gguf", "README.md"]
    left += ["rng_state.pth", "consolidated.safetensors", "zero_to_fp32.py", "all_results.json"]
    for name in kept + left:
        (three[2] / name).write_text(f"{{}}# {name}")
    (three[2] / "global_step3").mkdir()
    out = merge.merge(three, tmp_path / "mean")
    assert {p.name for p in out.iterdir()} == {*kept, "config.json", WEIGHTS, MANIFEST}
    assert all(
        (out / n).read_bytes() == (three[2] / n).read_bytes() for n in [*kept, "config.json"]
    )


def test_links_as_in_the_hub_cache_are_followed(tmp_path: Path, three: list[Path]) -> None:
    linked, blobs = tmp_path / "models--a--b/snapshots/c0ffee", tmp_path / "models--a--b/blobs"
    linked.mkdir(parents=True)
    blobs.mkdir()
    for i, path in enumerate(three[2].iterdir()):
        (linked / path.name).symlink_to(f"../../blobs/{shutil.copy(path, blobs / str(i)).name}")
    out = merge.merge([three[0], linked], tmp_path / "mean")
    assert not any(path.is_symlink() for path in out.iterdir())
    assert_mean(out, [three[0], three[2]])


@pytest.mark.parametrize(("name", "where"), [("notes.txt", 0), ("config.json", 2), (WEIGHTS, 0)])
def test_links_that_leave_the_folder_are_refused(
    tmp_path: Path, three: list[Path], name: str, where: int
) -> None:
    secret = tmp_path / "secret"
    here = three[where] / name
    secret.write_bytes(here.read_bytes() if here.exists() else b"of somebody else")
    here.unlink(missing_ok=True)
    here.symlink_to("../secret")
    refused(three, tmp_path / "mean", three[where].name, f"{name} is a link to {secret}, outside")
    here.unlink()
    os.mkfifo(here)  # nobody will ever write into it
    refused(three, tmp_path / "mean", f"{name} is not a file")


# What cannot be averaged: how the second of three checkpoints differs, and words of the error.
def _tensor(name: str, tensor: torch.Tensor) -> Callable[[Path], object]:
    return lambda folder: save(folder, some(2) | {name: tensor})


def _config(**changed: Any) -> Callable[[Path], object]:
    return lambda folder: save(folder, some(2), **changed)


def _without(*names: str) -> Callable[[Path], object]:
    kept = {name: tensor for name, tensor in some(2).items() if name not in names}
    return lambda folder: save(folder, kept)


def _cut(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-7])


BAD: list[tuple[Callable[[Path], object], list[str]]] = [
    (_config(architectures=["Other"]), ["architectures", "TinyForCausalLM", "Other"]),
    (_config(tie_word_embeddings=True), ["tie_word_embeddings"]),
    (_config(quantization_config={"quant_method": "awq"}), ["quantization_config", "step-2"]),
    (_tensor("lm_head.weight", torch.zeros(2).bfloat16()), ["step-2", "lm_head.weight"]),
    (_without("embed.weight", "scale"), ["step-2", "embed.weight"]),
    (_tensor("layers.10.weight", torch.zeros(4, 16).bfloat16()), ["layers.10.weight", "[4, 16]"]),
    (_tensor("steps", torch.zeros(5)), ["steps", "I64 [5]", "F32 [5]"]),
    (_tensor("steps", torch.arange(1, 6)), ["step-2: steps (I64)"]),
    (_tensor("scale", torch.tensor(torch.nan).bfloat16()), ["step-2: scale", "NaN"]),
    (_tensor("scale", torch.tensor(1e200, dtype=torch.float64)), ["too large", "BF16"]),
    (_tensor("scale", torch.zeros(2).to(torch.float8_e4m3fn)), ["scale", "F8_E4M3"]),
    (_cut, [f"step-2/{WEIGHTS}", "damaged"]),
    (lambda folder: (folder / WEIGHTS).write_bytes(b"version https://git-lfs"), ["git lfs pull"]),
    (lambda folder: (folder / "config.json").write_text("{"), ["config.json: damaged"]),
    (lambda folder: (folder / "config.json").unlink(), ["config.json"]),
    (lambda folder: (folder / WEIGHTS).rename(folder / "adapter_model.safetensors"), ["adapter"]),
    (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), ["pytorch_model.bin"]),
    (lambda folder: (folder / INDEX).write_text("{}"), [INDEX]),
]


@pytest.mark.parametrize(("spoil", "words"), BAD)
def test_what_cannot_be_averaged_is_refused(
    tmp_path: Path, three: list[Path], spoil: Callable[[Path], object], words: list[str]
) -> None:
    spoil(three[1])
    refused(three, tmp_path / "deep" / "mean", *words)


def test_vocabularies_must_agree(tmp_path: Path, three: list[Path]) -> None:
    def write(folder: Path, vocabulary: dict[str, int], name: str = "tokenizer.json") -> None:
        added = [{"id": 2, "content": "<|end|>", "special": True}]
        found = {"model": {"type": "BPE", "vocab": vocabulary}, "added_tokens": added}
        (folder / name).write_text(json.dumps(found))

    write(three[2], {"a": 0, "b": 1})
    write(three[0], {"b": 1, "a": 0})  # the one between has none
    merge.merge(three, tmp_path / "mean")
    write(three[0], {"a": 1, "b": 0})
    refused(three, tmp_path / "other", "step-1/tokenizer.json: another vocabulary", "step-3")
    for step in (0, 2):
        (three[step] / "tokenizer.json").unlink()
        (three[step] / "tokenizer.model").write_bytes(b"tokens %d" % step)
    refused(three, tmp_path / "other", "step-1/tokenizer.model: another vocabulary")


def test_ctrl_c_leaves_nothing(
    tmp_path: Path, three: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, before = average.write, signal.getsignal(signal.SIGINT)

    def write(*arguments: Any) -> Iterator[int]:
        for size in plain(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            yield size

    monkeypatch.setattr(average, "write", write)
    with pytest.raises(Interrupted) as stopped:
        merge.merge(three, tmp_path / "merged" / "mean")
    assert stopped.value.exit_code == 130 and not list((tmp_path / "merged").iterdir())
    assert signal.getsignal(signal.SIGINT) == before


def test_the_verb(tmp_path: Path, three: list[Path], capsys: Capsys) -> None:
    def output(*arguments: str, code: int) -> str:
        assert main(["merge", *arguments]) == code
        return " ".join(capsys.readouterr().err.split())

    every, out = f"checkpoints={tmp_path}/step-*", f"out={tmp_path}/mean"
    assert "last=99" in output(every, out, "last=99", code=2)
    assert f"{three[0]}/*" in output(f"checkpoints={three[0]}", out, code=2)
    assert "step-2 to step-3" in output(every, out, "last=2", code=0)
    assert_mean(tmp_path / "mean", three[1:])
    assert "nothing to do" in output(every, out, "last=2", code=0)
    assert "exists already" in output(every, out, code=2)


def test_the_demo_merges_into_a_model(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    sources = [DEMO / "step-3900", DEMO / "step-4000"]
    out = merge.merge(sources, tmp_path / "one" / "mean")
    assert_mean(out, sources)
    model = AutoModelForCausalLM.from_pretrained(out)
    prompt = AutoTokenizer.from_pretrained(out)("12+7=", return_tensors="pt")
    with torch.no_grad():
        logits = model(**prompt).logits
    assert logits.shape[-1] == 448 and bool(logits.isfinite().all())
    again = merge.merge(sources, tmp_path / "two" / "other")
    assert fingerprint(out) == fingerprint(again) != fingerprint(sources[1])


def test_whose_mean_a_folder_holds(tmp_path: Path, three: list[Path]) -> None:
    out = merge.merge(three, tmp_path / "mean")
    assert merge.mismatch(out, three) is None
    assert merge.mismatch(out, three[1:]) and merge.mismatch(out, three[::-1])
    moved = [Path(shutil.move(path, tmp_path / f"moved-{path.name}")) for path in three]
    assert merge.mismatch(out, moved) is None  # the same bytes
    for path in (moved[0] / WEIGHTS, out / WEIGHTS):
        plain = path.read_bytes()
        path.write_bytes(plain[:-1] + bytes([plain[-1] ^ 1]))
        assert merge.mismatch(out, moved)
        path.write_bytes(plain)
        assert merge.mismatch(out, moved) is None
    for damaged in ("", "sources: [1, {files: 3}]", "sources: 3", "{", "- sources"):
        (out / MANIFEST).write_text(damaged)
        assert "merge.yaml" in str(merge.mismatch(out, moved))
