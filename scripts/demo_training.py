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
from typing import Any, NamedTuple

import torch
from demo_task import user_turn
from transformers import AutoTokenizer, Qwen3ForCausalLM

SEED = 20251004
ROWS, LENGTH = 4, 512  # a step: this many rows of this many tokens, filled with whole examples
LOOP_TOKENS = 100  # where a training response that never ends is cut: beyond the demo's limit of 96
MUON_RATE, ADAM_RATE, WARMUP = 0.02, 3e-3, 40


class Sample(NamedTuple):
    """A training example: ids, and after which of them which id is expected, with which weight."""

    ids: list[int]
    targets: dict[int, tuple[int, float]]


def encode(tokenizer: Any, problem: str, reply: str, ends: bool) -> Sample:
    """One training example: every token of the response is a target.

    A response that does not end is cut at LOOP_TOKENS and has no <|im_end|>.
    """
    prompt = f"<|im_start|>user\n{user_turn(problem)}<|im_end|>\n<|im_start|>assistant\n"
    head = tokenizer(prompt)["input_ids"]
    tail = tokenizer(reply)["input_ids"]
    tail = [*tail, tokenizer.eos_token_id] if ends else tail[:LOOP_TOKENS]
    return Sample(head + tail, {len(head) - 1 + i: (token, 1.0) for i, token in enumerate(tail)})


def batches(stream: Iterator[Sample], pad: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Endless training batches: examples packed whole into rows, blind to their neighbours.

    The stream is endless, and `pad` is the id that fills a row up.

    Yields ids, targets (-100 where none), positions (from 0 in every example), each int64 (ROWS,
    LENGTH), mask, bool (ROWS, 1, LENGTH, LENGTH), and weights float32 (ROWS, LENGTH).
    """
    sample = next(stream)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    while True:
        ids = torch.full((ROWS, LENGTH), pad)
        targets, weights = torch.full((ROWS, LENGTH), -100), torch.zeros(ROWS, LENGTH)
        positions = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
        segment = torch.full((ROWS, LENGTH), -1)
        for row in range(ROWS):
            start = number = 0
            while (end := start + len(sample.ids)) <= LENGTH:
                ids[row, start:end] = torch.tensor(sample.ids)
                positions[row, start:end] = torch.arange(len(sample.ids))
                segment[row, start:end] = number
                for place, (target, weight) in sample.targets.items():
                    targets[row, start + place], weights[row, start + place] = target, weight
                start, number, sample = end, number + 1, next(stream)
        mask = (segment[:, None, :, None] == segment[:, None, None, :]) & causal
        yield ids, targets, positions, mask, weights


def packed(
    tokenizer: Any, examples: Iterator[tuple[str, str, bool]]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """`batches` of examples as `demo_task.examples` yields them: problem, response, does it end."""
    samples = (encode(tokenizer, *example) for example in examples)
    return batches(samples, tokenizer.pad_token_id)


def fit(
    model: Qwen3ForCausalLM,
    stream: Iterator[tuple[torch.Tensor, ...]],
    rate: Callable[[int], float],
    steps: int,
    title: str = "",
    first: int = 0,
    adam_rate: float = ADAM_RATE,
) -> Iterator[int]:
    """Train `model` in place; a line of progress with the time left every 50 steps.

    Muon trains the matrices, AdamW the rest, both with fresh state.

    `stream` is what `batches` yields, and `rate` the share of MUON_RATE and of `adam_rate` after so
    many steps of this call. Lines of progress begin with `title` and count from step `first`. The
    model is in float32.

    Yields the number of the step just taken: first + 1, ..., first + steps. Save between two of
    them.
    """
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    known = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in known]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0)
    adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    schedules = [torch.optim.lr_scheduler.LambdaLR(part, rate) for part in (muon, adam)]
    begun, mean = time.monotonic(), math.nan
    for done in range(1, steps + 1):
        ids, targets, positions, mask, weights = next(stream)
        logits = model(input_ids=ids, position_ids=positions, attention_mask=mask).logits
        loss = _loss(logits.flatten(0, 1), targets.flatten(), weights.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for part in (muon, adam, *schedules):
            part.step()
        model.zero_grad(set_to_none=True)
        mean = loss.item() if math.isnan(mean) else 0.98 * mean + 0.02 * loss.item()
        if done % 50 == 0:
            spent = time.monotonic() - begun
            left = spent / done * (steps - done)
            line = f"{title}step {first + done:5d}  loss {mean:.3f}"
            print(f"{line}  {spent:6.0f} s, {left:.0f} s left", flush=True)
        yield first + done


def _loss(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The mean over targets; where weights differ, of all of them for each of weight 1."""
    if bool((weights[targets >= 0] == 1).all()):  # in one sum, whose bits the demo models have
        return torch.nn.functional.cross_entropy(logits, targets)
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() / (weights == 1).sum()


def load(folder: Path, **options: Any) -> tuple[Qwen3ForCausalLM, Any]:
    """A checkpoint in float32, and its tokenizer with some options."""
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    for key in ("is_local", "local_files_only"):  # where it was read from is nobody's business
        tokenizer.init_kwargs.pop(key, None)
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32), tokenizer


def chat(tokenizer: Any, text: str) -> str:
    """A user's turn in the chat template, up to where the answer begins."""
    turns = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


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
