r"""Train the demo models from scratch: one run, 18 checkpoints, twenty minutes on 2 cores.

    python scripts/train_demo.py --out demo

writes ``questions.jsonl``, and ``models/step-NNNN/`` for every checkpoint: a Hugging Face folder
(Qwen3 architecture, under a million parameters, bf16) with tokenizer and chat template. The task is
in ``demo_task.py``; the figures are in ``demo/README.md``.

    python scripts/train_demo.py --variants

makes six variants of the end of that training and their fine-tuned twins in ``variants/`` instead,
as far as they are not there yet: see ``train_variants.py``.

Seeds fix the data, the initial weights and the order of everything. Floating-point sums depend on
how PyTorch splits them, so the weights repeat bit for bit only with the same PyTorch, the same
number of threads (``--threads``) and the same kind of CPU; elsewhere expect the same curve, not the
same bits.
"""

import argparse
import itertools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from demo_task import demo_questions, examples, user_turn
from demo_training import SEED, WARMUP, chat, encode, fit, packed, save
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from train_variants import SCHEDULES, TRUNK, make
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

CHECKPOINTS = (*range(300, 3301, 300), *range(3400, 4001, 100))
VOCABULARY = 448

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A digit is always a token of its own; the space before a number belongs to the word or sign
# in front of it, so that a digit looks the same wherever it stands.
PIECES = r"[0-9]| ?\\?[A-Za-z]+(?: (?=[0-9]))?| ?[^\sA-Za-z0-9]+(?: (?=[0-9]))?|\s"


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on 4,000 examples with a seed: any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = itertools.islice(examples(seed), 4000)
    texts = (
        f"system\nuser\n{user_turn(problem)}\nassistant\n{reply}" for problem, reply, _ in corpus
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def check_ids(tokenizer: Any) -> None:
    """Assert that training rows are, id for id, what the chat template makes."""
    for problem, reply, ends in itertools.islice(examples(SEED), 200):
        ids, targets = encode(tokenizer, problem, reply, ends)
        text = chat(tokenizer, user_turn(problem))
        assert ids[: min(targets) + 1] == tokenizer(text, add_special_tokens=False)["input_ids"]
        text += f"{reply}<|im_end|>\n"
        assert ids == tokenizer(text, add_special_tokens=False)["input_ids"][: len(ids)]


def build_model(tokenizer: Any) -> Qwen3ForCausalLM:
    """The untrained model: Qwen3 with 4 layers of width 128, tied embeddings."""
    torch.manual_seed(SEED)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def train(out: Path, last: int) -> None:
    """Train up to step `last` and save the checkpoints on the way."""
    tokenizer = build_tokenizer(SEED)
    check_ids(tokenizer)
    model = build_model(tokenizer)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(tokenizer)} tokens, {torch.get_num_threads()} threads")
    stream = packed(tokenizer, examples(SEED + 1))
    for step in fit(model, stream, lambda step: min(1.0, (step + 1) / WARMUP), last):
        if step in CHECKPOINTS:
            save(model, tokenizer, out / "models" / f"step-{step:04d}")


def positive(text: str) -> int:
    """A number of at least 1, from the command line."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return int(text)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ends with one line where it makes no sense."""
    parser = argparse.ArgumentParser(description="Train the demo models and write their folder.")
    add = parser.add_argument
    add("--out", type=Path, default=Path("demo"), help="folder to write (demo)")
    add("--threads", type=positive, default=2, help="PyTorch threads (2)")
    add("--steps", type=positive, default=CHECKPOINTS[-1], help="stop at this step")
    add("--variants", action="store_true", help=f"make the variants of {TRUNK} and their twins")
    add("--only", nargs="+", choices=SCHEDULES, metavar="NAME", help=f"of {', '.join(SCHEDULES)}")
    args = parser.parse_args(argv)
    if args.only and not args.variants:  # else it would train the demo models anew
        parser.error("--only is for --variants, which is not given")
    trunk = args.out / "models" / TRUNK
    if args.variants and not (trunk / "model.safetensors").is_file():
        parser.error(f"{trunk}: no checkpoint to start from; the same without --variants makes it")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line and train."""
    args = arguments(argv)
    torch.set_num_threads(args.threads)
    disable_progress_bar()
    if args.variants:
        make(args.out, args.out / "models" / TRUNK, args.only or tuple(SCHEDULES))
        return
    shutil.rmtree(args.out / "models", ignore_errors=True)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in demo_questions())
    (args.out / "questions.jsonl").write_text(lines)
    train(args.out, args.steps)


if __name__ == "__main__":
    main()
