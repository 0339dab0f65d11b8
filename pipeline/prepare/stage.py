"""prepare: questions and gold answers become rendered prompts, checked and hashed."""

import statistics
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.base.console import count, note, results, warn
from pipeline.base.environment import describe
from pipeline.base.errors import UserError
from pipeline.prepare import models, questions
from pipeline.store import outcomes, runfolder, shards
from pipeline.store.columns import QUESTIONS
from pipeline.store.runfolder import Run
from prompts import PromptError, control_tokens, fill, render, turns


def prepare(run: Run) -> None:
    """Make or check the run folder: `questions.parquet`, `config.yaml`, `manifest.json`.

    Raises:
        UserError: for whatever is wrong with the model, the data set or the folder.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    rows = build(run)
    identity = identity_of(run, rows)
    runfolder.check_same(run, identity)
    run.path.mkdir(parents=True, exist_ok=True)
    _write_questions(run, rows)
    runfolder.save_config(run)
    manifest = runfolder.read_manifest(run)
    manifest.setdefault("created_with", describe())
    manifest["identity"] = identity
    manifest["source"] = {
        "model": run.cfg.model.id,
        "dataset": run.cfg.dataset.path,
        "split": run.cfg.dataset.split,
        "dataset_revision": run.cfg.dataset.revision,
    }
    runfolder.write_json(run.manifest, manifest)
    note(f"prepared {len(rows)} questions in {run.path}")


def build(run: Run) -> list[dict[str, Any]]:
    """The rows of the questions table, without writing anything.

    Raises:
        UserError: for a problem with the data set, the model or a prompt.
    """
    cfg = run.cfg
    models.locate(cfg.model)
    loaded, mended = questions.load(cfg.dataset)
    for line in mended:
        warn(f"{cfg.dataset.name}: {line}")
    if cfg.model.trust_remote_code:
        warn(f"model.trust_remote_code=true: Python code that {cfg.model.id} brings will run")
    tokenizer = models.tokenizer(cfg.model)
    context = models.context(cfg.model)
    rows = [_row(cfg, question, tokenizer, context) for question in loaded]
    limits = [row["max_tokens"] for row in rows]
    if clamped := sum(limit < cfg.sampling.max_tokens for limit in limits):
        warn(
            f"sampling.max_tokens={cfg.sampling.max_tokens} does not fit {cfg.model.name}'s context"
            f" of {context}: clamped for {clamped} questions, down to {min(limits)}"
        )
    return rows


def identity_of(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the run is: its settings, the model's weights, every question and every prompt."""
    return {
        **runfolder.identity(run.cfg),
        "model.weights": models.fingerprint(run.cfg.model),
        "questions": {row["question_id"]: row["question_hash"] for row in rows},
        "prompts": {
            row["question_id"]: runfolder.short_hash(str(row["prompt_token_ids"])) for row in rows
        },
    }


def _row(cfg: Any, question: questions.Question, tokenizer: Any, context: int) -> dict[str, Any]:
    if control := control_tokens(tokenizer, question.problem):
        raise UserError(
            f"{question.id}: the problem contains {' '.join(control[:3])}, which"
            f" {cfg.model.name} reads as control tokens and not as text; write it otherwise (a"
            " space inside is enough) or leave the question out of the data set"
        )
    model = cfg.model
    text = fill(cfg.prompt.template, question.problem)
    chat = turns(text, model.system, cfg.prompt.system_role)
    try:
        prompt = render(tokenizer, chat, model.chat_template_kwargs, date=model.template_date)
    except PromptError as error:
        remedy = "; if it refuses the system role, set prompt.system_role=user"
        has_role = model.system is not None and cfg.prompt.system_role == "system"
        raise UserError(f"{question.id}, model {model.id}: {error}{remedy * has_role}") from error
    room = context - len(prompt.token_ids)
    if room < 1:
        raise UserError(
            f"{question.id}: the prompt has {len(prompt.token_ids)} tokens, the context of"
            f" {model.name} only {context}; use a model with a longer context, or leave the"
            " question out of the data set"
        )
    return {
        "question_id": question.id,
        "problem": question.problem,
        "gold": question.gold,
        "question_hash": question.hash,
        "prompt": prompt.text,
        "prompt_token_ids": prompt.token_ids,
        "prompt_logprobs": None,
        "max_tokens": min(room, cfg.sampling.max_tokens),
    }


def _write_questions(run: Run, rows: list[dict[str, Any]]) -> None:
    """Write the table if it says something new: a worker may be adding log-probs to it."""
    path = run.path / "questions.parquet"
    earlier: list[dict[str, Any]] = []
    if path.exists():
        try:
            earlier = shards.read_table(path, QUESTIONS)
        except (pa.ArrowException, OSError, ValueError):
            warn(f"{path}: unreadable, made anew; its prompt log-probs are owed again")
    logprobs = {row["question_id"]: row["prompt_logprobs"] for row in earlier}
    if [row | {"prompt_logprobs": None} for row in earlier] != rows:
        write(path, [row | {"prompt_logprobs": logprobs.get(row["question_id"])} for row in rows])


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the questions table atomically."""
    shards.write_part(path, pa.Table.from_pylist(rows, schema=QUESTIONS))


def preview(run: Run) -> None:
    """Print the first prompt, what is owed, and what that may cost; writes nothing.

    Raises:
        UserError: whatever `prepare` would refuse.
    """
    rows = build(run)
    runfolder.check_same(run, identity_of(run, rows))
    planned = len(rows) * run.cfg.sampling.trials
    usage = outcomes.usage(run, [row["question_id"] for row in rows])
    owed = planned - usage.attempts
    mean, basis = usage.completion_mean, f"mean of {usage.attempts} attempts so far"
    if not mean:
        mean = statistics.fmean(row["max_tokens"] for row in rows)
        basis = "upper limit, sampling.max_tokens"
    tokens = owed * mean
    # Ids and log-probs take 8 bytes a token; text of mathematics about 3 bytes a token.
    size = f"{count(tokens)} tokens ({basis}), {count(11 * tokens)}B on disk before compression"
    longest = max(len(row["prompt_token_ids"]) for row in rows)
    results.print(f"first prompt ({rows[0]['question_id']}, gold answer {rows[0]['gold']}):")
    results.print(textwrap.indent(rows[0]["prompt"], "  | ", lambda line: True))
    results.print(f"questions: {len(rows)}, prompts of up to {longest} tokens")
    results.print(f"owed: {owed} of {planned} attempts, into {run.path}")
    results.print(f"estimate: {size}")
