r"""Six variants of the end of the demo's training, and a fine-tuned twin of each.

    python scripts/train_demo.py --variants

The material for the ranking reversal rate: as in MaP's appendix B, all variants start from the same
checkpoint, see the same examples in the same order, and differ in the learning-rate schedule of
their last steps; then the last checkpoint of every one gets the same fine-tuning, on responses that
all show their working, end, and box the answer. The figures are in ``demo/README.md``.

Folders: ``variants/NAME/step-NNNN/`` and ``variants/NAME-tuned/``. A folder appears when it is
whole. ``training.yaml`` beside the checkpoints, and in the twin, says what made them. A variant
whose twin is there is left as it is.

Source: MaP, appendix B (experimental settings for PRR analysis).
"""

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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


def clean_examples(seed: int) -> Iterator[tuple[str, str, bool]]:
    """`demo_task.examples` without the responses that skip the working, the box or the end."""
    for problem, reply, ends in examples(seed):
        if ends and r"\boxed" in reply and not reply.startswith("The answer is"):
            yield problem, reply, ends


def warmed(schedule: Schedule, steps: int) -> Callable[[int], float]:
    """The schedule by steps taken, out of `steps`, after a linear warm-up."""
    return lambda step: min(1.0, (step + 1) / WARMUP) * schedule(step / steps)


def train(
    title: str,
    start: Path,
    first: int,
    schedule: Schedule,
    stream: Iterator[tuple[str, str, bool]],
    checkpoints: dict[int, Path],
    home: Path,
) -> None:
    """Train from a checkpoint, whose step is `first`; what is left of an earlier try goes first.

    `checkpoints` are folders by the number of the step, the last one at the end; each is there
    whole or not at all. The record is in `home`.
    """
    steps = max(checkpoints) - first
    shutil.rmtree(home, ignore_errors=True)
    model, tokenizer = load(start)
    examples_ = packed(tokenizer, stream)
    for step in fit(model, examples_, warmed(schedule, steps), steps, f"{title}: ", first):
        if folder := checkpoints.get(step):
            part = folder.with_name(f".{folder.name}")
            shutil.rmtree(part, ignore_errors=True)
            save(model, tokenizer, part)
            part.rename(folder)
    rates = ", ".join(f"{schedule(t / 6):.4f}" for t in range(7))
    lines = {
        "start": start.name,
        "sha256": hashlib.sha256((start / WEIGHTS).read_bytes()).hexdigest(),
        "steps": steps,
        "warmup": WARMUP,
        "rates": f"[{rates}]  # by progress 0, 1/6, ..., 1",
    }
    (home / RECORD).write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))


def make(
    out: Path,
    trunk: Path,
    names: Sequence[str] = tuple(SCHEDULES),
    steps: int = STEPS,
    tune_steps: int = TUNE_STEPS,
    every: int = EVERY,
) -> None:
    """Make the variants, of SCHEDULES, that have no twin yet, and their twins.

    They go to ``out/variants`` and start from the checkpoint `trunk`; `steps` and `tune_steps` are
    the lengths of training and fine-tuning, and `every` that between two checkpoints of a variant.
    """
    first = int(trunk.name.split("-")[-1])
    marks = [first + mark for mark in (*range(every, steps, every), steps)]
    for name in dict.fromkeys(names):
        home, twin = out / "variants" / name, out / "variants" / f"{name}-tuned"
        if (twin / RECORD).is_file():
            print(f"{name}: there already, nothing to do", flush=True)
            continue
        checkpoints = {mark: home / f"step-{mark:04d}" for mark in marks}
        train(name, trunk, first, SCHEDULES[name], examples(SEED + 2), checkpoints, home)
        last, clean = checkpoints[marks[-1]], clean_examples(SEED + 3)
        train(twin.name, last, 0, lambda t: 0.2 * (1 - t), clean, {tune_steps: twin}, twin)
