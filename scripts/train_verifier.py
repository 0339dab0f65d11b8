r"""Train the tiny verifier of the demo from a demo generator: one model, some minutes on one core.

    python scripts/train_verifier.py

writes ``demo/verifier/``, a Hugging Face folder (Qwen3 architecture, bf16) that reads the prompt
``prompts/verifier/demo.txt`` and answers with one token: A, B or C. Then it prints what it is
worth on held-out cases and on real outputs. The cases are in ``verifier_task.py``, the figures in
``demo/README.md``.

A label at the answer slot alone does not teach so small a model to compare two strings, so while
training, every token of the restated gold answer has a label too: does it match so far? The labels
of whole prompts are a hasty marker's, and the loss sees softened logits: so it likes long responses
and is too sure, and there is something to calibrate. Seeds fix everything; the bits are only the
same with the same PyTorch and kind of CPU.
"""

import argparse
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from demo_task import FAMILIES
from demo_training import WARMUP, Sample, batches, chat, fit, load, sample, save
from transformers.utils.logging import disable_progress_bar
from verifier_task import HELD_OUT, LABELS, PROMPT, TEMPLATE, Case, cases, turn

from verifiers.maths.boxed import extract

SEED = 20251121
MODELS = PROMPT.parent.parent.parent / "demo" / "models"
STEPS = 1000
START = "step-3900"  # the generator whose weights training starts from
SHORT = 14_000  # cases at the beginning that show only the two answers
DENSE = 1.0  # weight of all labels at gold tokens together, beside 1 for the answer slot
ADAM_RATE = 2e-3
SOFT = 2.5  # the loss sees logits divided by this, so that without it the verifier is too sure
COOL = 0.25  # the last share of the steps, in which the rates fall to a twentieth
REAL = ("0300", "1200", "2100", "3000", "3600", "4000")  # checkpoints whose outputs are judged
WIDTH = 16  # of the restated answers in the prompt


def label_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The ids of A, B and C after `prompt`, each of which must be one token there."""
    texts = [prompt, *(f"{prompt}{label}" for label in LABELS)]
    head, *labelled = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert all(ids[:-1] == head for ids in labelled), "a label is not a single token"
    return [ids[-1] for ids in labelled]


def encode(tokenizer: Any, case: Case, labels: list[int], short: bool = False) -> Sample:
    """Prompt, label and end of turn, with labels at the tokens of the restated gold answer.

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
    """Endless training examples, the first SHORT of them short."""
    plain = (c for c in cases(SEED) if c.kind not in ("free", "circles"))
    for case in itertools.islice(plain, SHORT):
        yield encode(tokenizer, case, labels, short=True)
    for case in cases(SEED, TEMPLATE, hasty=True):
        yield encode(tokenizer, case, labels)


def rate(step: int, steps: int) -> float:
    """The share of the full learning rates after so many of all steps."""
    left = (steps - step) / (COOL * steps)
    return min(1.0, (step + 1) / WARMUP, max(left, 0.05))


def train(start: Path, out: Path, steps: int) -> None:
    """Train from the generator in `start`, print the curve, and save to `out`."""
    model, tokenizer = load(start)
    labels = label_ids(tokenizer, chat(tokenizer, TEMPLATE))
    model.lm_head.register_forward_hook(lambda *call: call[-1] / SOFT)
    packed = batches(samples(tokenizer, labels), tokenizer.pad_token_id)
    for _ in fit(model, packed, partial(rate, steps=steps), steps, adam_rate=ADAM_RATE):
        pass
    save(model, tokenizer, out)


def outputs(folder: Path, count: int, limit: int, seed: int) -> list[Case]:
    """An attempt of a demo checkpoint, of at most `limit` tokens, at each of `count` new questions.

    The label is C when the attempt was cut or has no box, else A if the last box is the gold
    answer, as a string, else B. T = 0.6, top-p = 0.95.
    """
    rng = random.Random(seed)
    torch.manual_seed(seed)
    families = list(FAMILIES.values())
    drawn = (rng.choice(families).make(rng) for _ in itertools.count())
    items = list(itertools.islice((i for i in drawn if i.problem not in HELD_OUT), count))
    attempts = sample(folder, [item.problem for item in items], limit)
    labelled = []
    for item, (text, ended) in zip(items, attempts, strict=True):
        answer = extract(text, truncated=not ended).answer or ""
        label = "C" if not answer else "A" if answer == item.answer else "B"
        labelled.append(Case(item.problem, item.answer, text, answer, label, "real"))
    return labelled


@torch.no_grad()
def judge(folder: Path, judged: Sequence[Case]) -> torch.Tensor:
    """Log-probabilities of A, B and C at the answer slot, float32 (cases, 3)."""
    model, tokenizer = load(folder, padding_side="left")
    prompts = [chat(tokenizer, turn(TEMPLATE, case)) for case in judged]
    labels = label_ids(tokenizer, prompts[0])
    options = {"add_special_tokens": False, "padding": True, "return_token_type_ids": False}
    logprobs = []
    for start in range(0, len(prompts), 64):
        batch = tokenizer(prompts[start : start + 64], return_tensors="pt", **options)
        logits = model(**batch, logits_to_keep=1).logits[:, -1]
        logprobs.append(logits.log_softmax(-1)[:, labels])
    return torch.cat(logprobs)


def report(name: str, folder: Path, judged: Sequence[Case]) -> None:
    """Print accuracy, mean probability of what it says, and labels against verdicts."""
    logprobs = judge(folder, judged)
    verdicts = [LABELS[i] for i in logprobs.argmax(1).tolist()]
    table = Counter(zip((case.label for case in judged), verdicts, strict=True))
    right = sum(table[label, label] for label in LABELS)
    share, said = right / len(judged), logprobs.exp().max(1)[0].mean().item()
    print(f"{name}: {right} of {len(judged)} right ({share:.3f}), it says {said:.3f}")
    for label in LABELS:
        row = ", ".join(f"{verdict} {table[label, verdict]:5d}" for verdict in LABELS)
        print(f"  {label}: says {row}", flush=True)


def evaluate(folder: Path) -> None:
    """Print what the verifier is worth on cases that training has not seen."""
    stream = (c for c in cases(SEED + 1) if c.kind != "free")
    report("held-out cases", folder, list(itertools.islice(stream, 2000)))
    stream = (c for c in cases(SEED + 2, TEMPLATE, talk=1.0) if c.kind != "free")
    report("responses that pretend to be prompt", folder, list(itertools.islice(stream, 1000)))
    for limit in (96, 32):
        steps = enumerate(REAL, SEED + limit)
        real = [c for seed, n in steps for c in outputs(MODELS / f"step-{n}", 250, limit, seed)]
        report(f"outputs of {len(REAL)} checkpoints, at most {limit} tokens", folder, real)


def main() -> None:
    """Read the command line, train, and print what came of it."""
    parser = argparse.ArgumentParser(description="Train the tiny verifier of the demo.")
    parser.add_argument("--out", type=Path, default=Path("demo/verifier"), help="folder to write")
    parser.add_argument("--steps", type=int, default=STEPS, help="how many; 0 only evaluates --out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    if args.steps:
        train(MODELS / START, args.out, args.steps)
    evaluate(args.out)


if __name__ == "__main__":
    main()
