"""What every training of a demo model shares: packed batches, the loop, and how it is saved.

`train_demo.py` trains from random weights, `train_variants.py` goes on from one of its checkpoints.
A step is deterministic: there is no dropout, and the examples come from seeded generators.
"""

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from demo_task import user_turn
from transformers import Qwen3ForCausalLM

SEED = 20251004
ROWS, LENGTH = 4, 512  # a step: this many rows of this many tokens, filled with whole examples
LOOP_TOKENS = 100  # where a training response that never ends is cut: beyond the demo's limit of 96
MUON_RATE, ADAM_RATE, WARMUP = 0.02, 3e-3, 40


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


def batches(
    tokenizer: Any, examples: Iterator[tuple[str, str, bool]]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Endless training batches: examples packed whole into rows, blind to their neighbours.

    Args:
        tokenizer: the demo's.
        examples: endless (problem, response, does it end), as `demo_task.examples` yields them.

    Yields:
        ids, targets (the next id inside a response, -100 elsewhere), positions (from 0 in every
        example), each int64 (ROWS, LENGTH), and mask, bool (ROWS, 1, LENGTH, LENGTH).
    """
    stream = (encode(tokenizer, *example) for example in examples)
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


def optimizers(
    model: Qwen3ForCausalLM, rate: Callable[[int], float], adam_rate: float = ADAM_RATE
) -> list[Any]:
    """Muon for the matrices, AdamW for the rest, both with fresh state, and their schedules.

    Args:
        model: its parameters are trained.
        rate: the share of MUON_RATE and of `adam_rate` after so many steps.
        adam_rate: AdamW's.
    """
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    known = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in known]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0)
    adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    schedules = [torch.optim.lr_scheduler.LambdaLR(part, rate) for part in (muon, adam)]
    return [muon, adam, *schedules]


def fit(
    model: Qwen3ForCausalLM,
    stream: Iterator[tuple[torch.Tensor, ...]],
    rate: Callable[[int], float],
    steps: int,
    title: str = "",
    first: int = 0,
    later: int = 0,
) -> Iterator[int]:
    """Train `model` in place; a line of progress with the time left every 50 steps.

    Args:
        model: float32.
        stream: what `batches` yields.
        rate: the share of the full learning rates after so many steps of this call.
        steps: how many to take.
        title: what its lines of progress begin with.
        first: the number of the step that training starts from.
        later: how many steps of other trainings follow; they count as time left.

    Yields:
        The number of the step just taken: first + 1, ..., first + steps. Save between two of them.
    """
    parts, begun, mean = optimizers(model, rate), time.monotonic(), math.nan
    for done in range(1, steps + 1):
        ids, targets, positions, mask = next(stream)
        logits = model(input_ids=ids, position_ids=positions, attention_mask=mask).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in parts:
            part.step()
        model.zero_grad(set_to_none=True)
        mean = loss.item() if math.isnan(mean) else 0.98 * mean + 0.02 * loss.item()
        if done % 50 == 0:
            spent = time.monotonic() - begun
            left = spent / done * (steps - done + later)
            line = f"{title}step {first + done:5d}  loss {mean:.3f}"
            print(f"{line}  {spent:6.0f} s, {left:.0f} s left", flush=True)
        yield first + done


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
