"""Run folders (docs/architecture.md): one data set, one model, one sampling protocol."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.environment import version
from bayes_at_n.pipeline.base.errors import DamagedData, UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config import trust
from bayes_at_n.pipeline.config.folder import dump, load_folder
from bayes_at_n.pipeline.config.seeds import option_order
from bayes_at_n.pipeline.config.settings import LabelsConfig, RunConfig
from bayes_at_n.pipeline.store import origin, parquet, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, QUESTIONS, below
from bayes_at_n.verifiers import LETTERS

# Of the model's settings those that change what is sampled or stored; prompts are hashed.
_MODEL_KEYS = """dtype tokenizer context system engine_args skip_special_tokens
    chat_template_kwargs"""
# Engine arguments that only say how a machine is used; others may change what is sampled.
_RESOURCES = """block_size cpu_offload_gb device_map disable_log_stats distributed_executor_backend
    enable_chunked_prefill enable_prefix_caching enforce_eager gpu_memory_utilization max_num_seqs
    kv_cache_memory_bytes kv_offloading_size max_memory max_num_batched_tokens swap_space
    num_gpu_blocks_override pipeline_parallel_size tensor_parallel_size"""
_CAP = "sampling.max_tokens"
TRIALS = "sampling.trials", "budget"  # settings that a worker may change in a folder
# Settings that an identity names only where they are others than these; which shots is hashed.
DEFAULTS: dict[str, Any] = {"prompt.kind": "chat", "prompt.prefix": "", "prompt.stop": []}
DEFAULTS |= {"prompt.shots": 0, "prompt.shuffle": "none", "prompt.shuffle_seed": 0}
DEFAULTS["engine.args"] = {}
SERVER = "server.json"  # in the run folder: how the server answered that the run began with
RAISED = "raised"  # in the manifest: every time that the cap was, a list
UNREADABLE = "prompt_logprobs_failed"  # in the manifest: `reader_versions` of one that failed
_ONCE: dict[str, Any] = {"labels": LabelsConfig(), "trust_parts": False, "race": None}


@dataclass(frozen=True)
class Run:
    """A run folder and the configuration it is used with."""

    cfg: RunConfig

    @property
    def path(self) -> Path:
        return Path(self.cfg.run_dir).expanduser()

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    @property
    def grades(self) -> Path:
        return self.path / "grades"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @cached_property
    def questions(self) -> list[dict[str, Any]]:
        """The rows of questions.parquet. Raises UserError: none, or a folder of another format."""
        if (manifest := read_json(self.manifest)).get(origin.IDENTITY):
            origin.check_format(self.path, manifest.get(origin.FORMAT))
        file = self.path / "questions.parquet"
        try:
            rows: list[dict[str, Any]] = parquet.whole(file, QUESTIONS).to_pylist()
            return rows
        except FileNotFoundError:
            remedy = f"run `{PROGRAM} prepare` or `run` with the same settings first"
            raise UserError(f"{self.path}: not prepared yet; {remedy}") from None
        except parquet.DAMAGE as error:
            remedy = "delete it and run `prepare` again, attempts are kept"
            raise UserError(f"{file}: unreadable ({error}); {remedy}") from error

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Every (question_id, trial) of the run, trial by trial: M×N keys."""
        ids = [row["question_id"] for row in self.questions]
        return [(qid, trial) for trial in range(self.cfg.sampling.trials) for qid in ids]


def open_run(folder: Path) -> Run:
    """Open the run of any folder. Raises UserError: it holds none, or no file where one belongs."""
    run = Run(load_folder(folder, []))
    read_manifest(run)
    for table in ("attempts", "grades", "verdicts", "means"):
        shards.files(run.path / table)
    return run


def as_presented(cfg: RunConfig, row: Mapping[str, Any], trial: int) -> dict[str, Any]:
    """Return a row of the questions table with options and gold letter as a trial saw them.

    With `prompt.shuffle=trial`, "order" says which option stood at each place of its prompt.
    """
    shown = dict(row)
    if cfg.prompt.shuffle == "trial" and row.get("choices") is not None:
        places = option_order(cfg, row["question_id"], len(row["choices"]), trial)
        shown |= {"order": places, "choices": [row["choices"][place] for place in places]}
        shown["gold"] = presented_letter(shown, row["gold"])
    return shown


def presented_letter(shown: Mapping[str, Any], answer: str) -> str:
    """Return the letter that an attempt saw at an option; what is no letter stays."""
    places = shown.get("order", ())
    known = LETTERS[: len(places)]
    return LETTERS[places.index(known.index(answer))] if answer and answer in known else answer


def identity(cfg: RunConfig) -> dict[str, Any]:
    """Return the settings that never change in a folder, by dotted key: no trials, no resources."""
    free = () if kind(cfg.engine.name).served else _RESOURCES.split()  # a server's are of requests
    sampling = {k: v for k, v in asdict(cfg.sampling).items() if k not in ("trials", "name")}
    sampling["seeds"] = None if cfg.sampling.seed is None else cfg.sampling.seeds
    optional = {f"prompt.{k}": v for k, v in asdict(cfg.prompt).items()}
    optional["engine.args"] = {k: v for k, v in cfg.engine.args.items() if k not in free}
    return {
        **{f"sampling.{k}": v for k, v in sampling.items()},
        **{f"model.{k}": getattr(cfg.model, k) for k in _MODEL_KEYS.split()},
        **{k: optional[k] for k, default in DEFAULTS.items() if optional[k] != default},
        "prompt.template": cfg.prompt.template,
        **{f"{k}.name": getattr(cfg, k).name for k in ("dataset", "model", "engine")},
    }


def short_hash(text: str) -> str:
    """First 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_manifest(run: Run) -> dict[str, Any]:
    """Read the manifest; empty before the first `prepare`.

    Where it is lost or damaged, what attempts say of the run. Raises UserError: they say nothing,
    or a folder is in its place.
    """
    fault = "no identity"
    try:
        manifest = untrusted.read_json(run.manifest)
        if isinstance(made := manifest.get(origin.IDENTITY), dict):
            origin.check_format(run.path, manifest.get(origin.FORMAT))
            manifest.setdefault(origin.HASH, origin.hashed(origin.condensed(made)))
            return manifest
    except FileNotFoundError:
        fault = "missing"
    except (ValueError, UserError) as error:
        if run.manifest.is_dir():
            raise
        fault = one_line(error)
    files = shards.files(run.attempts)
    if not files and fault == "missing":
        return {}
    return origin.manifest(run.manifest, fault, files) | {RAISED: []}  # as far as is known


def claim(run: Run, identity: dict[str, Any]) -> None:
    """Say in a folder that is new what its run is; of several at once the first does."""
    if not read_manifest(run):
        manifest = {origin.FORMAT: origin.NUMBER, origin.IDENTITY: identity}
        its = {origin.HASH: origin.hashed(origin.condensed(identity))}
        lease.create(run.manifest, json.dumps(manifest | its))


def check_same(run: Run, identity: dict[str, Any], raising: bool = False) -> dict[str, Any]:
    """Compare an identity with the folder's, and return the folder's manifest.

    `identity` holds settings and, under "questions" and "prompts", a hash per question id. Keys
    that only one side has are not compared, but the folder's questions must all be there; with
    `raising` the cap may be higher. Raises UserError: naming the differences.
    """
    manifest = read_manifest(run)
    there = dict(manifest.get(origin.IDENTITY, {}))
    if raising and raised(run, identity):
        there[_CAP] = identity[_CAP]
    if differences := identity_differences(there, identity):
        raise UserError(
            f"{run.path} was made with other settings: {'; '.join(differences[:6])}. Give this run"
            " a folder of its own (tag=NAME or run_dir=DIR), or use the settings it was made with"
        )
    return manifest


def identity_differences(there: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """Name what differs between the identities of a folder and of a command, as `check_same`."""
    if origin.QUESTIONS in there and "prompts" in identity:
        identity = origin.condensed(identity)
    if there:
        there, identity = DEFAULTS | there, DEFAULTS | identity
    differences = [
        f"{key} is {there[key]!r} there and {identity[key]!r} here"
        for key in sorted((there.keys() & identity.keys()) - {"questions", "prompts"})
        if there[key] != identity[key]
    ]
    for noun in ("question", "prompt"):
        old, new = there.get(f"{noun}s", {}), identity.get(f"{noun}s", {})
        gone = [qid for qid in old if qid not in new] if new else []
        changed = [qid for qid in old if qid in new and old[qid] != new[qid]]
        differences += [f"{noun} {', '.join(gone[:3])} is gone"] * bool(gone)
        differences += [f"{noun} {', '.join(changed[:3])} has changed"] * bool(changed)
    return differences


def raised(run: Run, identity: dict[str, Any]) -> tuple[int, int] | None:
    """The cap that a folder was made with and a higher one that is asked for now, if it is one."""
    manifest = read_manifest(run)
    before, now = manifest.get("identity", {}).get(_CAP), identity.get(_CAP)
    if "imported" in manifest or before is None or now is None or now <= before:
        return None
    return before, now


def save_config(run: Run, there: RunConfig | None = None) -> None:
    """Write settings: those in use, but for what holds once; marked if all are the user's."""
    cfg = there or replace(run.cfg, **_ONCE)
    text = dump(cfg)
    own = f"# {trust.sign(text)}\n" if run.cfg.trust == cfg.trust == "true" else ""
    atomic.write_text(run.path / "config.yaml", own + text)


def locked_settings(run: Run) -> AbstractContextManager[None]:
    """Hold what the folder says of its settings, while it is read and changed."""
    return lease.held(run.path / "prepare.lease", "changing the settings", wait=True)


def save(run: Run, *names: str) -> None:
    """Save these settings in the folder, by dotted key; the rest is this command's own."""
    with locked_settings(run):
        there = load_folder(run.path, [])
        before = asdict(there)
        for name in names:
            *groups, key = name.split(".")
            of_folder, own = (reduce(getattr, groups, cfg) for cfg in (there, run.cfg))
            setattr(of_folder, key, getattr(own, key))
        if asdict(there) != before:
            save_config(run, there)


def save_verifier(run: Run) -> None:
    """Save the verifier, but for a fit of T, and which outcomes it decides."""
    names = {f.name for f in fields(run.cfg.verifier)} - {"fit_temperature"}
    save(run, "dataset.judge", *(f"verifier.{name}" for name in names))


def write_json(path: Path, value: Any, sync: bool = True) -> None:
    """Replace a JSON file atomically, indented for people; for `sync` see `atomic.replacing`."""
    atomic.write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", sync)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one when the file is missing, damaged or holds something else."""
    try:
        return untrusted.read_json(path)
    except (OSError, ValueError, UserError):
        return {}


def pending(run: Run, damage: parquet.Damage | None = None) -> list[tuple[str, int]]:
    """List the keys without a finished attempt; `damage` gets what is unreadable."""
    done = shards.keys(run.attempts, ATTEMPTS, damage or parquet.Damage()) - continuing(run).keys()
    return [key for key in run.keys if key not in done]


def part_suffix(run: Run) -> str:
    """Name the cap in names of new files of attempts, where it was raised."""
    return f"-upto{run.cfg.sampling.max_tokens}" if was_raised(run) else ""


def was_raised(run: Run) -> bool:
    """Return whether the manifest says that the cap was raised."""
    try:
        return RAISED in read_manifest(run)
    except UserError:  # what is there can be read all the same
        return False


def continuing(run: Run, rows: list[dict[str, Any]] | None = None) -> dict[tuple[str, int], int]:
    """Return the tokens so far of attempts that a raised cap lets go on, in the order of `keys`.

    `rows`: the questions with limits that are not raised yet, but will be.
    """
    if rows is None and not was_raised(run):
        return {}
    limits = {row["question_id"]: row["max_tokens"] for row in rows or run.questions}
    names, found = [*KEY, "finish_reason", "completion_tokens"], dict[tuple[str, int], int]()
    for batch in shards.batches(run.attempts, ATTEMPTS, names, parquet.Damage()):
        ids, trials, reasons, tokens = batch.columns
        short = below([limits.get(name, 0) for name in ids.to_pylist()], reasons, tokens)
        columns = (column.filter(short).to_pylist() for column in (ids, trials, tokens))
        found |= {(name, trial): n for name, trial, n in zip(*columns, strict=True)}
    keys = ((name, trial) for trial in range(run.cfg.sampling.trials) for name in limits)
    return {key: found[key] for key in keys if key in found}


def missing_prompt_logprobs(run: Run) -> list[dict[str, Any]]:
    """The questions whose prompt log-probs are pending, which the same engine has not failed at."""
    if not run.cfg.sampling.prompt_logprobs or "prompt_logprobs" in run.cfg.engine.allow_missing:
        return []
    missing = [row for row in run.questions if row["prompt_logprobs"] is None]
    return (
        []
        if missing and read_json(run.manifest).get(UNREADABLE) == reader_versions(run)
        else missing
    )


def reader_versions(run: Run) -> list[str | None]:
    """Return what decides whether an engine can read prompts: versions, vLLM's choice of runner."""
    versions = [version(name) for row in kind(run.cfg.engine.name).needs for name in row]
    return [*versions, os.environ.get("VLLM_USE_V2_MODEL_RUNNER")]


def set_aside_attempts(run: Run, damage: parquet.Damage) -> None:
    """Set damaged parts aside. Raises DamagedData: there were some, whose rows are pending."""
    journals = {p: lines for p, lines in damage.lines.items() if p.suffix == ".journal"}
    if journals:
        warn(f"attempts still being written, or torn: {parquet.Damage(journals)}")
    if parts := shards.set_aside(damage, ATTEMPTS):
        remedy = "set aside, those rows are pending again: run `generate` (or `run`)"
        raise DamagedData(f"attempts: {parts}; {remedy}")
