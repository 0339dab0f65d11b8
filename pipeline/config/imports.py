"""The settings of `import`."""

from dataclasses import dataclass, field
from functools import partial

from pipeline.config import overrides
from pipeline.config.checks import limited


@dataclass
class ImportConfig:
    """What to import, and what the source does not say itself."""

    path: str | None = None  # file, folder, or hub id OWNER/NAME of a data set
    kind: str = "auto"  # or trace, npz, lm_eval, jsonl, csv
    revision: str | None = None  # of a hub id: a commit, tag or branch
    questions: str | None = None  # .jsonl of id, problem, answer; or a folder of DATASET.jsonl
    metric: str | None = None  # lm_eval: which value of a sample is its outcome
    filter: str | None = None  # lm_eval: which filter's samples count
    rubric: str = "labels"  # what the categories are called
    category_names: list[str] = field(default_factory=list)  # of categories 0..C
    category_weights: list[float] = field(default_factory=list)  # default 0, 1, ..., C
    tag: str | None = None  # ends the names of the run folders


@dataclass
class RecordsConfig:
    """Records from elsewhere, and which runs they become."""

    dataset: list[str] = field(default_factory=list)  # its name, where the source has none
    model: list[str] = field(default_factory=list)  # the models' names, where it has none
    runs: str = limited("runs", named=True)  # run folders are runs/DATASET/RUN
    source: ImportConfig = field(default_factory=ImportConfig)


load = partial(overrides.load, RecordsConfig)
"""From the command line; UserError says what cannot be."""
