"""What several test modules need: a tiny model, question files, and run folders made by hand."""

import contextlib
import copy
import functools
import json
import math
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare.stage import prepare
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, KEY, QUESTIONS, VERDICTS
from bayes_at_n.pipeline.store.runfolder import Run

Capsys = pytest.CaptureFixture[str]  # what a test prints
ROOT = Path(__file__).resolve().parent.parent
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def one_error(capsys: Capsys) -> str:
    """The one line on standard error; nothing is on standard output."""
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and err.count("\n") == 1, (out, err)
    return err


def make_tokenizer(template: str | None = CHATML, bos: bool = False) -> Any:
    """One token a byte and four control tokens; `bos`: it puts <|bos|> in front of every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<|im_end|>", "<|endoftext|>", "<|im_start|>", "<|bos|>"])
    if bos:
        raw.post_processor = processors.TemplateProcessing(
            single="<|bos|> $A", special_tokens=[("<|bos|>", raw.token_to_id("<|bos|>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token="<|bos|>" if bos else None,
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = template
    return tokenizer


def enlarge(model: Any, factor: float) -> None:
    """Multiply a model's matrices, since fresh ones make every token as likely as any."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data.mul_(factor)


def make_model(
    folder: Path, *, context: int = 512, seed: int = 0, template: str | None = CHATML
) -> Path:
    """A random two-layer Qwen3 in bf16 with a byte-level tokenizer, about 100 kB."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = make_tokenizer(template)
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=context,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    ).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_questions(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """A JSON Lines file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def demo_questions() -> list[dict[str, Any]]:
    """The demo's thirty, from the easiest on."""
    return [json.loads(line) for line in (ROOT / "demo" / "questions.jsonl").open()]


def arithmetic(count: int) -> list[dict[str, Any]]:
    """Questions 1+1, 2+2, ... with ids 1, 2, ..."""
    return [{"id": n, "problem": f"{n}+{n}?", "answer": str(2 * n)} for n in range(1, count + 1)]


# One character per attempt: its outcome, its kind of box, and how the completion ended.
KINDS = {
    "1": ("correct", "boxed", "stop"),
    "0": ("wrong", "boxed", "stop"),
    "-": ("no_answer", "no_box", "stop"),
    "(": ("no_answer", "unclosed", "stop"),
    "~": ("no_answer", "truncated", "length"),
    "u": ("unparsable", "boxed", "stop"),
    "t": ("timeout", "boxed", "stop"),
    "+": (None, None, "stop"),  # generated, not graded
}


# What a run is called changes no other setting, so Hydra need not compose for it.
NAMES = ("dataset.name", "model.name", "model.id")


def settings(*overrides: str) -> RunConfig:
    """A run of `model=custom dataset=jsonl`, composed once for overrides that recur."""
    names = dict(o.split("=", 1) for o in overrides if o.startswith(NAMES))
    if "model.id" in names:
        names.setdefault("model.name", Path(names["model.id"]).name)
    cfg = copy.deepcopy(_composed(tuple(o for o in overrides if not o.startswith(NAMES))))
    for key, value in names.items():
        group, field = key.split(".")
        setattr(getattr(cfg, group), field, value)
    return cfg


@functools.cache
def _composed(overrides: tuple[str, ...]) -> RunConfig:
    fixed = "model=custom model.id=/nowhere/tiny dataset=jsonl dataset.path=/nowhere/sums.jsonl"
    return compose.load([*fixed.split(), *overrides])


def described(folder: Path, cells: Sequence[Mapping[str, Any]]) -> None:
    """Write more cells of a run's questions, in their order."""
    file = folder / "questions.parquet"
    rows = zip(shards.read_whole(file, QUESTIONS).to_pylist(), cells, strict=True)
    shards.write_part(file, pa.Table.from_pylist([row | {**of} for row, of in rows], QUESTIONS))


def make_run(
    folder: Path,
    marks: Mapping[str, str],
    *overrides: str,
    gold: Mapping[str, str] | None = None,
    texts: Mapping[str, Sequence[str]] | None = None,
) -> Run:
    """A run folder as the stages would leave it, without an engine.

    Args:
        folder: where.
        marks: per question id one character per trial, see `KINDS`; "." is pending. A shorter line
            leaves its last trials pending.
        overrides: settings; `sampling.trials` is the longest line unless it is among them.
        gold: gold answers by question id where they matter; problem and gold answer make the
            hash that a prior run is matched by.
        texts: completions by question id, one for each mark; elsewhere all are `\\boxed{2}`.
    """
    cfg = settings(f"sampling.trials={max(map(len, marks.values()))}", *overrides)
    cfg.run_dir = str(folder)
    run = Run(cfg)
    folder.mkdir(parents=True, exist_ok=True)
    runfolder.save_config(run)
    questions = []
    for qid in marks:
        answer = (gold or {}).get(qid, "2")
        questions.append(
            {
                "question_id": qid,
                "problem": f"the problem of {qid}",
                "gold": answer,
                "question_hash": provenance.short_hash(f"{qid} {answer}"),
                "prompt": qid,
                "prompt_token_ids": [1, 2, 3],
                "prompt_logprobs": None,
                "max_tokens": 8,
            }
        )
    identity = {
        **provenance.identity(cfg),
        "questions": {q["question_id"]: q["question_hash"] for q in questions},
    }
    runfolder.write_json(run.manifest, {"format": provenance.NUMBER, "identity": identity})
    shards.write_part(
        folder / "questions.parquet", pa.Table.from_pylist(questions, schema=QUESTIONS)
    )
    add_attempts(run, marks, texts=texts)
    return run


def again(run: Run, *overrides: str) -> Run:
    """The run as its folder and these overrides describe it."""
    return Run(load_folder(run.path, list(overrides)))


def outcome_words(run: Run) -> Any:
    """The outcomes of a run's grades in words, "pending" where there is none: (M, N)."""
    return outcomes.words(outcomes.read(run).codes)


THREE = {"a": "1100", "b": "10~-", "c": "0000"}  # marks of three questions


def run_of(
    root: Path,
    name: str,
    marks: Mapping[str, str] = THREE,
    *overrides: str,
    dataset: str = "sums",
    gold: Mapping[str, str] | None = None,
) -> Run:
    """A model's run among the runs of a dataset: `root/dataset/name`, as `make_run` makes it."""
    return make_run(
        root / dataset / name,
        marks,
        f"dataset.name={dataset}",
        f"model.name={name}",
        f"model.id=/nowhere/{name}",
        *overrides,
        gold=gold,
    )


def add_attempts(
    run: Run,
    marks: Mapping[str, str],
    part: str = "00000",
    texts: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Attempts and grades parts with one row for each mark."""
    made = [
        (qid, trial, *KINDS[mark])
        for qid, line in marks.items()
        for trial, mark in enumerate(line)
        if mark != "."
    ]
    now = time.time()
    attempts = [
        {
            "question_id": qid,
            "trial": trial,
            "seed": 1234 + trial,
            "text": texts[qid][trial] if texts and qid in texts else r"\boxed{2}",
            "finish_reason": finish,
            "prompt_tokens": 3,
            "completion_tokens": 5,
            "token_ids": [1, 2, 3, 4, 5],
            "logprobs": [-0.5] * 5,
            "started": now - 2,
            "first_token": now - 1,
            "finished": now,
        }
        for qid, trial, _, _, finish in made
    ]
    grades = [
        {
            "question_id": qid,
            "trial": trial,
            "has_box": box == "boxed",
            "box": box,
            "answer": "2" if box == "boxed" else None,
            "outcome": outcome,
            "layer": "text" if box == "boxed" else "none",
            "reason": "made by hand",
        }
        for qid, trial, outcome, box, _ in made
        if outcome is not None
    ]
    done = {(row["question_id"], row["trial"]) for row in grades}
    for stem, of_grades in ((part, True), (f"{part}-ungraded", False)):
        rows = [r for r in attempts if ((r["question_id"], r["trial"]) in done) == of_grades]
        if rows:
            table = pa.Table.from_pylist(rows, schema=ATTEMPTS)
            shards.write_part(run.attempts / f"{stem}.parquet", table)
    if grades:
        add_grades(run, part, grades)


def grades(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the grades of a run by question and trial."""
    rows = [
        row
        for batch in shards.batches(run.grades, GRADES, GRADES.names, shards.Damage())
        for row in batch.to_pylist()
    ]
    return {(row["question_id"], row["trial"]): row for row in rows}


def add_grades(run: Run, stem: str, grades: Sequence[Mapping[str, Any]]) -> None:
    """The grades of a part of attempts, as `grade` would write them; without the part imported."""
    table = pa.Table.from_pylist(list(grades), schema=GRADES)
    of = [part for part in tables.parts(run.attempts) if part.stem == stem]
    if of:
        outcomes.GRADES_TABLE.write(run.path, stem, table, outcomes.grade_inputs(run), of[0].mark)
    else:
        outcomes.GRADES_TABLE.write(run.path, stem, table)


def add_verdicts(run: Run, rows: Iterable[Mapping[str, Any]]) -> None:
    """Verdicts on attempts, as if they had come with records; columns that are not said are null.

    One that is said of an attempt later replaces the one before it.
    """
    names = [name for name in VERDICTS.names if name not in KEY]
    there = outcomes.VERDICTS_TABLE.read(run, names, None).table.to_pylist()
    of = {(row["question_id"], row["trial"]): row for row in [*there, *rows]}
    ids = tables.question_ids(run)
    for part in tables.parts(run.attempts):
        keys = set(tables.keys_of(run, part).tolist())
        blank = [dict.fromkeys(VERDICTS.names) | dict(row) for row in of.values()]
        table = pa.Table.from_pylist(blank, schema=VERDICTS)
        mine = pa.array([key in keys for key in tables.encode(table, ids).tolist()], pa.bool_())
        outcomes.VERDICTS_TABLE.write(run.path, part.stem, table.filter(mine))


def change_attempts(
    run: Run, change: Callable[[dict[str, Any]], dict[str, Any]], **how: Any
) -> list[Path]:
    """Write each part anew with changed rows, beside the same grades; returns the parts."""
    for path in (paths := sorted(run.attempts.glob("*.parquet"))):
        rows = [change(row) for row in shards.read_whole(path, ATTEMPTS).to_pylist()]
        beside = run.grades / path.name
        grades = shards.read_whole(beside, GRADES).to_pylist() if beside.exists() else []
        shards.write_part(path, pa.Table.from_pylist(rows, schema=ATTEMPTS), **how)
        if grades:
            add_grades(run, path.stem, grades)
    return paths


def race(run: Callable[[int], object], processes: int = 4) -> None:
    """Run a function of its number in forks that begin together, all of which end well."""
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(processes)

    def begin(number: int) -> None:
        start.wait()
        run(number)

    racers = [fork.Process(target=begin, args=(number,)) for number in range(processes)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * processes


def ragged(rows: Sequence[Sequence[int]], width: int | None = None) -> Any:
    """Pad rows of unequal length to a masked matrix; junk lies under the mask."""
    width = max(1, *(len(row) for row in rows)) if width is None else width
    data = np.full((len(rows), width), 999)
    mask = np.ones(data.shape, dtype=bool)
    for i, row in enumerate(rows):
        data[i, : len(row)], mask[i, : len(row)] = row, False
    return np.ma.masked_array(data, mask)


def close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Equal but for rounding, relative or absolute."""
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def with_signals(run: Run, columns: Mapping[str, Sequence[Any]]) -> None:
    """Attempts, grades, verdicts and prompts from which a run has these signals."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    prompts, attempts = {row["question_id"]: row["prompt_bpt"] for row in rows}, list[Any]()
    ends = {None: None, True: "length", False: "stop"}
    for row in rows:
        key = {name: row[name] for name in KEY}
        ratio, bits, repeated = (
            row[name] for name in ("token_ratio", "completion_bpt", "repeated_pattern")
        )
        made = key | {
            "text": "",
            "finish_reason": ends[None if repeated is None else bool(repeated)],
            "completion_tokens": None if ratio is None else round(ratio * 32768),
            "logprobs": None if bits is None else [-float(bits) * math.log(2)],
        }
        attempts.append(made)
    table = pa.Table.from_pylist(attempts, ATTEMPTS)
    shards.write_part(run.attempts / "00000.parquet", table)
    outcome = {None: None, True: "correct", False: "wrong"}
    grades = [
        {name: row[name] for name in (*KEY, "has_box")}
        | {"outcome": outcome[None if row["is_correct"] is None else bool(row["is_correct"])]}
        for row in rows
    ]
    add_grades(run, "00000", grades)
    known = [{name: row[name] for name in (*KEY, *"abc")} for row in rows if row["c"] is not None]
    shutil.rmtree(run.path / "verdicts", ignore_errors=True)
    if known:
        add_verdicts(run, known)
    asked = [
        row | {"prompt_logprobs": None if bits is None else [math.nan, -float(bits) * math.log(2)]}
        for row in run.questions
        for bits in [prompts.get(row["question_id"])]
    ]
    shards.write_part(run.path / "questions.parquet", pa.Table.from_pylist(asked, QUESTIONS))
    signals.make(Run(run.cfg))


def attempt_row(trial: int, tokens: int = 20) -> dict[str, Any]:
    """Every column of an attempt."""
    return {
        "question_id": f"q-{trial % 7}",
        "trial": trial,
        "seed": 1234 + trial,
        "text": f"so \\boxed{{{trial}}}",
        "finish_reason": "stop",
        "prompt_tokens": 9,
        "completion_tokens": tokens,
        "token_ids": [trial] * tokens,
        "logprobs": [-0.25] * tokens,
        "started": 1.0,
        "first_token": 2.0,
        "finished": 3.0,
        "continued_from": None,
        "options": None,
    }


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "256k") -> Iterator[Path]:
    """A file system of its own that is soon full; needs to be allowed to mount."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("cannot mount a small tmpfs here; the limit on file size stands in for it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Setup:
    """A model, a question file and a run folder; `run(...)` is a Run with these settings."""

    def __init__(self, tiny: Path, folder: Path, questions: int = 4) -> None:
        self.model, self.questions, self.folder = tiny, folder / "sums.jsonl", folder / "run"
        write_questions(self.questions, arithmetic(questions))

    def settings(self) -> list[str]:
        return [
            "model=custom",
            f"model.id={self.model}",
            "model.name=tiny",
            "dataset=jsonl",
            f"dataset.path={self.questions}",
            "sampling.trials=4",
            "sampling.max_tokens=10",
            f"run_dir={self.folder}",
        ]

    def run(self, *overrides: str) -> Run:
        return Run(compose.load([*self.settings(), *overrides]))

    def refused(self, *overrides: str) -> str:
        """The message of a prepare that is refused and changes nothing in the folder."""
        before = {p: p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
        with pytest.raises(UserError) as caught:
            prepare(self.run(*overrides))
        assert before == {p: p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}
        assert "\n" not in str(caught.value)
        return str(caught.value)
