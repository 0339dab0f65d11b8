"""A model before it is loaded: where it is, how much it holds, its identity, its tokens."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import tiny_models
from helpers import CHATML, Setup, make_model
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as kinds
from tokenizers import normalizers as norms
from transformers import PreTrainedTokenizerFast

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.compose import load
from bayes_at_n.pipeline.config.protocol import ModelConfig
from bayes_at_n.pipeline.config.settings import verifier_as_model
from bayes_at_n.pipeline.prepare import models, stage
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts
from bayes_at_n.prompts import difference, plain


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


def at(path: Path | str, **settings: object) -> ModelConfig:
    return ModelConfig(name="m", id=str(path), **settings)  # type: ignore[arg-type]


def test_a_missing_folder_and_an_unreadable_config_are_named(tmp_path: Path) -> None:
    for name in ("./nope", "a/b/c", "nope"):
        with pytest.raises(UserError, match=f"model.id={name}: "):
            models.locate(at(name))
    for text in ("", "[1]", '{"model_type": "no-such"}'):
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


SPECIAL = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
TEXTS = ["What is $x^2$?\n\tﬁne ½ ² Ａ é e\u0301 日本 🙂\u00a0x", " of the answer "]
TEXTS += ["<|im_start|>user\nFind 1 + 1.\n\n  Then  say it.<|im_end|>\n<|im_start|>assistant\n"]


def trained(kind: str) -> Any:
    """A tokenizer that was trained on the spot: of bytes, or with spaces as SentencePiece has."""
    raw = Tokenizer(kinds.BPE(unk_token="<unk>", byte_fallback=kind != "unknown"))
    special = SPECIAL if kind in ("bytes", "unknown") else [*SPECIAL, *BYTES]
    trainer = trainers.BpeTrainer(special_tokens=special)
    if kind == "bytes":
        raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
        trainer.initial_alphabet = [*pre_tokenizers.ByteLevel.alphabet()]
    else:
        scheme = kind if kind in ("first", "never") else "always"
        raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        raw.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * (kind != "never"))
    nfkc = [norms.NFKC(), norms.Replace(Regex(" {2,}"), " ")]
    of = {"legacy": [norms.Prepend("▁"), norms.Replace(" ", "▁")], "nfkc": nfkc}  # Llama 2, T5
    raw.normalizer = norms.Sequence(of.get(kind, []))
    raw.train_from_iterator(
        ["Find the sum of all integers x, then say what the answer is\n"], trainer
    )
    spec = json.loads(raw.to_str())
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] not in BYTES]
    return Tokenizer.from_str(json.dumps(spec))


def saved(folder: Path, kind: str, cls: str = "PreTrainedTokenizerFast") -> Path:
    """The folder of a Llama without weights, whose tokenizer says that it is of this class."""
    PreTrainedTokenizerFast(
        tokenizer_object=trained(kind), bos_token="<s>", unk_token="<unk>", chat_template=CHATML
    ).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": cls}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


@pytest.mark.parametrize("kind", ["bytes", "first", "always", "never", "legacy", "nfkc"])
def test_a_tokenizers_own_work_is_no_difference(tmp_path: Path, kind: str) -> None:
    tokenizer = models.tokenizer(ModelConfig(name="m", id=str(saved(tmp_path, kind))))
    for text in [*TEXTS, *("<s>" + text for text in TEXTS)]:
        assert difference(tokenizer, *plain(tokenizer, text)) == (False, "")


def test_a_tokenizer_of_another_class_is_refused_and_the_cure_works(tmp_path: Path) -> None:
    """transformers 5 gives Llama's spaces to a byte-level vocabulary that says it is Llama's."""
    wrong = saved(tmp_path / "m", "bytes", "LlamaTokenizerFast")
    setup, cure = Setup(wrong, tmp_path), f".tokenizer={saved(tmp_path / 'right', 'bytes')}"
    message = setup.refused()
    assert "LlamaTokenizer encodes sums-01 " in message and "model.tokenizer=" in message
    stage.prepare(setup.run("model.check_tokens=false"))
    about = runfolder.read_manifest(setup.run())["tokenizer"]
    assert (about["class"], about["checked"]) == ("LlamaTokenizer", False)
    setup.folder = tmp_path / "other"
    stage.prepare(run := setup.run(f"model{cure}"))
    row, cured = run.questions[0], runfolder.read_manifest(run)["tokenizer"]
    assert models.tokenizer(run.cfg.model).decode(row["prompt_token_ids"]) == row["prompt"]
    assert cured["class"] == "TokenizersBackend" and cured["files"] != about["files"]

    def prompts(*settings: str) -> list[Any]:
        cfg = verifier_as_model(load([f"verifier.id={wrong}", *settings]))
        candidate = Candidate("q1", "Find the sum of 1 and 1.", "2", "It is 2.", "2")
        return Prompts(cfg.verifier, models.tokenizer(cfg.model), 4096).build([candidate])

    with pytest.raises(UserError, match=r"LlamaTokenizer encodes q1 .*verifier\.tokenizer="):
        prompts()
    assert prompts("verifier.check_tokens=false") and prompts(f"verifier{cure}")
