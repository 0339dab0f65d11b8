"""A prompt's token ids say what its text says, or `prepare` and `verify` tell why they do not."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import CHATML, Setup
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers import models as kinds
from tokenizers import normalizers as norms
from transformers import PreTrainedTokenizerFast

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.compose import load
from bayes_at_n.pipeline.config.sampling import ModelConfig
from bayes_at_n.pipeline.config.settings import verifier_as_model
from bayes_at_n.pipeline.prepare import models, stage
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts
from bayes_at_n.prompts import difference, plain

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
