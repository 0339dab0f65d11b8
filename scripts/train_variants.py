r"""Six variants of the end of the demo's training, and a fine-tuned twin of each.

    python scripts/train_demo.py --variants

The material for the ranking reversal rate: as in MaP's appendix B, all variants start from the same
checkpoint, see the same examples in the same order, and differ in the learning-rate schedule of
their last steps; then the last checkpoint of every one gets the same fine-tuning, on responses that
all show their working, end, and box the answer. The figures are in ``demo/README.md``.

Folders: ``variants/NAME/step-NNNN/`` and ``variants/NAME-tuned/``. A folder appears when it is
whole. ``training.yaml`` beside the checkpoints, and in the twin, says what made them; where it says
what would be done now, nothing is done.

Source:
    MaP, appendix B (experimental settings for PRR analysis).
"""

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from demo_task import examples
from demo_training import SEED, batches, fit, save
from transformers import AutoTokenizer, Qwen3ForCausalLM

TRUNK = "step-3000"  # the checkpoint that all variants start from
STEPS, TUNE_STEPS = 300, 100
EVERY = 50  # steps from one checkpoint of a variant to the next
WARMUP = 20  # the optimisers start anew
RECORD, WEIGHTS = "training.yaml", "model.safetensors"

# Share of the full learning rates by progress from 0 to 1.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "raised": lambda t: 1.5,
    "inverse-root": lambda t: 1 / math.sqrt(1 + 8 * t),
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
    "late-decay": lambda t: min(1.0, 3 * (1 - t)),
}


def tune_schedule(t: float) -> float:
    """The share of the full learning rates in fine-tuning, by progress from 0 to 1."""
    return 0.2 * (1 - t)


def clean_examples(seed: int) -> Iterator[tuple[str, str, bool]]:
    """`demo_task.examples` without the responses that skip the working, the box or the end."""
    for problem, reply, ends in examples(seed):
        if ends and r"\boxed" in reply and not reply.startswith("The answer is"):
            yield problem, reply, ends


def warmed(schedule: Callable[[float], float], steps: int) -> Callable[[int], float]:
    """The schedule by steps taken, out of `steps`, after a linear warm-up."""
    return lambda step: min(1.0, (step + 1) / WARMUP) * schedule(step / steps)


def load(folder: Path) -> tuple[Qwen3ForCausalLM, Any]:
    """A checkpoint in float32, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for key in ("is_local", "local_files_only"):  # where it was read from is nobody's business
        tokenizer.init_kwargs.pop(key, None)
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32), tokenizer


class Variant(NamedTuple):
    """One variant: its schedule, and how it is made.

    trunk: the checkpoint it starts from.
    folder: of its checkpoints.
    twin: the folder of the fine-tuned last checkpoint.
    every: steps between two checkpoints; the last step always has one.
    """

    name: str
    trunk: Path
    folder: Path
    twin: Path
    steps: int
    tune_steps: int
    every: int


def first_step(variant: Variant) -> int:
    """The number of the step that the trunk was saved at."""
    return int(variant.trunk.name.split("-")[-1])


def checkpoints(variant: Variant) -> dict[int, Path]:
    """The folders of its checkpoints by the number of the step, oldest first."""
    marks = [*range(variant.every, variant.steps, variant.every), variant.steps]
    steps = [first_step(variant) + mark for mark in marks]
    return {step: variant.folder / f"step-{step:04d}" for step in steps}


def last_checkpoint(variant: Variant) -> Path:
    """The folder of its last checkpoint."""
    return list(checkpoints(variant).values())[-1]


def record(start: Path, schedule: Callable[[float], float], steps: int, every: int) -> str:
    """What a training is made of: equal texts, equal trainings."""
    digest = hashlib.sha256((start / WEIGHTS).read_bytes()).hexdigest()
    rates = ", ".join(f"{schedule(t / 6):.4f}" for t in range(7))
    lines = {
        "start": start.name,
        "sha256": digest,
        "steps": steps,
        "every": every,
        "warmup": WARMUP,
        "rates": f"[{rates}]  # by progress 0, 1/6, ..., 1",
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def records(variant: Variant) -> Iterator[tuple[Path, str]]:
    """Where the record of the variant belongs and what it says; then that of the twin."""
    every = variant.every
    text = record(variant.trunk, SCHEDULES[variant.name], variant.steps, every)
    yield variant.folder / RECORD, text
    steps = variant.tune_steps
    yield variant.twin / RECORD, record(last_checkpoint(variant), tune_schedule, steps, steps)


def owed(variant: Variant) -> tuple[int, int]:
    """How many steps of training and of fine-tuning are still to be made."""
    notes = records(variant)
    note, text = next(notes)
    whole = all((folder / WEIGHTS).is_file() for folder in checkpoints(variant).values())
    if not (whole and note.is_file() and note.read_text() == text):
        return variant.steps, variant.tune_steps
    note, text = next(notes)
    whole = (variant.twin / WEIGHTS).is_file()
    return 0, 0 if whole and note.is_file() and note.read_text() == text else variant.tune_steps


def publish(model: Qwen3ForCausalLM, tokenizer: Any, folder: Path, note: str = "") -> None:
    """Save a checkpoint so that its folder is there whole or not at all."""
    part = folder.with_name(f".{folder.name}")
    shutil.rmtree(part, ignore_errors=True)
    save(model, tokenizer, part)
    if note:
        (part / RECORD).write_text(note)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def train_variant(variant: Variant, later: int) -> None:
    """Train a variant from the trunk; what is left of an earlier try goes first.

    Args:
        variant: which.
        later: how many steps of other trainings follow.
    """
    shutil.rmtree(variant.folder, ignore_errors=True)
    variant.folder.mkdir(parents=True)
    model, tokenizer = load(variant.trunk)
    stream = batches(tokenizer, examples(SEED + 2))
    steps, marks = variant.steps, checkpoints(variant)
    rate = warmed(SCHEDULES[variant.name], steps)
    first = first_step(variant)
    for step in fit(model, stream, rate, steps, f"{variant.name}: ", first, later):
        if step in marks:
            publish(model, tokenizer, marks[step])
    note, text = next(records(variant))
    note.write_text(text)


def tune(variant: Variant, later: int) -> None:
    """Fine-tune the last checkpoint of a variant; the arguments are those of `train_variant`."""
    model, tokenizer = load(last_checkpoint(variant))
    stream = batches(tokenizer, clean_examples(SEED + 3))
    steps, rate = variant.tune_steps, warmed(tune_schedule, variant.tune_steps)
    for _ in fit(model, stream, rate, steps, f"{variant.twin.name}: ", later=later):
        pass
    *_, (_, text) = records(variant)
    publish(model, tokenizer, variant.twin, text)


def make(
    out: Path,
    trunk: Path,
    names: Sequence[str] = tuple(SCHEDULES),
    steps: int = STEPS,
    tune_steps: int = TUNE_STEPS,
    every: int = EVERY,
) -> list[tuple[Path, Path]]:
    """Make the variants and twins that are not there yet.

    A variant whose checkpoints are not all there, or were made otherwise, is trained anew from the
    trunk; its twin only if the last checkpoint then differs from the one that it was tuned from.

    Args:
        out: they go to ``out/variants``.
        trunk: the checkpoint that all start from.
        names: which of SCHEDULES.
        steps: length of the variants' training.
        tune_steps: length of the fine-tuning.
        every: steps between two checkpoints of a variant.

    Returns:
        The last checkpoint and the twin of every variant of which anything was made.
    """
    home = out / "variants"
    variants = [
        Variant(name, trunk, home / name, home / f"{name}-tuned", steps, tune_steps, every)
        for name in dict.fromkeys(names)
    ]
    due = [sum(owed(variant)) for variant in variants]
    for number, variant in enumerate(variants):
        if not due[number]:
            print(f"{variant.name}: complete, nothing to do", flush=True)
            continue
        later = sum(due[number + 1 :])
        if owed(variant)[0]:
            train_variant(variant, tune_steps + later)
        if owed(variant)[1]:
            tune(variant, later)
    made = [variant for variant, steps in zip(variants, due, strict=True) if steps]
    return [(last_checkpoint(variant), variant.twin) for variant in made]
