"""Map the names of tasks and models in foreign records to those of this project."""

import functools
import hashlib
import re
from copy import deepcopy

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.settings import RunConfig

_LONGEST = 80  # characters of a folder name
# Tasks of the authors' records, lm-evaluation-harness and lighteval, to names in configs/dataset.
_TASKS = {
    "aime2024": "aime24",
    "aime2025": "aime25",
    **{f"aime{year}{how}": f"aime{year}" for year in (24, 25) for how in ("avg", "gpassk")},
    "hmmt25feb": "hmmt25",
    "hmmtfeb2025": "hmmt25",
    "hmmt2025": "hmmt25",
    "brumo2025": "brumo25",
    "aime2026": "aime26",
    "hmmtfeb2026": "hmmt26",
    "hmmtnov2025": "hmmt-nov25",
    "cmimc2025": "cmimc25",
    "smt2025": "smt25",
}
# Their ids count from 1, whereas records count rows from 0.
_FROM_ONE = ("brumo25", "hmmt25", "aime26", "hmmt26", "hmmt-nov25", "cmimc25", "smt25")


def dataset_name(task: str) -> str:
    """Return the dataset of a task, as a valid folder name.

    >>> dataset_name("hmmt25_feb"), dataset_name("AIME-2025"), dataset_name("my task")
    ('hmmt25', 'aime25', 'my-task-ef0a31')
    """
    plain = re.sub(r"[^a-z0-9]", "", task.lower())
    return plain if plain in _contests() else _TASKS.get(plain) or safe_name(task)


def safe_name(text: str) -> str:
    r"""Return a valid folder name, with a hash if the text had to change.

    >>> safe_name("Qwen3-4B"), safe_name("../../x")
    ('Qwen3-4B', 'x-9cdf6a')
    """
    name = re.sub(r"([^A-Za-z0-9._-]|\.\.)+", "-", text).strip("._-")[:_LONGEST]
    if name == text and name:
        return name
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{name}-{digest}" if name else f"unnamed-{digest}"


def model_name(model: str, key: str | None = None, level: str | None = None) -> str:
    """Return the name in configs/model of a record's model, else a name derived from the record's.

    A model has a hub id or any name, perhaps another name (its key), and perhaps a reasoning level.

    >>> model_name("openai/gpt-oss-20b", level="high"), model_name("Qwen/Qwen3-4B-Thinking-2507")
    ('gpt-oss-20b-high', 'qwen3-4b')
    >>> model_name("somebody/their-model"), model_name("a", level="low")
    ('their-model', 'a-low')
    """
    level = (level or "").strip().lower()
    level = "" if level in ("none", "null", "nan", "default", "-") else level
    aliases = _aliases()
    for text in (f"{model}@{level}", f"{model}@", key, f"{key}{level}", model, f"{model}{level}"):
        if text and _plain(text) in aliases:
            return aliases[_plain(text)]
    _, slash, last = model.replace("\\", "/").rstrip("/").rpartition("/")
    name = safe_name(last if slash and ".." not in model else model)
    return f"{name}-{safe_name(level)}" if level else name


def question_id(dataset: str, number: int | str) -> str:
    """Return the id of a question from its row number, from 0, or its own name.

    >>> question_id("aime25", 7), question_id("hmmt25", 0), question_id("x", "I-3")
    ('aime25-07', 'hmmt25-01', 'I-3')
    """
    if isinstance(number, str):
        return number
    return f"{dataset}-{number + (dataset in _FROM_ONE):02d}"


def run_config(dataset: str, model: str, hub_id: str) -> RunConfig:
    """Compose the settings of an imported run, from our own files for known models and datasets.

    `dataset` and `model` are from :func:`dataset_name` and :func:`model_name`.
    """
    known = dataset in _contests()
    choice = [f"dataset={dataset}"] if known else ["dataset=jsonl", "dataset.path=imported.jsonl"]
    cfg = deepcopy(_composed(*choice, "verifier=none", "model=custom", "model.id=imported"))
    cfg.model.id = hub_id or model
    if model in _aliases().values():
        cfg.model = deepcopy(_composed(f"model={model}").model)
    cfg.dataset.name, cfg.model.name = dataset, model
    cfg.model.system = cfg.model.revision = cfg.dataset.revision = None  # unknown
    return cfg


@functools.cache
def _composed(*choices: str) -> RunConfig:
    return compose.load(list(choices))


@functools.cache
def _contests() -> list[str]:
    return [name for name in compose.files("dataset") if name not in ("hub", "jsonl", "demo")]


@functools.cache
def _aliases() -> dict[str, str]:
    """Map names in records (ID@EFFORT, name, short name) to names in configs/model.

    Of several files with one id, that of the paper's Table 6 counts, which has a `table_id`.
    """
    aliases: dict[str, str] = {}
    models = {
        path: yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        for path in sorted((compose.CONFIGS / "model").glob("*.yaml"), reverse=True)
    }
    for path, model in sorted(models.items(), key=lambda item: "table_id" in item[1]):
        if "${" in str(model.get("id", "${")) or model["id"] == "???":
            continue
        effort = (model.get("chat_template_kwargs") or {}).get("reasoning_effort") or ""
        called = (f"{model['id']}@{effort}", path.stem, model.get("short_name") or path.stem)
        aliases |= dict.fromkeys(map(_plain, called), path.stem)
    return aliases


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9/.@]", "", text.lower())
