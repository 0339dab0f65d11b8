"""Convert arguments from Python to overrides of the command line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import configured
from bayes_at_n.pipeline.engines.callable import name_of
from bayes_at_n.pipeline.store import runfolder

_OF_FUNCTIONS = {
    "model": "custom",
    "verifier": "none",
    "engine.name": "callable",
    "engine.batch_size": 16,  # attempts that a kill may lose
    "sampling.seed": None,
    "sampling.logprobs": False,
    "sampling.prompt_logprobs": False,
}


def of_run(model: Any, dataset: Any, name: str | None, others: Mapping[str, Any]) -> list[str]:
    """Return the overrides of a run; write questions that are passed as rows to a file.

    For the arguments see `pipeline.api.verbs.evaluate`. Raises UserError: a function without a
    name, or an invalid question or value.
    """
    settings: dict[str, Any] = {}
    if callable(model):
        if name is None:
            raise UserError("name: no value; a model that is a function needs name=NAME")
        settings |= {**_OF_FUNCTIONS, "model.id": name_of(model)}
    elif model is not None:
        settings |= _of_group("model", model, "id", "custom")
    if name is not None:
        settings["model.name"] = name
    rows = None if isinstance(dataset, str | Mapping) else dataset
    if rows is None and dataset is not None:
        settings |= _of_group("dataset", dataset, "path", "jsonl")
        rows = settings.pop("dataset.rows", None)
    settings |= others
    if rows is None:
        return overrides(settings)
    lines = _json_lines(rows)
    settings = {"dataset": "jsonl", "dataset.path": "questions.jsonl"} | settings
    settings.setdefault("dataset.name", "questions")
    if not any("id" in row for row in rows):
        settings.setdefault("dataset.fields.id", None)  # number them
    beside = Path(configured(overrides(settings)).run_dir).expanduser().parent
    file = beside / "_questions" / f"{runfolder.short_hash(lines)}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(file, lines)
    return overrides(settings | {"dataset.path": file})


def overrides(settings: Mapping[str, Any], group: str = "") -> list[str]:
    """Return settings as KEY=VALUE, mappings key by key. Raises UserError: an unsupported type.

    >>> overrides({"model": "qwen3-4b", "sampling": {"trials": 8}, "stop": ["a,b"], "tag": None})
    ['model=qwen3-4b', 'sampling.trials=8', "stop=['a,b']", 'tag=null']
    """
    texts = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            texts += overrides(value, f"{group}{key}.")
        elif not group and isinstance(value, str) and key in compose.GROUPS:
            texts.append(f"{key}={value}")
        else:
            texts.append(f"{group}{key}={_value(key, value)}")
    return texts


def _value(key: str, value: Any) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | Path):
        return compose.quoted(str(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(_value(key, one) for one in value)}]"
    if value is None or isinstance(value, bool | int | float):
        return str(value) if isinstance(value, float) else json.dumps(value)
    raise UserError(f"{key}: {type(value).__name__} is not a setting; pass a text or a number")


def _of_group(group: str, value: Any, own: str, choice: str) -> dict[str, Any]:
    """Return a choice by name, or a group's keys, on top of `choice` if `own` is among them."""
    if isinstance(value, str):
        return {group: value}
    if not isinstance(value, Mapping):
        raise UserError(f"{group}: {type(value).__name__} is neither a name nor a dict of settings")
    keys = {f"{group}.{key}": of_key for key, of_key in value.items()}
    return {group: choice, **keys} if own in value else keys


def _json_lines(rows: Any) -> str:
    """Return questions as JSON Lines. Raises UserError: not a list of mappings of JSON values."""
    if not isinstance(rows, Sequence):
        raise UserError(
            f"dataset: {type(rows).__name__} is not a name, a dict of settings ({{'path': FILE}})"
            " or a list of dicts; for a data frame pass .to_dict('records')"
        )
    lines = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise UserError(f"dataset: question {number} is {type(row).__name__}, expected a dict")
        try:
            lines.append(json.dumps(dict(row), default=_of_numpy))
        except (TypeError, ValueError) as error:
            raise UserError(f"dataset: question {number}: {error}") from error
    return "".join(f"{line}\n" for line in lines)


def _of_numpy(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value")
