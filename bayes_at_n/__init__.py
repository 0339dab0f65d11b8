"""All of bayes-at-n under one name, so that nobody needs to import `pipeline` or `verifiers`.

>>> import bayes_at_n
>>> bayes_at_n.scoring.avg([[0, 1], [1, 1]])[0]
0.75
>>> bayes_at_n.verifiers.grade_answer("1/2", "0.5").outcome
'correct'

`evaluate`, `load_run` and `compare` are those of `pipeline`; `prompts`, `scoring` and `verifiers`
are the packages of those names. Each is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pipeline as pipeline
    import prompts as prompts
    import scoring as scoring
    import verifiers as verifiers
    from pipeline import compare as compare
    from pipeline import evaluate as evaluate
    from pipeline import load_run as load_run

__all__ = ["compare", "evaluate", "load_run", "pipeline", "prompts", "scoring", "verifiers"]


def __getattr__(name: str) -> Any:
    import pkgutil

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = f"pipeline:{name}" if name in ("compare", "evaluate", "load_run") else name
    return pkgutil.resolve_name(found)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
