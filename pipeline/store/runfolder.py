"""A run folder (docs/architecture.md): one dataset, one model, one sampling protocol."""

import contextlib
import functools
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import DamagedData, UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM, kind, version
from bayes_at_n.pipeline.config import trust
from bayes_at_n.pipeline.config.folder import dump, load_folder
from bayes_at_n.pipeline.config.settings import RunConfig, option_order
from bayes_at_n.pipeline.config.verifier import LabelsConfig
from bayes_at_n.pipeline.store import provenance, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, QUESTIONS, below
from bayes_at_n.pipeline.store.provenance import FORMAT, HASH, IDENTITY, NUMBER
from bayes_at_n.verifiers import LETTERS

_CAP = "sampling.max_tokens"
TRIALS = "sampling.trials", "budget"  # settings that a worker may change in a folder
SERVER = "server.json"  # in the run folder: the reference by which a server's model is recognized
RAISED = "raised"  # in the manifest: a list of the times that the cap was raised
UNREADABLE = "prompt_logprobs_failed"  # in the manifest: `reader_versions` that failed
_ONCE: dict[str, Any] = {"labels": LabelsConfig(), "trust_parts": False, "race": None}
CLAIMS = "claims"  # folder of claims and heartbeats in a run folder
_warn = functools.cache(warn)  # once per command
UNPROVEN, _SUSPECT = "-unproven", ".suspect"


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
        if (manifest := read_json(self.manifest)).get(IDENTITY):
            provenance.check_format(self.path, manifest.get(FORMAT))
        file = self.path / "questions.parquet"
        try:
            rows: list[dict[str, Any]] = shards.read_whole(file, QUESTIONS).to_pylist()
            return rows
        except FileNotFoundError:
            remedy = f"run `{PROGRAM} prepare` or `run` with the same settings first"
            raise UserError(f"{self.path}: not prepared yet; {remedy}") from None
        except shards.DAMAGE as error:
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


def read_manifest(run: Run) -> dict[str, Any]:
    """Read the manifest, or restore it from the attempts; empty before the first `prepare`."""
    fault = "no identity"
    try:
        manifest = untrusted.read_json(run.manifest)
        if isinstance(identity := manifest.get(IDENTITY), dict):
            provenance.check_format(run.path, manifest.get(FORMAT))
            manifest.setdefault(HASH, provenance.hashed(provenance.condensed(identity)))
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
    return _restored(run.manifest, fault, files) | {RAISED: []}  # the times are lost


def claim(run: Run, identity: dict[str, Any]) -> None:
    """Write the manifest of a new folder, unless another process is faster."""
    if not read_manifest(run):
        manifest = {FORMAT: NUMBER, IDENTITY: identity}
        digest = {HASH: provenance.hashed(provenance.condensed(identity))}
        lease.create(run.manifest, json.dumps(manifest | digest))


def check_same(run: Run, identity: dict[str, Any], raising: bool = False) -> dict[str, Any]:
    """Compare an identity with the folder's; return the folder's manifest.

    `identity`: settings and, under "questions" and "prompts", a hash per question id. Keys of only
    one side are not compared, but all questions of the folder must be present. `raising`: the token
    cap may be higher. Raises UserError: naming the differences.
    """
    manifest = read_manifest(run)
    stored = dict(manifest.get(IDENTITY, {}))
    if raising and raised(run, identity):
        stored[_CAP] = identity[_CAP]
    if differences := provenance.differences(stored, identity):
        raise UserError(
            f"{run.path} was made with other settings: {'; '.join(differences[:6])}. Give this run"
            " its own folder (tag=NAME or run_dir=DIR), or use the original settings"
        )
    return manifest


def _restored(path: Path, fault: str, files: Sequence[Path]) -> dict[str, Any]:
    """Restore a manifest from attempts. Raises UserError: they have no identity, or several."""
    tagged = {path: of for path in files if HASH.encode() in (of := shards.metadata(path))}
    runs = {of[HASH.encode()]: path.name for path, of in tagged.items()}
    with contextlib.suppress(KeyError, ValueError, RecursionError, TypeError):
        [hash_] = runs
        file = max(tagged, key=lambda file: file.name.lstrip("_"))  # has the highest raised cap
        provenance.check_format(path.parent, int(tagged[file].get(FORMAT.encode(), b"1")))
        identity = dict(json.loads(tagged[file][IDENTITY.encode()]))
        _warn(f"{path}: {fault}; identity read from attempts/{file.name}; `prepare` restores it")
        return {FORMAT: NUMBER, HASH: hash_.decode(), IDENTITY: identity}
    if not files:
        raise UserError(f"{path}: {fault}; delete it, and run `prepare` again")
    names = f"of several runs ({', '.join(sorted(runs.values())[:3])})"
    owner = names if runs else "of an unknown run"
    raise UserError(f"{path}: {fault}, and attempts/ is {owner}; restore it from a copy")


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


def pending(run: Run, damage: shards.Damage | None = None) -> list[tuple[str, int]]:
    """Return the keys without a finished attempt, in order; adds to `damage`."""
    done = shards.keys(run.attempts, ATTEMPTS, damage or shards.Damage()) - continuing(run).keys()
    return [key for key in run.keys if key not in done]


def was_raised(run: Run) -> bool:
    """Return whether the manifest records a raised cap."""
    try:
        return RAISED in read_manifest(run)
    except UserError:  # attempts can be read without a manifest
        return False


def part_suffix(run: Run) -> str:
    """Return the suffix of new files of attempts: the cap, if it was raised."""
    return f"-upto{run.cfg.sampling.max_tokens}" if was_raised(run) else ""


def continuing(run: Run, rows: list[dict[str, Any]] | None = None) -> dict[tuple[str, int], int]:
    """Return tokens so far of attempts that a raised cap continues; `rows`: questions with it."""
    if rows is None and not was_raised(run):
        return {}
    limits = {row["question_id"]: row["max_tokens"] for row in rows or run.questions}
    names, so_far = [*KEY, "finish_reason", "completion_tokens"], dict[tuple[str, int], int]()
    for batch in shards.batches(run.attempts, ATTEMPTS, names, shards.Damage()):
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


def set_aside_attempts(run: Run, damage: shards.Damage) -> None:
    """Set damaged parts aside. Raises DamagedData: there are some; their rows are pending."""
    journals = {p: lines for p, lines in damage.lines.items() if p.suffix == ".journal"}
    if journals:
        warn(f"attempts still being written, or incomplete: {shards.Damage(journals)}")
    if parts := shards.set_aside(damage, ATTEMPTS):
        remedy = "set aside; their rows are pending again: run `generate` (or `run`)"
        raise DamagedData(f"attempts: {parts}; {remedy}")


class Totals(NamedTuple):
    """Sums over the sessions of a run."""

    sessions: int
    wall_s: float
    gpu_s: float | None  # None if no session has it
    completion_tokens: int


def alive(folder: Path) -> set[str]:
    """Return the names of the live workers of a run folder, without writing there."""
    return lease.living(folder / CLAIMS)


def heartbeat(folder: Path, worker: str) -> Path:
    """Return the file that shows that a worker of a run folder lives."""
    return folder / CLAIMS / f"{worker}{lease.SUFFIX}"


def sessions(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the latest session of every worker, by name."""
    paths = sorted((folder / "sessions").glob("*.json"))
    return {path.stem: _session(path, shards.fingerprint(path)) for path in paths}


_session = lru_cache(maxsize=1 << 14)(lambda path, _: read_json(path))  # finished ones never change


def totals(run: Run) -> Totals:
    """Return the sums over a run's sessions."""
    records = [record for record in sessions(run.path).values() if record]
    gpu_s = [record["gpu_s"] for record in records if "gpu_s" in record]
    wall_s = sum(record.get("wall_s", 0.0) for record in records)
    tokens = sum(record.get("completion_tokens", 0) for record in records)
    return Totals(len(records), wall_s, sum(gpu_s) if gpu_s else None, tokens)


def unproven(run: Run, own: str = "") -> list[Path]:
    """Return the unproven files of the worker `own` and of dead workers."""
    living = alive(run.path) - {own}
    named = (path for path in shards.files(run.attempts) if UNPROVEN in path.name)
    return [path for path in named if shards.worker_of(path) not in living]


def prove(run: Run, good: bool, own: str = "") -> None:
    """Accept unproven files if a probe was `good`, or set them aside as suspect."""
    if not good:  # seal journals of dead workers first: only parts can be suspects
        living = alive(run.path) - {own}
        shards.seal_leftovers(run.attempts, ATTEMPTS, lambda worker: worker not in living)
    for path in unproven(run, own):
        if not good:
            shards.put_aside(path, _SUSPECT)
        elif path.suffix == ".parquet":
            path.rename(path.with_name(path.name.replace(UNPROVEN, "")))


def accept_suspects(run: Run) -> None:
    """Accept all suspect and unproven files; the server's next model becomes the run's."""
    for path in run.attempts.glob(f"_*.parquet{_SUSPECT}"):
        path.rename(path.with_name(path.name[1:].removesuffix(_SUSPECT)))
    prove(run, good=True)
    (run.path / SERVER).unlink(missing_ok=True)


def suspects(run: Run) -> str:
    """Return a line on how many attempts are suspect, since when and why; empty if none are."""
    times, damage = list[float](), shards.Damage()
    for path in run.attempts.glob(f"_*.parquet{_SUSPECT}"):
        for batch in shards.read(path, ATTEMPTS, ["finished"], damage):
            times += batch["finished"].to_pylist()
    if not times:
        return ""
    since = time.strftime("%F %T", time.localtime(min(times)))
    reason = "suspect and do not count: their server had another model"
    return f"{len(times)} attempts since {since} are {reason}; trust_parts=true accepts them"
