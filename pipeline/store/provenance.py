"""The identity of a run: settings that never change in its folder, and hashes of them.

It is in the manifest and in the metadata of files of attempts, from which a lost manifest is
restored.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import trust
from bayes_at_n.pipeline.config.protocol import PromptConfig, RepetitionDetection
from bayes_at_n.pipeline.config.settings import RunConfig

HASH, IDENTITY = "identity_hash", "identity"  # keys of the manifest and of files' metadata
QUESTIONS = "questions_hash"  # in a file's identity: hash of all questions and prompts
FORMAT, NUMBER = "format", 2  # of run folders
_READERS = {1: "596fca5"}  # the last commit that reads a format
# Settings of the model that change what is sampled or stored; prompts are hashed separately.
_MODEL_KEYS = "dtype tokenizer context system skip_special_tokens chat_template_kwargs"
_NOT_SAMPLING = ("trials", "name", "card")  # of the settings of sampling
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
_FILE = Path(trust.__file__).with_name("engine_args.yaml")
_ARGUMENTS = yaml.load(_FILE.read_bytes(), yaml.CSafeLoader)
CHANGES, RESOURCES = {*_ARGUMENTS["changes"]}, {*_ARGUMENTS["resources"]}  # engine arguments


def short_hash(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def condensed(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity with one hash instead of those of all questions and prompts."""
    rest = {k: v for k, v in identity.items() if k not in ("questions", "prompts")}
    return {QUESTIONS: hashed([identity.get("questions"), identity.get("prompts")])} | rest


def hashed(value: Any) -> str:
    """Return the first 16 hex digits of the SHA-256 of a value's JSON, keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def part_metadata(manifest: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the metadata for new files of attempts of the run with this manifest."""
    text = json.dumps(condensed(manifest[IDENTITY]))
    entries = {HASH: str(manifest[HASH]), IDENTITY: text, FORMAT: str(NUMBER)}
    return {key.encode(): value.encode() for key, value in entries.items()}


def check_format(folder: Path, number: Any) -> None:
    """Raise UserError if this version does not read a run folder's format; None: format 1."""
    number = 1 if number is None else number
    if number != NUMBER:
        reader = f"commit {_READERS[number]}" if number in _READERS else "a later version"
        line = f"has format {number}, which {reader} reads; this version reads {NUMBER}"
        raise UserError(f"{folder}: {line}")


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


def differences(stored: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """Return the differences between a folder's identity and a command's; see `check_same`."""
    if QUESTIONS in stored and "prompts" in identity:
        identity = condensed(identity)
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
