"""Whether scores are those of what is there now; imported by `status`, so it takes no SciPy."""

from dataclasses import asdict
from pathlib import Path

from bayes_at_n.pipeline.config.scoring import own_metrics
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import origin, runfolder, tables
from bayes_at_n.pipeline.store.runfolder import Run

VERSION = 5  # raise it whenever scores change
MADE_FROM = "made_from"  # in scores.json


def made_from(run: Run) -> str:
    """Hash all that scores are made from: their version, settings, and what was read of files."""
    sessions = sorted(f"sessions/{path.name}" for path in (run.path / "sessions").glob("*.json"))
    beside = ("categories", "thresholds.json", "manifest.json", *sessions)
    beside += tuple(f"labels/{p.name}" for p in sorted((run.path / "labels").glob("*.[jn]*")))
    settings = asdict(run.cfg) | {"trust": None, "labels": None}  # are words of this command
    made = [VERSION, settings, signals.made_from(run), tables.marks(run.path, *beside)]
    for file in map(Path, own_metrics(run.cfg.scoring.metrics)):
        path = file.expanduser()
        made.append(path.read_text(errors="replace") if path.is_file() else None)
    if run.cfg.prior.run is not None:
        folder = Path(run.cfg.prior.run).expanduser()
        sources = (*signals.SOURCES, "config.yaml")
        made += [tables.marks(of, *sources) for of in (folder, folder / run.path.name)]
    return origin.hashed(made)


def is_current(run: Run) -> bool:
    """Return whether `scores.json` is what the stage would make now."""
    scores = runfolder.read_json(run.path / "scores.json")
    return scores.get(MADE_FROM) == made_from(run) and (run.path / "matrix.npz").exists()


def stale(run: Run) -> dict[Path, str]:
    """Return `scores.json` where the stage would make another one now, under the same name."""
    path = run.path / "scores.json"
    named = runfolder.read_json(path).get("run") == str(run.path)
    why = "made from other tables or settings than the folder's"  # such as typed with `score`
    return {path: why} if named and not is_current(run) else {}
