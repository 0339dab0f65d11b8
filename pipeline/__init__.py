"""Sample, grade and score reasoning models: N trials of every question, Bayes@N at the end.

The command line is ``python -m pipeline VERB``; see `pipeline.cli.main`. From Python the same:
`evaluate`, `load_run` and `compare` of `pipeline.api`, imported when they are asked for. Each stage
is a package whose `stage.py` has one public function that takes a `pipeline.store.runfolder.Run`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api.verbs import compare as compare
    from pipeline.api.verbs import evaluate as evaluate
    from pipeline.api.verbs import load_run as load_run

_API = ("compare", "evaluate", "load_run")


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pkgutil

    return pkgutil.resolve_name(f"pipeline.api.verbs:{name}")  # statistics and Arrow take a second


def __dir__() -> list[str]:
    return [*globals(), *_API]
