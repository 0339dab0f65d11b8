"""Tiny random models of seven architectures, each with a tokenizer of another kind.

Large weights, since fresh ones make every token as likely as any. All know <think> and </think>.
"""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from helpers import CHATML, enlarge
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers import models as kinds

CORPUS = [f"What is {n} + {n + 7}? {n} + {n + 7} = {2 * n + 7}. The answer." for n in range(60)]
CONTROL = ["<|im_end|>", "<|endoftext|>", "<|im_start|>"]
MARKS = ["<think>", "</think>"]
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
}
TOKENIZERS = {
    **{"llama": "sentencepiece", "qwen2": "digits", "qwen3": "bytes", "gemma": "unigram"},
    **{"mistral": "wordpiece", "phi": "wordlevel", "gpt2": "bytelevel"},
}
NAMES = [*TOKENIZERS]


def _trained(kind: str) -> Tokenizer:
    """A tokenizer of a kind, trained on the corpus."""
    if kind == "wordlevel":  # whole words: what it does not know is <|endoftext|>
        raw = Tokenizer(kinds.WordLevel(unk_token="<|endoftext|>"))
        raw.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer: Any = trainers.WordLevelTrainer(special_tokens=CONTROL)
    elif kind == "wordpiece":
        raw = Tokenizer(kinds.WordPiece(unk_token="<|endoftext|>"))
        raw.pre_tokenizer, raw.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(special_tokens=CONTROL)
    elif kind in ("sentencepiece", "unigram"):  # spaces are ▁
        bytewise = kind == "sentencepiece"
        raw = Tokenizer(kinds.BPE(byte_fallback=True) if bytewise else kinds.Unigram())
        raw.normalizer = normalizers.Replace(" ", "▁")
        raw.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
        own = [*CONTROL, *(f"<0x{n:02X}>" for n in range(256))] if bytewise else [*CONTROL, "<unk>"]
        if bytewise:
            trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=own)
        else:
            trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=own, unk_token="<unk>")
    else:
        raw = Tokenizer(kinds.BPE())
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "bytelevel")
        digits = pre_tokenizers.Split(Regex(r"\d"), "isolated")  # a digit a token, as Qwen's
        raw.pre_tokenizer = pre_tokenizers.Sequence([digits, level]) if kind == "digits" else level
        raw.decoder = decoders.ByteLevel()
        size, alphabet = 256 + len(CONTROL), pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size + 60 * (kind != "bytes"),
            special_tokens=CONTROL,
            initial_alphabet=alphabet,
        )
    raw.train_from_iterator(CORPUS, trainer)
    return raw


def make(folder: Path, name: str) -> Path:
    """Save a model of an architecture; GPT-2's has no chat template."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=_trained(TOKENIZERS[name]),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens(MARKS)
    tokenizer.chat_template = None if name == "gpt2" else CHATML
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes: dict[str, Any] = {**SIZES, **ids, "vocab_size": len(tokenizer), "bos_token_id": None}
    if name in ("gemma", "qwen3"):
        sizes["head_dim"] = 32
    if name == "phi":
        sizes["num_key_value_heads"] = 2
    if name == "gpt2":
        gpt2 = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 512, "n_inner": 96}
        sizes = {**ids, **gpt2, "vocab_size": len(tokenizer), "bos_token_id": None}
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(name, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    enlarge(model, 6)
    model.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def lora(folder: Path, seed: int = 1) -> Path:
    """Save an adapter for `llama`, random and of rank 4."""
    folder.mkdir()
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for layer in range(2):
        for name, out in (("q_proj", 64), ("v_proj", 32)):
            key = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(4, 64, generator=generator) / 2
            tensors[f"{key}.lora_B.weight"] = torch.randn(out, 4, generator=generator) / 2
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8}
    about |= {"target_modules": ["q_proj", "v_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder
