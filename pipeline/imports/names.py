"""What a foreign record calls its task and model, and what this project calls them."""

import functools
import hashlib
import re
from copy import deepcopy
from typing import Any

import yaml  # type: ignore[import-untyped]

from pipeline.config import compose
from pipeline.config.settings import ModelConfig, RunConfig

_LONGEST = 80  # characters of a folder's name
# Tasks of the authors' records and of lm-evaluation-harness, to names in configs/dataset.
_TASKS = {
    "aime2024": "aime24",
    "aime2025": "aime25",
    "hmmt25feb": "hmmt25",
    "hmmtfeb2025": "hmmt25",
    "hmmt2025": "hmmt25",
    "brumo2025": "brumo25",
}
_NO_CONTESTS = ("hub", "jsonl", "demo")  # of configs/dataset
# Data sets whose own ids count from 1, where records count rows from 0.
_FROM_ONE = ("brumo25", "hmmt25")


def dataset_name(task: str) -> str:
    """The data set that a task is of, as a name fit for a folder.

    >>> dataset_name("hmmt25_feb"), dataset_name("AIME-2025"), dataset_name("my task")
    ('hmmt25', 'aime25', 'my-task-ef0a31')
    """
    plain = re.sub(r"[^a-z0-9]", "", task.lower())
    known = [name for name in compose.choices("dataset") if name not in _NO_CONTESTS]
    if plain in known:
        return plain
    return _TASKS.get(plain) or safe_name(task)


def safe_name(text: str) -> str:
    r"""A name that can be part of a path: what had to change is told apart by a hash.

    >>> safe_name("Qwen3-4B"), safe_name("../../x")
    ('Qwen3-4B', 'x-9cdf6a')
    """
    name = re.sub(r"([^A-Za-z0-9._-]|\.\.)+", "-", text).strip("._-")[:_LONGEST]
    if name == text and name:
        return name
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{name}-{digest}" if name else f"unnamed-{digest}"


def model_name(model: str, key: str | None = None, level: str | None = None) -> str:
    """The name in configs/model of what a record calls its model, else a name made of it.

    Args:
        model: a hub id, or any name.
        key: another name for it.
        level: reasoning effort, for models that come in several.

    >>> model_name("openai/gpt-oss-20b", level="high"), model_name("Qwen/Qwen3-4B-Thinking-2507")
    ('gpt-oss-20b-high', 'qwen3-4b')
    >>> model_name("somebody/their-model"), model_name("a", level="low")
    ('their-model', 'a-low')
    """
    level = (level or "").strip().lower()
    level = "" if level in ("none", "null", "nan", "default", "-") else level
    for name, one in _configs().items():
        same = _plain(model) == _plain(one["id"])
        if same and (one["effort"] is None or one["effort"] == level):
            return name
    for text in filter(None, (key, model)):
        for name, one in _configs().items():
            if _plain(text) in (_plain(name), _plain(one["short"])) or (
                level and _plain(f"{text}{level}") == _plain(name)
            ):
                return name
    last = model.replace("\\", "/").rstrip("/").rsplit("/", 1)
    name = safe_name(last[-1]) if len(last) == 2 and ".." not in model else safe_name(model)
    return f"{name}-{safe_name(level)}" if level else name


def question_id(dataset: str, number: int | str) -> str:
    """The id of a question of which only its row, from 0, or a name of its own is known.

    >>> question_id("aime25", 7), question_id("hmmt25", 0), question_id("x", "I-3")
    ('aime25-07', 'hmmt25-01', 'I-3')
    """
    if isinstance(number, str):
        return number
    return f"{dataset}-{number + (dataset in _FROM_ONE):02d}"


def run_config(dataset: str, model: str, hub_id: str) -> RunConfig:
    """The configuration of an imported run: the project's own where it knows model and data set.

    Args:
        dataset: as :func:`dataset_name` gives it.
        model: as :func:`model_name` gives it.
        hub_id: what the record calls the model.
    """
    cfg = deepcopy(_dataset(dataset))
    cfg.model = deepcopy(_model(model)) if model in _configs() else cfg.model
    cfg.dataset.name, cfg.model.name = dataset, model
    if model not in _configs():
        cfg.model.id = hub_id or model
    return cfg


@functools.cache
def _dataset(name: str) -> RunConfig:
    """A configuration with a data set of configs/dataset, or with one of which nothing is known."""
    known = name in compose.choices("dataset") and name not in _NO_CONTESTS
    choice = [f"dataset={name}"] if known else ["dataset=jsonl", "dataset.path=imported.jsonl"]
    return compose.load([*choice, "verifier=none", "model=custom", "model.id=imported"])


@functools.cache
def _model(name: str) -> ModelConfig:
    return compose.load([f"model={name}"]).model


@functools.cache
def _configs() -> dict[str, dict[str, Any]]:
    """Per name in configs/model its hub id, short name and reasoning effort."""
    found = {}
    for path in sorted((compose.CONFIGS / "model").glob("*.yaml")):
        one = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "${" in str(one["id"]) or one["id"] == "???":
            continue
        effort = (one.get("chat_template_kwargs") or {}).get("reasoning_effort")
        short = one.get("short_name") or path.stem
        found[path.stem] = {"id": one["id"], "short": short, "effort": effort}
    return found


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9/.]", "", text.lower())
