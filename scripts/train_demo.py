r"""Train the demo models from scratch: one run, 18 checkpoints, twenty minutes on 2 cores.

    python scripts/train_demo.py --out demo

writes ``questions.jsonl``, and ``models/step-NNNN/`` for every checkpoint: a Hugging Face folder
(Qwen3 architecture, under a million parameters, bf16) with tokenizer and chat template. The task is
in ``demo_task.py``; the figures are in ``demo/README.md``.

    python scripts/train_demo.py --variants

makes six variants of the end of that training, and a fine-tuned twin of each, as far as they are
not there yet: the material for the ranking reversal rate. As in MaP's appendix B (experimental
settings for PRR analysis), all start from the same checkpoint, see the same examples in the same
order, and differ in the learning-rate schedule of their last steps; then the last checkpoint of
every one gets the same fine-tuning, on responses that all show their working, end, and box the
answer. ``variants/NAME/step-NNNN/`` and ``variants/NAME-tuned/`` appear when they are whole;
``training.yaml`` in ``variants/NAME`` and in the twin says what made them.

A step is deterministic: there is no dropout, and seeds fix the data, the initial weights and the
order of everything. Floating-point sums depend on how PyTorch splits them, so the weights repeat
bit for bit only with the same PyTorch, the same number of threads (``--threads``) and the same kind
of CPU; elsewhere expect the same curve, not the same bits.
"""

import argparse
import copy
import hashlib
import itertools
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from demo_task import demo_questions, examples, user_turn
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

SEED = 20251004
ROWS, LENGTH = 4, 512  # a step: this many rows of this many tokens, filled with whole examples
LOOP_TOKENS = 100  # where a training response that never ends is cut: beyond the demo's limit of 96
MUON_RATE, ADAM_RATE, WARMUP = 0.02, 3e-3, 40
CHECKPOINTS = (*range(300, 3301, 300), *range(3400, 4001, 100))
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

# Of the variants: the checkpoint that they start from, steps, those of a twin, steps between two
# checkpoints, and of the warm-up, since the optimisers start anew.
TRUNK, STEPS, TUNE_STEPS, EVERY, VARIANT_WARMUP = "step-3000", 300, 100, 50, 20
RECORD, WEIGHTS = "training.yaml", "model.safetensors"
SCHEDULES: dict[str, Callable[[float], float]] = {  # share of the rates by progress from 0 to 1
    "constant": lambda t: 1.0,
    "raised": lambda t: 1.5,
    "inverse-root": lambda t: 1 / math.sqrt(1 + 8 * t),
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
    "late-decay": lambda t: min(1.0, 3 * (1 - t)),
}
Examples = Iterator[tuple[str, str, bool]]  # problem, response, whether that ends


class Sample(NamedTuple):
    """A training example: token ids, and for each position the target id and its weight."""

    ids: list[int]
    targets: dict[int, tuple[int, float]]


def encode(tokenizer: Any, problem: str, reply: str, ends: bool) -> Sample:
    """Return a training example: every token of the response is a target.

    A response that does not end is cut at LOOP_TOKENS and has no <|im_end|>.
    """
    prompt = f"<|im_start|>user\n{user_turn(problem)}<|im_end|>\n<|im_start|>assistant\n"
    head = tokenizer(prompt)["input_ids"]
    tail = tokenizer(reply)["input_ids"]
    tail = [*tail, tokenizer.eos_token_id] if ends else tail[:LOOP_TOKENS]
    return Sample(head + tail, {len(head) - 1 + i: (token, 1.0) for i, token in enumerate(tail)})


def batches(stream: Iterator[Sample], pad: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield training batches forever: whole examples packed into rows, masked from each other.

    The stream is endless, and `pad` is the id that fills a row up. Yields ids, targets (-100 where
    none), positions (from 0 in every example), each int64 (ROWS, LENGTH), mask, bool (ROWS, 1,
    LENGTH, LENGTH), and weights float32 (ROWS, LENGTH).
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


def packed(tokenizer: Any, stream: Examples) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield `batches` of examples."""
    samples = (encode(tokenizer, *example) for example in stream)
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
    """Train a model in float32 in place; print the time left every 50 steps.

    Muon trains the matrices, AdamW the rest, both with fresh state. `stream` is what `batches`
    yields, and `rate` the share of MUON_RATE and of `adam_rate` after so many steps of this call.
    Lines begin with `title` and count from step `first`. Yields the number of the step just taken:
    first + 1, ..., first + steps. Save between two of them.
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
            line = f"{title}step {first + done:5d}  loss {mean:.3f}  {spent:6.0f} s"
            print(f"{line}, {spent / done * (steps - done):.0f} s left", flush=True)
        yield first + done


def _loss(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the mean over targets; where weights differ, of all of them for each of weight 1."""
    if bool((weights[targets >= 0] == 1).all()):  # in one sum, whose bits the demo models have
        return torch.nn.functional.cross_entropy(logits, targets)
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() / (weights == 1).sum()


def load(folder: Path, **options: Any) -> tuple[Qwen3ForCausalLM, Any]:
    """Load a checkpoint in float32, and its tokenizer with some options."""
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    for key in ("is_local", "local_files_only"):  # do not store where it was read from
        tokenizer.init_kwargs.pop(key, None)
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32), tokenizer


def chat(tokenizer: Any, text: str) -> str:
    """Return a user's turn in the chat template, up to the beginning of the answer."""
    turns = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def save(model: Qwen3ForCausalLM, tokenizer: Any, folder: Path) -> None:
    """Write a checkpoint in bf16 with all files needed to serve it."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    (folder / WEIGHTS).chmod(0o644)
    tokenizer.save_pretrained(folder)
    # A class name that every version of transformers has.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n")


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE trained on 4,000 seeded examples, which can encode any text."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECES), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = itertools.islice(examples(seed), 4000)
    texts = (f"system\nuser\n{user_turn(of)}\nassistant\n{reply}" for of, reply, _ in corpus)
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


def check_ids(tokenizer: Any) -> None:
    """Assert that training rows equal the chat template's output, id for id."""
    for problem, reply, ends in itertools.islice(examples(SEED), 200):
        ids, targets = encode(tokenizer, problem, reply, ends)
        text = chat(tokenizer, user_turn(problem))
        assert ids[: min(targets) + 1] == tokenizer(text, add_special_tokens=False)["input_ids"]
        text += f"{reply}<|im_end|>\n"
        assert ids == tokenizer(text, add_special_tokens=False)["input_ids"][: len(ids)]


def build_model(
    tokenizer: Any, seed: int = SEED, width: int = 128, inner: int = 384
) -> Qwen3ForCausalLM:
    """Return the untrained model: Qwen3 with 4 layers of this width, tied embeddings."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=inner,
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


def train(out: Path, last: int) -> None:
    """Write the questions, train up to step `last`, and save the checkpoints on the way."""
    shutil.rmtree(out / "models", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in demo_questions())
    (out / "questions.jsonl").write_text(lines)
    tokenizer = build_tokenizer(SEED)
    check_ids(tokenizer)
    model = build_model(tokenizer)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(tokenizer)} tokens, {torch.get_num_threads()} threads")
    stream = packed(tokenizer, examples(SEED + 1))
    for step in fit(model, stream, lambda step: min(1.0, (step + 1) / WARMUP), last):
        if step in CHECKPOINTS:
            save(model, tokenizer, out / "models" / f"step-{step:04d}")


def clean_examples(seed: int) -> Examples:
    """Yield examples without responses that skip the work, the box or the end."""
    for problem, reply, ends in examples(seed):
        if ends and r"\boxed" in reply and not reply.startswith("The answer is"):
            yield problem, reply, ends


def cooled(step: int, steps: int, cool: float) -> float:
    """Return the share of the full learning rates at a step; they fall in the last share `cool`."""
    return min(1.0, (step + 1) / WARMUP, max((steps - step) / (cool * steps), 0.05))


def warmed(schedule: Callable[[float], float], steps: int) -> Callable[[int], float]:
    """Return the schedule by steps taken, out of `steps`, after a linear warm-up."""
    return lambda step: min(1.0, (step + 1) / VARIANT_WARMUP) * schedule(step / steps)


def train_variant(
    start: Path,
    first: int,
    schedule: Callable[[float], float],
    stream: Examples,
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
    rows, rate = packed(tokenizer, stream), warmed(schedule, steps)
    for step in fit(model, rows, rate, steps, f"{home.name}: ", first):
        if folder := checkpoints.get(step):
            part = folder.with_name(f".{folder.name}")
            shutil.rmtree(part, ignore_errors=True)
            save(model, tokenizer, part)
            part.rename(folder)
    rates = ", ".join(f"{schedule(t / 6):.4f}" for t in range(7))
    digest = hashlib.sha256((start / WEIGHTS).read_bytes()).hexdigest()
    (home / RECORD).write_text(
        f"start: {start.name}\nsha256: {digest}\nsteps: {steps}\nwarmup: {VARIANT_WARMUP}\n"
        f"rates: [{rates}]  # by progress 0, 1/6, ..., 1\n"
    )


def make_variants(
    out: Path,
    trunk: Path,
    names: Sequence[str] = tuple(SCHEDULES),
    steps: int = STEPS,
    tune_steps: int = TUNE_STEPS,
    every: int = EVERY,
) -> None:
    """Make the variants, of SCHEDULES, that have no twin yet, and their twins, in ``out/variants``.

    They start from the checkpoint `trunk`; `steps` and `tune_steps` are the lengths of training and
    fine-tuning, and `every` that between two checkpoints of a variant.
    """
    first = int(trunk.name.split("-")[-1])
    marks = [first + mark for mark in (*range(every, steps, every), steps)]
    for name in names:
        home, twin = out / "variants" / name, out / "variants" / f"{name}-tuned"
        if (twin / RECORD).is_file():
            print(f"{name}: there already, nothing to do", flush=True)
            continue
        checkpoints = {mark: home / f"step-{mark:04d}" for mark in marks}
        train_variant(trunk, first, SCHEDULES[name], examples(SEED + 2), checkpoints, home)
        last, clean = checkpoints[marks[-1]], clean_examples(SEED + 3)
        train_variant(last, 0, lambda t: 0.2 * (1 - t), clean, {tune_steps: twin}, twin)


def positive(text: str) -> int:
    """Parse an integer of at least 1 from the command line."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return int(text)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train the demo models and write their folder.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder to write (demo)")
    parser.add_argument("--threads", type=positive, default=2, help="PyTorch threads (2)")
    parser.add_argument("--steps", type=positive, default=CHECKPOINTS[-1], help="stop at this step")
    parser.add_argument("--variants", action="store_true", help=f"make variants of {TRUNK}")
    args = parser.parse_args(argv)
    trunk = args.out / "models" / TRUNK
    if args.variants and not (trunk / WEIGHTS).is_file():
        parser.error(f"{trunk}: no checkpoint to start from; the same without --variants makes it")
    torch.set_num_threads(args.threads)
    disable_progress_bar()
    if args.variants:
        make_variants(args.out, trunk)
    else:
        train(args.out, args.steps)


if __name__ == "__main__":
    main()
