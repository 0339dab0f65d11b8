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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_task import examples
from demo_training import SEED, fit, load, packed, save
from transformers import Qwen3ForCausalLM

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

    @property
    def first(self) -> int:
        """The number of the step that the trunk was saved at."""
        return int(self.trunk.name.split("-")[-1])

    @property
    def checkpoints(self) -> dict[int, Path]:
        """The folders of its checkpoints by the number of the step, oldest first."""
        marks = [*range(self.every, self.steps, self.every), self.steps]
        return {self.first + mark: self.folder / f"step-{self.first + mark:04d}" for mark in marks}

    @property
    def last(self) -> Path:
        """The folder of its last checkpoint."""
        return list(self.checkpoints.values())[-1]


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


def own_record(variant: Variant) -> str:
    """What the checkpoints of a variant are made of."""
    return record(variant.trunk, SCHEDULES[variant.name], variant.steps, variant.every)


def twin_record(variant: Variant) -> str:
    """What its twin is made of."""
    return record(variant.last, tune_schedule, variant.tune_steps, variant.tune_steps)


def owed(variant: Variant) -> tuple[int, int]:
    """How many steps of training and of fine-tuning are still to be made."""
    if not made(variant.checkpoints.values(), variant.folder, own_record, variant):
        return variant.steps, variant.tune_steps
    tuned = made([variant.twin], variant.twin, twin_record, variant)
    return 0, 0 if tuned else variant.tune_steps


def made(
    folders: Iterable[Path], home: Path, of: Callable[[Variant], str], variant: Variant
) -> bool:
    """Whether all folders hold weights, and the record in `home` says what it would say now."""
    whole = all((folder / WEIGHTS).is_file() for folder in folders)
    note = home / RECORD
    return whole and note.is_file() and note.read_text() == of(variant)


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
    stream = packed(tokenizer, examples(SEED + 2))
    rate = warmed(SCHEDULES[variant.name], variant.steps)
    for step in fit(model, stream, rate, variant.steps, f"{variant.name}: ", variant.first, later):
        if step in variant.checkpoints:
            publish(model, tokenizer, variant.checkpoints[step])
    (variant.folder / RECORD).write_text(own_record(variant))


def tune(variant: Variant, later: int) -> None:
    """Fine-tune the last checkpoint of a variant; the arguments are those of `train_variant`."""
    model, tokenizer = load(variant.last)
    stream = packed(tokenizer, clean_examples(SEED + 3))
    steps, rate = variant.tune_steps, warmed(tune_schedule, variant.tune_steps)
    for _ in fit(model, stream, rate, steps, f"{variant.twin.name}: ", later=later):
        pass
    publish(model, tokenizer, variant.twin, twin_record(variant))


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
    return [(v.last, v.twin) for v, steps in zip(variants, due, strict=True) if steps]
