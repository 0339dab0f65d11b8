r"""Six variants of the end of the demo's training, and a fine-tuned twin of each.

    python scripts/train_demo.py --variants

The material for the ranking reversal rate: as in MaP's appendix B, all variants start from the same
checkpoint, see the same examples in the same order, and differ in the learning-rate schedule of
their last steps; then the last checkpoint of every one gets the same fine-tuning, on responses that
all show their working, end, and box the answer. The figures are in ``demo/README.md``.

Folders: ``variants/NAME/step-NNNN/`` and ``variants/NAME-tuned/``. A folder appears when it is
whole. ``training.yaml`` beside the checkpoints, and in the twin, says what made them; where it says
what would be done now, nothing is done.

Source: MaP, appendix B (experimental settings for PRR analysis).
"""

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from demo_task import examples
from demo_training import SEED, fit, load, packed, save

TRUNK = "step-3000"  # the checkpoint that all variants start from
STEPS, TUNE_STEPS = 300, 100
EVERY = 50  # steps from one checkpoint of a variant to the next
WARMUP = 20  # the optimisers start anew
RECORD, WEIGHTS = "training.yaml", "model.safetensors"

# Share of the full learning rates by progress from 0 to 1.
Schedule = Callable[[float], float]
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda t: 1.0,
    "raised": lambda t: 1.5,
    "inverse-root": lambda t: 1 / math.sqrt(1 + 8 * t),
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
    "late-decay": lambda t: min(1.0, 3 * (1 - t)),
}


class Training(NamedTuple):
    """The training of a variant, or the fine-tuning of its last checkpoint."""

    name: str
    start: Path  # the checkpoint it starts from
    first: int  # the number of the step that it starts from
    schedule: Schedule
    examples: Callable[[], Iterator[tuple[str, str, bool]]]
    steps: int
    every: int  # steps between two checkpoints; the last step always has one
    checkpoints: dict[int, Path]  # by the number of the step, oldest first
    home: Path  # where its record is

    def record(self) -> str:
        """What it is made of: equal texts, equal trainings."""
        rates = ", ".join(f"{self.schedule(t / 6):.4f}" for t in range(7))
        lines = {
            "start": self.start.name,
            "sha256": hashlib.sha256((self.start / WEIGHTS).read_bytes()).hexdigest(),
            "steps": self.steps,
            "every": self.every,
            "warmup": WARMUP,
            "rates": f"[{rates}]  # by progress 0, 1/6, ..., 1",
        }
        return "".join(f"{key}: {value}\n" for key, value in lines.items())

    def complete(self) -> bool:
        """Whether all checkpoints hold weights, and the record says what it would say now."""
        note = self.home / RECORD
        whole = all((folder / WEIGHTS).is_file() for folder in self.checkpoints.values())
        return whole and note.is_file() and note.read_text() == self.record()


def clean_examples(seed: int) -> Iterator[tuple[str, str, bool]]:
    """`demo_task.examples` without the responses that skip the working, the box or the end."""
    for problem, reply, ends in examples(seed):
        if ends and r"\boxed" in reply and not reply.startswith("The answer is"):
            yield problem, reply, ends


def warmed(schedule: Schedule, steps: int) -> Callable[[int], float]:
    """The schedule by steps taken, out of `steps`, after a linear warm-up."""
    return lambda step: min(1.0, (step + 1) / WARMUP) * schedule(step / steps)


def train(training: Training, later: int) -> None:
    """Train; what is left of an earlier try goes first, and `later` steps of others follow.

    A checkpoint's folder is there whole or not at all.
    """
    shutil.rmtree(training.home, ignore_errors=True)
    model, tokenizer = load(training.start)
    stream, rate = packed(tokenizer, training.examples()), warmed(training.schedule, training.steps)
    title, first = f"{training.name}: ", training.first
    for step in fit(model, stream, rate, training.steps, title, first, later):
        if folder := training.checkpoints.get(step):
            part = folder.with_name(f".{folder.name}")
            shutil.rmtree(part, ignore_errors=True)
            save(model, tokenizer, part)
            part.rename(folder)
    (training.home / RECORD).write_text(training.record())


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

    They go to ``out/variants`` and start from the checkpoint `trunk`; `names` are of SCHEDULES,
    `steps` and `tune_steps` the lengths of training and fine-tuning, and `every` those between two
    checkpoints of a variant.

    Returns the last checkpoint and the twin of every variant of which anything was made.
    """
    first = int(trunk.name.split("-")[-1])
    marks = [first + mark for mark in (*range(every, steps, every), steps)]
    all_sorts, clean = partial(examples, SEED + 2), partial(clean_examples, SEED + 3)
    due: dict[str, list[Training]] = {}
    for name in dict.fromkeys(names):
        home, twin = out / "variants" / name, out / "variants" / f"{name}-tuned"
        checkpoints = {mark: home / f"step-{mark:04d}" for mark in marks}
        rate, falling = SCHEDULES[name], lambda t: 0.2 * (1 - t)
        last = checkpoints[marks[-1]]
        variant = Training(name, trunk, first, rate, all_sorts, steps, every, checkpoints, home)
        tuning = Training(
            twin.name, last, 0, falling, clean, tune_steps, tune_steps, {tune_steps: twin}, twin
        )
        if not variant.complete():
            due[name] = [variant, tuning]
        elif not tuning.complete():
            due[name] = [tuning]
        else:
            print(f"{name}: complete, nothing to do", flush=True)
    later = sum(training.steps for trainings in due.values() for training in trainings)
    for trainings in due.values():
        for training in trainings:
            later -= training.steps
            if not training.complete():
                train(training, later)
    return [(tuning.start, tuning.home) for *_, tuning in due.values()]
