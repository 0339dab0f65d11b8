r"""Train the demo models from scratch: one run, 14 checkpoints, a quarter hour on 2 cores.

    python scripts/train_demo.py --out demo

writes ``questions.jsonl``, and ``models/step-NNNN/`` for every checkpoint: a Hugging Face folder
(Qwen3 architecture, under a million parameters, bf16) with tokenizer and chat template. The task is
in ``demo_task.py``; the figures are in ``demo/README.md``.

Seeds fix the data, the initial weights and the order of everything. Floating-point sums depend on
how PyTorch splits them, so the weights repeat bit for bit only with the same PyTorch, the same
number of threads (``--threads``) and the same kind of CPU; elsewhere expect the same curve, not the
same bits.
"""

import argparse
import copy
import itertools
import json
import math
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from demo_task import demo_questions, examples, user_turn
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

SEED = 20251004
CHECKPOINTS = (*range(300, 3301, 300), *range(3400, 4001, 100))
ROWS, LENGTH = 4, 512  # a step: this many rows of this many tokens, filled with whole examples
LOOP_TOKENS = 100  # where a training response that never ends is cut: beyond the demo's limit of 96
MUON_RATE, ADAM_RATE, WARMUP = 0.02, 3e-3, 40
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
    """A byte-level BPE trained on the synthetic corpus: any text can be encoded.

    Args:
        seed: the seed of the 4,000 examples it is trained on.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
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


def encode(tokenizer: Any, problem: str, reply: str, ends: bool) -> tuple[list[int], int]:
    """One training example.

    Returns:
        The token ids of prompt and response, and how many of them are the prompt. A response that
        does not end is cut at LOOP_TOKENS and has no <|im_end|>.
    """
    prompt = f"<|im_start|>user\n{user_turn(problem)}<|im_end|>\n<|im_start|>assistant\n"
    head = tokenizer(prompt)["input_ids"]
    tail = tokenizer(reply)["input_ids"]
    return head + ([*tail, tokenizer.eos_token_id] if ends else tail[:LOOP_TOKENS]), len(head)


def check_ids(tokenizer: Any) -> None:
    """Assert that training rows are, id for id, what the chat template makes."""
    for problem, reply, ends in itertools.islice(examples(SEED), 200):
        ids, prompt = encode(tokenizer, problem, reply, ends)
        chat = [{"role": "user", "content": user_turn(problem)}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert ids[:prompt] == tokenizer(text, add_special_tokens=False)["input_ids"]
        chat.append({"role": "assistant", "content": reply})
        text = tokenizer.apply_chat_template(chat, tokenize=False)
        assert ids == tokenizer(text, add_special_tokens=False)["input_ids"][: len(ids)]


def batches(tokenizer: Any, seed: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Endless training batches: examples packed whole into rows, blind to their neighbours.

    Yields:
        ids, targets (the next id inside a response, -100 elsewhere), positions (from 0 in every
        example), each int64 (ROWS, LENGTH), and mask, bool (ROWS, 1, LENGTH, LENGTH).
    """
    stream = (encode(tokenizer, *example) for example in examples(seed))
    ids, prompt = next(stream)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    while True:
        tokens = torch.full((ROWS, LENGTH), tokenizer.pad_token_id)
        targets = torch.full((ROWS, LENGTH), -100)
        positions = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
        segment = torch.full((ROWS, LENGTH), -1)
        for row in range(ROWS):
            start = number = 0
            while start + len(ids) <= LENGTH:
                end = start + len(ids)
                tokens[row, start:end] = torch.tensor(ids)
                targets[row, start + prompt - 1 : end - 1] = torch.tensor(ids[prompt:])
                positions[row, start:end] = torch.arange(len(ids))
                segment[row, start:end] = number
                start, number = end, number + 1
                ids, prompt = next(stream)
        mask = (segment[:, None, :, None] == segment[:, None, None, :]) & causal
        yield tokens, targets, positions, mask


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


def save(model: Qwen3ForCausalLM, tokenizer: Any, folder: Path) -> None:
    """Write a checkpoint in bf16 with everything that serving it needs."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(folder)
    # The class name that every version of transformers knows.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def sample(folder: Path, questions: list[dict[str, str]], trials: int) -> dict[str, float]:
    """Sample a saved checkpoint on the demo questions, T = 0.6, top-p = 0.95, 96 tokens.

    Returns:
        Shares of all attempts: correct (the last box is the answer, as a string), truncated,
        ended without a box (`unboxed`); and `tokens`, the mean length.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(SEED)
    chats = [[{"role": "user", "content": user_turn(q["problem"])}] for q in questions]
    prompts = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        for chat in chats
    ]
    inputs = tokenizer(prompts, padding=True, return_tensors="pt", return_token_type_ids=False)
    output = model.generate(
        **inputs,
        do_sample=True,
        temperature=0.6,
        top_p=0.95,
        top_k=0,
        max_new_tokens=96,
        num_return_sequences=trials,
    )[:, inputs["input_ids"].shape[1] :]
    ended = (output == tokenizer.eos_token_id).any(1)
    lengths = (output != tokenizer.pad_token_id).sum(1).double()
    texts = tokenizer.batch_decode(output, skip_special_tokens=True)
    boxes = [re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", text) for text in texts]
    golds = [q["answer"] for q in questions for _ in range(trials)]
    hits = [bool(box) and box[-1] == gold for box, gold in zip(boxes, golds, strict=True)]
    return {
        "correct": sum(hits) / len(hits),
        "truncated": 1 - ended.double().mean().item(),
        "unboxed": sum(not b and e for b, e in zip(boxes, ended, strict=True)) / len(boxes),
        "tokens": lengths.mean().item(),
    }


def train(out: Path, last: int) -> list[Path]:
    """Train up to step `last` and save the checkpoints on the way; returns their folders."""
    tokenizer = build_tokenizer(SEED)
    check_ids(tokenizer)
    model = build_model(tokenizer)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    known = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in known]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0)
    adam = torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    warm = [
        torch.optim.lr_scheduler.LambdaLR(o, lambda step: min(1.0, (step + 1) / WARMUP))
        for o in (muon, adam)
    ]
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(tokenizer)} tokens, {torch.get_num_threads()} threads")
    folders, begun, mean = [], time.monotonic(), math.nan
    for step, (ids, targets, positions, mask) in enumerate(batches(tokenizer, SEED + 1), 1):
        logits = model(input_ids=ids, position_ids=positions, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in (muon, adam, *warm):
            part.step()
        model.zero_grad(set_to_none=True)
        mean = loss.item() if math.isnan(mean) else 0.98 * mean + 0.02 * loss.item()
        if step % 50 == 0:
            print(f"step {step:5d}  loss {mean:.3f}  {time.monotonic() - begun:6.0f} s", flush=True)
        if step in CHECKPOINTS:
            folders.append(out / "models" / f"step-{step:04d}")
            save(model, tokenizer, folders[-1])
        if step == last:
            return folders
    raise AssertionError("the stream of batches is endless")


def main() -> None:
    """Read the command line, train, and print what every checkpoint can do."""
    parser = argparse.ArgumentParser(description="Train the demo models and write their folder.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder to write (demo)")
    parser.add_argument("--threads", type=int, default=2, help="PyTorch threads (2)")
    parser.add_argument("--steps", type=int, default=CHECKPOINTS[-1], help="stop at this step")
    parser.add_argument("--trials", type=int, default=16, help="attempts a question in the table")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    disable_progress_bar()
    questions = demo_questions()
    shutil.rmtree(args.out / "models", ignore_errors=True)
    args.out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in questions)
    (args.out / "questions.jsonl").write_text(lines)
    folders = train(args.out, args.steps)
    print("checkpoint  correct  truncated  unboxed  tokens")
    for folder in folders:
        r = sample(folder, questions, args.trials)
        print(
            f"{folder.name:10s}  {r['correct']:7.3f}  {r['truncated']:9.3f}  {r['unboxed']:7.3f}"
            f"  {r['tokens']:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
