"""What the verbs are given from Python, as the settings that the command line has."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import configured
from bayes_at_n.pipeline.engines.callable import called
from bayes_at_n.pipeline.store import runfolder

_OF_FUNCTIONS = {
    "model": "custom",
    "verifier": "none",
    "engine.name": "callable",
    "engine.batch_size": 16,  # what a kill may cost
    "sampling.seed": None,
    "sampling.logprobs": False,
    "sampling.prompt_logprobs": False,
}


def settings(model: Any, dataset: Any, name: str | None, others: Mapping[str, Any]) -> list[str]:
    """The settings of a run; see `pipeline.api.verbs.evaluate`. Questions that are rows get a file.

    Raises UserError: a function without a name, a question or a value that cannot be one.
    """
    found: dict[str, Any] = {}
    if callable(model):
        if name is None:
            raise UserError("name: no value; a function is evaluated under a name that you give it")
        found |= {**_OF_FUNCTIONS, "model.id": called(model)}
    elif model is not None:
        found |= _of_group("model", model, "id", "custom")
    if name is not None:
        found["model.name"] = name
    rows = None if isinstance(dataset, str | Mapping) else dataset
    if rows is None and dataset is not None:
        found |= _of_group("dataset", dataset, "path", "jsonl")
        rows = found.pop("dataset.rows", None)
    found |= others
    if rows is None:
        return texts(found)
    lines = _lines(rows)
    found = {"dataset": "jsonl", "dataset.path": "questions.jsonl"} | found
    found.setdefault("dataset.name", "questions")
    if not any("id" in row for row in rows):
        found.setdefault("dataset.fields.id", None)  # they are numbered
    beside = Path(configured(texts(found)).run_dir).expanduser().parent
    file = beside / "_questions" / f"{runfolder.short_hash(lines)}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(file, lines)
    return texts(found | {"dataset.path": file})


def _of_group(group: str, given: Any, own: str, choice: str) -> dict[str, Any]:
    """A choice by its name; or keys, of `choice` where `own` is one, else of the usual choice."""
    if isinstance(given, str):
        return {group: given}
    if not isinstance(given, Mapping):
        raise UserError(f"{group}: {type(given).__name__} is no name and no dict of settings")
    keys = {f"{group}.{key}": value for key, value in given.items()}
    return {group: choice, **keys} if own in given else keys


def _lines(rows: Any) -> str:
    """Questions as JSON Lines. Raises UserError: no list of mappings that JSON can hold."""
    if not isinstance(rows, Sequence):
        raise UserError(
            f"dataset: {type(rows).__name__} is no name, no dict of settings ({{'path': FILE}}) and"
            " no list of dicts; of a data frame give .to_dict('records')"
        )
    lines = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise UserError(f"dataset: question {number} is {kind}, expected a dict")
        try:
            lines.append(json.dumps(dict(row), default=_plain))
        except (TypeError, ValueError) as error:
            raise UserError(f"dataset: question {number}: {error}") from error
    return "".join(f"{line}\n" for line in lines)


def _plain(value: Any) -> Any:
    """What NumPy holds as Python does."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def texts(given: Mapping[str, Any], group: str = "") -> list[str]:
    """Settings as the command line has them: KEY=VALUE, mappings taken apart.

    Raises UserError: a value that no setting can have.

    >>> texts({"model": "qwen3-4b", "sampling": {"trials": 8}, "stop": ["a,b"], "tag": None})
    ['model=qwen3-4b', 'sampling.trials=8', "stop=['a,b']", 'tag=null']
    """
    found = []
    for key, value in given.items():
        if isinstance(value, Mapping):
            found += texts(value, f"{group}{key}.")
        elif not group and isinstance(value, str) and key in compose.GROUPS:
            found.append(f"{key}={value}")
        else:
            found.append(f"{group}{key}={_text(key, value)}")
    return found


def _text(key: str, value: Any) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | Path):
        return compose.quoted(str(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(_text(key, one) for one in value)}]"
    if value is None or isinstance(value, bool | int | float):
        return str(value) if isinstance(value, float) else json.dumps(value)
    raise UserError(f"{key}: {type(value).__name__} cannot be a setting; give a text or a number")
