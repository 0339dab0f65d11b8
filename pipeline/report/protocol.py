"""How each run of a report was sampled and graded: a table, and a line of what all runs share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.compare import differences
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run, read_json

_LONG = ("sampling.seed", "sampling.logprobs", "sampling.prompt_logprobs", "prompt.template")
_OF_SAMPLES = ("sampling.temperature", "sampling.top_p", "sampling.max_tokens")
_TITLES = {"prompt.name": "prompt", "prompt.shuffle": "options shuffled per"}
_PER_RUN = (
    "model",
    "datasets",
    "sampled",
    "model id",
    "revision",
    "bayes-at-n",
)  # not in the line of what is shared
_FIRST = ("trials per question", "seeds")  # the line has their values before their names


def protocol(*cohorts: Cohort) -> tuple[Table, str] | None:
    """Tabulate how each run was made, and list settings that all share; None if there is none."""
    of_rows = dict[str, tuple[dict[str, Any], list[str]]]()
    for cohort in cohorts:
        for member in cohort.members:
            row = {"model": member.name, "datasets": None} | _made(member.run)
            of_rows.setdefault(str(row), (row, []))[1].append(cohort.dataset)
    if not of_rows:
        return None
    several = len(cohorts) > 1
    rows = [row | {"datasets": ", ".join(of) if several else None} for row, of in of_rows.values()]
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if value is not None)
    columns = [Column(key, key, align="left" if key in _PER_RUN else "right") for key in keys]
    return Table("How this was made", columns, rows), _line(rows)


def _made(run: Run) -> dict[str, Any]:
    """Return the settings that a run folder records and that are not defaults; None: unknown."""
    cfg, manifest = run.cfg, read_json(run.manifest)
    created, generated = manifest.get("created_with", {}), manifest.get("generated", {})
    engines = [engine for engine in generated.get("engines", []) if isinstance(engine, Mapping)]
    name, known = cfg.engine.name, differences.sampling_known(run) is not False
    versions = sorted({str(e.get(name) or e.get("version") or "") for e in engines} - {""})
    settings = differences.protocol(run) | {"engine.name": None, "prompt.name": cfg.prompt.name}
    ignored = _LONG + _OF_SAMPLES * bool(cfg.sampling.likelihood)
    sampled = {
        _TITLES.get(key, key.removeprefix("sampling.")): value
        for key, value in settings.items()
        if key not in ignored and known
    }
    grader = cfg.dataset.answer if cfg.dataset.judge is None else f"judge={cfg.dataset.judge}"
    return {
        # Only the end of a path: the page may be published.
        "model id": "/".join(Path(cfg.model.id).parts[-2:]) if cfg.model.id else None,
        "revision": cfg.model.revision and cfg.model.revision[:12],
        "trials per question": cfg.sampling.trials,
        **sampled,
        "engine": " ".join([name, *versions]) if known else None,
        "dtype": cfg.model.dtype if known else None,
        "graded by": "the imported records"
        if "imported" in outcomes.grades_made_by(run)
        else grader,
        "verifier": None if cfg.verifier.id is None else cfg.verifier.name,
        "sampled": str(created.get("time") or "")[:10] or None,
        "bayes-at-n": created.get("commit"),
    }


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    """List the settings that all runs share, and name those that differ.

    >>> same = {"trials per question": 80, "temperature": 0.6, "engine": "vllm 0.32.0"}
    >>> _line([same, same | {"temperature": 1.0}])
    '80 trials per question, engine vllm 0.32.0; different: temperature'
    """
    keys = [key for key in dict.fromkeys(k for row in rows for k in row) if key not in _PER_RUN]
    values = {k: {str(row[k]) for row in rows if row.get(k) is not None} for k in keys}
    same = {key: min(texts) for key, texts in values.items() if len(texts) == 1}
    parts = [f"{v} {key}" if key in _FIRST else f"{key} {v}" for key, v in same.items()]
    other = [key for key, texts in values.items() if len(texts) > 1]
    return ", ".join(parts) + f"; different: {', '.join(other)}" * bool(other)
