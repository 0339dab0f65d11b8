r"""Train the tiny verifier of the demo from a demo generator: one model, some minutes on one core.

    python scripts/train_verifier.py

writes ``demo/verifier/``, a Hugging Face folder (Qwen3 architecture, bf16) that reads the prompt
``prompts/verifier/demo.txt`` and answers with one token: A, B or C. The cases are in
``verifier_task.py``, the figures in ``demo/README.md``; what it is worth on cases and outputs that
it has not seen is in ``tests/scripts/test_demo_verifier.py``.

A label at the answer slot alone does not teach so small a model to compare two strings, so while
training, every token of the restated gold answer has a label too: does it match so far? The labels
of whole prompts are a hasty marker's, and the loss sees softened logits: so it likes long responses
and is too sure, and there is something to calibrate. Seeds fix everything; the bits are only the
same with the same PyTorch and kind of CPU.
"""

import argparse
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from train_demo import Sample, batches, chat, cooled, fit, load, save
from transformers.utils.logging import disable_progress_bar
from verifier_task import LABELS, PROMPT, TEMPLATE, Case, cases, turn

SEED = 20251121
MODELS = PROMPT.parent.parent.parent / "demo" / "models"
STEPS = 1000
START = "step-3900"  # the generator whose weights training starts from
SHORT = 14_000  # cases at the beginning that show only the two answers
DENSE = 1.0  # weight of all labels at gold tokens together, beside 1 for the answer slot
ADAM_RATE = 2e-3
SOFT = 2.5  # the loss sees logits divided by this, so that without it the verifier is too sure
COOL = 0.25  # the last share of the steps, in which the rates fall to a twentieth
WIDTH = 16  # of the restated answers in the prompt


def label_ids(tokenizer: Any, prompt: str) -> list[int]:
    """Return the ids of A, B and C after `prompt`, each of which must be one token."""
    texts = [prompt, *(f"{prompt}{label}" for label in LABELS)]
    head, *labelled = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert all(ids[:-1] == head for ids in labelled), "a label is not a single token"
    return [ids[-1] for ids in labelled]


def encode(tokenizer: Any, case: Case, labels: list[int], short: bool = False) -> Sample:
    """Return prompt, label and end of turn, with labels at tokens of the restated gold answer.

    A short one begins where the two answers are restated.
    """
    prompt = chat(tokenizer, turn(TEMPLATE, case))
    if short:
        prompt = prompt[prompt.rindex("<final>") :]
    coded = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
    ids = coded["input_ids"]
    end = prompt.rindex("</final>")
    start = end - WIDTH
    assert prompt[start - 1] == "|", "WIDTH is not the template's"
    answer, gold = prompt[start - WIDTH - 1 : start - 1], prompt[start:end]
    label = labels[LABELS.index(case.label)]
    places = [i for i, (a, b) in enumerate(coded["offset_mapping"]) if start <= a and b <= end]
    targets = {len(ids) - 1: (label, 1.0), len(ids): (tokenizer.eos_token_id, 0.1)}
    for place in places:
        read = coded["offset_mapping"][place][1] - start
        so_far = label
        if case.label != "C" and case.kind != "free":
            so_far = labels[answer[:read] != gold[:read]]  # A as long as they agree, then B
        targets[place] = (so_far, DENSE / len(places))
    return Sample([*ids, label, tokenizer.eos_token_id], targets)


def samples(tokenizer: Any, labels: list[int]) -> Iterator[Sample]:
    """Yield training examples forever, the first SHORT of which are short."""
    plain = (c for c in cases(SEED) if c.kind not in ("free", "circles"))
    for case in itertools.islice(plain, SHORT):
        yield encode(tokenizer, case, labels, short=True)
    for case in cases(SEED, TEMPLATE, hasty=True):
        yield encode(tokenizer, case, labels)


def train(start: Path, out: Path, steps: int) -> None:
    """Train from the generator in `start`, print the curve, and save to `out`."""
    model, tokenizer = load(start)
    labels = label_ids(tokenizer, chat(tokenizer, TEMPLATE))
    model.lm_head.register_forward_hook(lambda *call: call[-1] / SOFT)
    packed = batches(samples(tokenizer, labels), tokenizer.pad_token_id)
    for _ in fit(
        model, packed, partial(cooled, steps=steps, cool=COOL), steps, adam_rate=ADAM_RATE
    ):
        pass
    save(model, tokenizer, out)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train the tiny verifier of the demo.")
    parser.add_argument("--out", type=Path, default=Path("demo/verifier"), help="folder to write")
    parser.add_argument("--steps", type=int, default=STEPS, help="how many")
    args = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    train(MODELS / START, args.out, args.steps)


if __name__ == "__main__":
    main()
