r"""Train the tiny judge of the demo, which writes its judgement: some minutes on one core.

    python scripts/train_judge.py

writes ``demo/judge/``, a Hugging Face folder (Qwen3 architecture, bf16) that reads the prompt
``prompts/verifier/demo-judge.txt``. It writes final and gold answer character by character up to
the first difference, then its judgement, as in ``77 22\nJudgement: correct``. That is what so small
a model can learn: each step copies or compares two neighbors. The cases are those of the verifier
(``verifier_task.py``); what it is worth on real attempts is in ``tests/verify/test_generated.py``.
"""

import argparse
import itertools
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from train_demo import Sample, batches, build_model, chat, cooled, fit, save
from transformers import AutoTokenizer
from transformers.utils.logging import disable_progress_bar
from verifier_task import PROMPT, Case, cases, turn

TEMPLATE = PROMPT.with_name("demo-judge.txt").read_text(encoding="utf-8").rstrip("\n")
TOKENIZER = PROMPT.parent.parent.parent / "demo" / "models" / "step-3900"
SEED, COOL = 20261128, 0.4  # COOL: the last share of a stage's steps, with falling rates
# Steps, cases at the beginning that show only the two answers, weight of the last word's tokens.
STAGES = ((500, 5_000, 1.0), (250, 0, 4.0))
UNTAGGED = TEMPLATE.replace(" {tag}", "")  # what an injection may imitate
# Those whose label the two restated answers show.
KINDS = ("right", "wrong", "cut", "open box", "loop", "no box", "refusal", "noise")
WORDS = {"A": "correct", "B": "incorrect", "C": "not_attempted"}


def written(answer: str, gold: str, label: str) -> str:
    r"""Return what the judge is to write.

    >>> written("72", "72", "A"), written("7", r"\frac{7}{2}", "B"), written("", "4", "C")
    ('77 22\nJudgement: correct', '77 _/\nJudgement: incorrect', 'none\nJudgement: not_attempted')
    """
    short = [re.sub(r"\\frac\{(.*?)\}\{(.*?)\}", r"\1/\2", text)[:16] for text in (answer, gold)]
    pairs = list[str]()
    for a, b in itertools.zip_longest(*short, fillvalue="_"):
        pairs.append(a + b)
        if a != b:
            break
    return f"{'none' if label == 'C' else ' '.join(pairs)}\nJudgement: {WORDS[label]}"


def sample(tokenizer: Any, case: Case, short: bool, weight: float) -> Sample:
    """Return a training example; a short one begins where the two answers are restated."""
    prompt = chat(tokenizer, turn(TEMPLATE, case))
    if short:
        prompt = prompt[prompt.rindex("<final>") :]
    head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    text = written(case.answer, case.gold, case.label)
    tail = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    word = len(tokenizer(text[: text.index(": ")], add_special_tokens=False)["input_ids"])
    weights = [weight if i >= word else 1.0 for i in range(len(tail))]
    targets = enumerate(zip(tail, weights, strict=True), len(head) - 1)
    return Sample(head + tail, dict(targets))


def samples(tokenizer: Any, seed: int, short: int, weight: float) -> Iterator[Sample]:
    """Yield training examples forever, without cases whose label the two answers do not show."""
    known = (c for c in cases(seed, UNTAGGED) if c.kind in KINDS)
    for number, case in enumerate(known):
        yield sample(tokenizer, case, number < short, weight)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train the tiny judge of the demo.")
    parser.add_argument("--out", type=Path, default=Path("demo/judge"), help="folder to write")
    args = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    for key in ("is_local", "local_files_only"):  # do not store where it was read from
        tokenizer.init_kwargs.pop(key, None)
    model = build_model(tokenizer, SEED, width=96, inner=256)  # under a megabyte
    for stage, (steps, short, weight) in enumerate(STAGES):
        stream = samples(tokenizer, SEED + stage, short, weight)
        packed = batches(stream, tokenizer.pad_token_id)
        for _ in fit(model, packed, partial(cooled, steps=steps, cool=COOL), steps):
            pass
    save(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
