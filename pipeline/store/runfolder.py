"""A run folder (docs/architecture.md): one dataset, one model, one sampling protocol."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import DamagedData, UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM, kind, version
from bayes_at_n.pipeline.config import trust
from bayes_at_n.pipeline.config.folder import dump, load_folder
from bayes_at_n.pipeline.config.sampling import RepetitionDetection
from bayes_at_n.pipeline.config.seeds import option_order
from bayes_at_n.pipeline.config.settings import LabelsConfig, PromptConfig, RunConfig
from bayes_at_n.pipeline.store import origin, parquet, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, QUESTIONS, below
from bayes_at_n.verifiers import LETTERS

# Settings of the model that change what is sampled or stored; prompts are hashed separately.
_MODEL_KEYS = "dtype tokenizer context system skip_special_tokens chat_template_kwargs"
_NOT_SAMPLING = ("trials", "name", "card")  # of the settings of sampling
_CAP = "sampling.max_tokens"
TRIALS = "sampling.trials", "budget"  # settings that a worker may change in a folder
# Settings that are in an identity only if they differ from these; the chosen shots are hashed.
DEFAULTS: dict[str, Any] = {
    **{"prompt.kind": "chat", "prompt.prefix": "", "prompt.stop": [], "prompt.shots": 0},
    **{"prompt.shuffle": "none", "prompt.shuffle_seed": 0, "prompt.variants": []},
    **{"engine.args": {}, "model.quantization": None, "model.reasoning_parser": None},
    **{"sampling.min_p": 0.0, "sampling.presence_penalty": 0.0, "sampling.frequency_penalty": 0.0},
    **{"sampling.repetition_penalty": 1.0, "sampling.thinking_budget": None, "sampling.stop": []},
    **{"sampling.likelihood": None, "prompt.option": PromptConfig.option},
    **{f"sampling.repetition_detection.{k}": 0 for k in asdict(RepetitionDetection())},
    "sampling.json_schema": {},
}
_ARGUMENTS = yaml.load(
    Path(trust.__file__).with_name("engine_args.yaml").read_bytes(), yaml.CSafeLoader
)
CHANGES, RESOURCES = {*_ARGUMENTS["changes"]}, {*_ARGUMENTS["resources"]}  # engine arguments
SERVER = "server.json"  # in the run folder: the reference by which a server's model is recognized
RAISED = "raised"  # in the manifest: a list of the times that the cap was raised
UNREADABLE = "prompt_logprobs_failed"  # in the manifest: `reader_versions` that failed
_ONCE: dict[str, Any] = {"labels": LabelsConfig(), "trust_parts": False, "race": None}


@dataclass(frozen=True)
class Run:
    """A run folder and its configuration."""

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
        """Return the questions table. Raises UserError: not prepared, or another format."""
        if (manifest := read_json(self.manifest)).get(origin.IDENTITY):
            origin.check_format(self.path, manifest.get(origin.FORMAT))
        file = self.path / "questions.parquet"
        try:
            rows: list[dict[str, Any]] = parquet.read_whole(file, QUESTIONS).to_pylist()
            return rows
        except FileNotFoundError:
            remedy = f"run `{PROGRAM} prepare` or `run` with the same settings first"
            raise UserError(f"{self.path}: not prepared yet; {remedy}") from None
        except parquet.DAMAGE as error:
            remedy = "delete it and run `prepare` again (attempts are kept)"
            raise UserError(f"{file}: unreadable ({error}); {remedy}") from error

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Return every (question_id, trial) of the run, trial by trial: M×N keys."""
        ids = [row["question_id"] for row in self.questions]
        return [(qid, trial) for trial in range(self.cfg.sampling.trials) for qid in ids]


def open_run(folder: Path) -> Run:
    """Open the run in a folder. Raises UserError: there is none, or its tables are no files."""
    run = Run(load_folder(folder, []))
    read_manifest(run)
    for table in ("attempts", "grades", "verdicts", "means"):
        shards.files(run.path / table)
    return run


def as_presented(cfg: RunConfig, row: Mapping[str, Any], trial: int) -> dict[str, Any]:
    """Return a row of the questions table with options and gold letter in a trial's order.

    With `prompt.shuffle=trial`, "order" has the index of the option at each position.
    """
    presented = dict(row)
    if cfg.prompt.shuffle == "trial" and row.get("choices") is not None:
        order = option_order(cfg, row["question_id"], len(row["choices"]), trial)
        presented |= {"order": order, "choices": [row["choices"][option] for option in order]}
        presented["gold"] = presented_letter(presented, row["gold"])
    return presented


def presented_letter(presented: Mapping[str, Any], answer: str) -> str:
    """Return the letter of an option in a trial's order; anything but a letter is unchanged."""
    order = presented.get("order", ())
    letters = LETTERS[: len(order)]
    return LETTERS[order.index(letters.index(answer))] if answer and answer in letters else answer


def decisive(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine arguments that change what is sampled, or may: all but resources.

    >>> decisive({"kv_cache_dtype": "fp8", "max_num_seqs": 64, "new_in_2027": 1})
    {'kv_cache_dtype': 'fp8', 'new_in_2027': 1}
    """
    return {key: value for key, value in args.items() if key not in RESOURCES}


def unknown_arguments(args: Mapping[str, Any]) -> list[str]:
    """Return the engine arguments that engine_args.yaml does not have, sorted."""
    return sorted({*args} - CHANGES - RESOURCES)


def identity(cfg: RunConfig) -> dict[str, Any]:
    """Return the settings that never change in a folder, by dotted key: no trials, no resources."""
    values = asdict(cfg.sampling)
    values["seeds"] = None if cfg.sampling.seed is None else cfg.sampling.seeds
    detection = values.pop("repetition_detection").items()
    values |= {f"repetition_detection.{k}": v for k, v in detection}
    sampling = {f"sampling.{k}": v for k, v in values.items() if k not in _NOT_SAMPLING}
    sampling |= {f"model.{k}": getattr(cfg.model, k) for k in ("quantization", "reasoning_parser")}
    optional = {f"prompt.{k}": v for k, v in asdict(cfg.prompt).items()} | sampling
    optional["engine.args"] = decisive(cfg.engine.args)
    return {
        **{k: v for k, v in sampling.items() if k not in DEFAULTS},
        **{f"model.{k}": getattr(cfg.model, k) for k in _MODEL_KEYS.split()},
        "model.engine_args": decisive(cfg.model.engine_args),
        **{k: optional[k] for k, default in DEFAULTS.items() if optional[k] != default},
        "prompt.template": cfg.prompt.template,
        **{f"{k}.name": getattr(cfg, k).name for k in ("dataset", "model", "engine")},
    }


def short_hash(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_manifest(run: Run) -> dict[str, Any]:
    """Read the manifest; empty before the first `prepare`.

    A lost or damaged manifest is restored from the attempts. Raises UserError: that is not
    possible, or the path is a folder.
    """
    fault = "no identity"
    try:
        manifest = untrusted.read_json(run.manifest)
        if isinstance(identity := manifest.get(origin.IDENTITY), dict):
            origin.check_format(run.path, manifest.get(origin.FORMAT))
            manifest.setdefault(origin.HASH, origin.hashed(origin.condensed(identity)))
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
    return origin.manifest(run.manifest, fault, files) | {RAISED: []}  # the times are lost


def claim(run: Run, identity: dict[str, Any]) -> None:
    """Write the manifest of a new folder, unless another process is faster."""
    if not read_manifest(run):
        manifest = {origin.FORMAT: origin.NUMBER, origin.IDENTITY: identity}
        digest = {origin.HASH: origin.hashed(origin.condensed(identity))}
        lease.create(run.manifest, json.dumps(manifest | digest))


def check_same(run: Run, identity: dict[str, Any], raising: bool = False) -> dict[str, Any]:
    """Compare an identity with the folder's; return the folder's manifest.

    Raises UserError: naming the differences.

    Args:
        run: the run.
        identity: settings and, under "questions" and "prompts", a hash per question id. Keys that
            only one side has are not compared, but all questions of the folder must be present.
        raising: whether the token cap may be higher than the folder's.
    """
    manifest = read_manifest(run)
    stored = dict(manifest.get(origin.IDENTITY, {}))
    if raising and raised(run, identity):
        stored[_CAP] = identity[_CAP]
    if differences := identity_differences(stored, identity):
        raise UserError(
            f"{run.path} was made with other settings: {'; '.join(differences[:6])}. Give this run"
            " its own folder (tag=NAME or run_dir=DIR), or use the original settings"
        )
    return manifest


def identity_differences(stored: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """Return the differences between a folder's identity and a command's; see `check_same`."""
    if origin.QUESTIONS in stored and "prompts" in identity:
        identity = origin.condensed(identity)
    if stored:
        args = {key: stored.get(key) for key in ("engine.args", "model.engine_args")}
        own = {key: decisive(value) for key, value in args.items() if isinstance(value, dict)}
        stored, identity = DEFAULTS | stored | own, DEFAULTS | identity
    differences = [
        f"{key} is {stored[key]!r} there and {identity[key]!r} here"
        for key in sorted((stored.keys() & identity.keys()) - {"questions", "prompts"})
        if stored[key] != identity[key]
    ]
    for noun in ("question", "prompt"):
        old, new = stored.get(f"{noun}s", {}), identity.get(f"{noun}s", {})
        gone = [qid for qid in old if qid not in new] if new else []
        changed = [qid for qid in old if qid in new and old[qid] != new[qid]]
        differences += [f"{noun} {', '.join(gone[:3])} is gone"] * bool(gone)
        differences += [f"{noun} {', '.join(changed[:3])} has changed"] * bool(changed)
    return differences


def raised(run: Run, identity: dict[str, Any]) -> tuple[int, int] | None:
    """Return a folder's token cap and the new one, if the new one is higher."""
    manifest = read_manifest(run)
    before, now = manifest.get("identity", {}).get(_CAP), identity.get(_CAP)
    if "imported" in manifest or before is None or now is None or now <= before:
        return None
    return before, now


def save_config(run: Run, cfg: RunConfig | None = None) -> None:
    """Write settings, by default the run's without one-time ones; signed if all are trusted."""
    cfg = cfg or replace(run.cfg, **_ONCE)
    text = dump(cfg)
    mark = f"# {trust.sign(text)}\n" if run.cfg.trust == cfg.trust == "true" else ""
    atomic.write_text(run.path / "config.yaml", mark + text)


def locked_settings(run: Run) -> AbstractContextManager[None]:
    """Lock the folder's settings and manifest while they are read and changed."""
    return lease.held(run.path / "prepare.lease", "changing the settings", wait=True)


def save(run: Run, *names: str) -> None:
    """Save settings in the folder, by dotted key; the command's other settings are not saved."""
    with locked_settings(run):
        stored = load_folder(run.path, [])
        before = asdict(stored)
        for name in names:
            *groups, key = name.split(".")
            target, source = (reduce(getattr, groups, cfg) for cfg in (stored, run.cfg))
            setattr(target, key, getattr(source, key))
        if asdict(stored) != before:
            save_config(run, stored)


def save_verifier(run: Run) -> None:
    """Save the verifier's settings but for `fit_temperature`, and which outcomes it decides."""
    names = {f.name for f in fields(run.cfg.verifier)} - {"fit_temperature"}
    save(run, "dataset.judge", *(f"verifier.{name}" for name in names))


def write_json(path: Path, value: Any, sync: bool = True) -> None:
    """Replace a JSON file atomically, indented; for `sync` see `atomic.replacing`."""
    atomic.write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", sync)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if the file is missing, damaged or holds something else."""
    try:
        return untrusted.read_json(path)
    except (OSError, ValueError, UserError):
        return {}


def pending(run: Run, damage: parquet.Damage | None = None) -> list[tuple[str, int]]:
    """Return the keys without a finished attempt, in order; adds to `damage`."""
    done = shards.keys(run.attempts, ATTEMPTS, damage or parquet.Damage()) - continuing(run).keys()
    return [key for key in run.keys if key not in done]


def part_suffix(run: Run) -> str:
    """Return the suffix of new files of attempts: the cap, if it was raised."""
    return f"-upto{run.cfg.sampling.max_tokens}" if was_raised(run) else ""


def was_raised(run: Run) -> bool:
    """Return whether the manifest records a raised cap."""
    try:
        return RAISED in read_manifest(run)
    except UserError:  # attempts can be read without a manifest
        return False


def continuing(run: Run, rows: list[dict[str, Any]] | None = None) -> dict[tuple[str, int], int]:
    """Return the tokens so far of attempts that continue under a raised cap, in order of `keys`.

    `rows`: questions with limits that are about to be raised.
    """
    if rows is None and not was_raised(run):
        return {}
    limits = {row["question_id"]: row["max_tokens"] for row in rows or run.questions}
    names, so_far = [*KEY, "finish_reason", "completion_tokens"], dict[tuple[str, int], int]()
    for batch in shards.batches(run.attempts, ATTEMPTS, names, parquet.Damage()):
        ids, trials, reasons, tokens = batch.columns
        short = below([limits.get(name, 0) for name in ids.to_pylist()], reasons, tokens)
        columns = (column.filter(short).to_pylist() for column in (ids, trials, tokens))
        so_far |= {(name, trial): n for name, trial, n in zip(*columns, strict=True)}
    keys = ((name, trial) for trial in range(run.cfg.sampling.trials) for name in limits)
    return {key: so_far[key] for key in keys if key in so_far}


def missing_prompt_logprobs(run: Run) -> list[dict[str, Any]]:
    """Return the questions with pending prompt log-probs, unless this engine has failed at them."""
    if not run.cfg.sampling.prompt_logprobs:
        return []
    missing = [row for row in run.questions if row["prompt_logprobs"] is None]
    failed = missing and read_json(run.manifest).get(UNREADABLE) == reader_versions(run)
    return [] if failed else missing


def reader_versions(run: Run) -> list[str | None]:
    """Return versions, and vLLM's model runner, on which reading prompts depends."""
    versions = [version(name) for row in kind(run.cfg.engine.name).needs for name in row]
    return [*versions, os.environ.get("VLLM_USE_V2_MODEL_RUNNER")]


def set_aside_attempts(run: Run, damage: parquet.Damage) -> None:
    """Set damaged parts aside. Raises DamagedData: there are some; their rows are pending."""
    journals = {p: lines for p, lines in damage.lines.items() if p.suffix == ".journal"}
    if journals:
        warn(f"attempts still being written, or incomplete: {parquet.Damage(journals)}")
    if parts := shards.set_aside(damage, ATTEMPTS):
        remedy = "set aside; their rows are pending again: run `generate` (or `run`)"
        raise DamagedData(f"attempts: {parts}; {remedy}")
