"""The settings of `import`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config.checks import limited
from bayes_at_n.pipeline.config.settings import bad_folder_name

KINDS = {
    "trace": "Parquet",  # one row an attempt, as in scorio-trace
    "inspect": "inspect_ai",  # .eval and JSON
    "lighteval": "lighteval",
    "evalscope": "evalscope",
    "npz": "NPZ",
    "lm_eval": "lm-evaluation-harness",
    "eee": "Every Eval Ever",
    "nemo_skills": "NeMo-Skills",
    "openai": "OpenAI's interface",  # chats, and batches of them
    "jsonl": "JSON Lines",
    "csv": "CSV",
    "runs": "this program",  # run folders of another machine
}
"""The kinds of records, as the command line calls them; `pipeline.imports.formats` reads them."""
MOST_CATEGORIES = 100


@dataclass
class ImportConfig:
    """What to import, and what the source does not say itself."""

    path: str | None = None  # file, folder, or hub id OWNER/NAME of a data set
    kind: str = limited("auto", one_of=("auto", *KINDS))
    revision: str | None = None  # of a hub id: a commit, tag or branch
    questions: str | None = None  # .jsonl of id, problem, answer; or a folder of DATASET.jsonl
    metric: str | None = None  # which value of a sample is its outcome, in other harnesses' logs
    filter: str | None = None  # lm_eval: which filter's samples count
    rubric: str = "labels"  # what the categories are called
    category_names: list[str] = field(default_factory=list)  # of categories 0..C
    category_weights: list[float] = limited([], "(-1e6, 1e6)")  # default 0, 1, ..., C
    tag: str | None = None  # ends the names of the run folders

    def problems(self) -> Iterator[str]:
        names, weights = self.category_names, self.category_weights
        if names and weights and len(names) != len(weights):
            yield f"category_weights={weights}: one for each of the {len(names)} category_names"
        if names and not 2 <= len(set(names)) == len(names) <= MOST_CATEGORIES:
            yield f"category_names={names}: must be 2 to {MOST_CATEGORIES}, each once"
        yield from bad_folder_name("tag", self.tag)


@dataclass
class RecordsConfig:
    """Records from elsewhere, and which runs they become."""

    dataset: list[str] = field(default_factory=list)  # its name, where the source has none
    model: list[str] = field(default_factory=list)  # the models' names, where it has none
    runs: str = limited("runs", named=True)  # run folders are runs/DATASET/RUN
    source: ImportConfig = field(default_factory=ImportConfig)
