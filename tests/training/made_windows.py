"""Checkpoints and finished runs of trajectories, made for tests; no engine is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from helpers import make_run
from safetensors.numpy import save_file

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import multirun as settings
from bayes_at_n.pipeline.config.multirun import TrajectoryConfig
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.training import evaluate, windows
from bayes_at_n.pipeline.training.checkpoints import fingerprint
from bayes_at_n.pipeline.training.windows import Evaluation, Series

DEMO = ROOT / "demo" / "models"


def checkpoint(folder: Path, value: float = 0.0) -> Path:
    """Weights that can be merged, though no engine would load them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen3", "architectures": ["Tiny"]}')
    save_file({"w": np.full((2, 2), value, np.float32)}, folder / "model.safetensors")
    return folder


def sums(count: int) -> list[dict[str, Any]]:
    return [{"id": f"q{n}", "problem": f"{n}+{n}?", "answer": str(2 * n)} for n in range(count)]


def ckpts(root: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        checkpoint(root / name, float(i))
    return root


SUMS = ("model=custom", "dataset=jsonl", "sampling.prompt_logprobs=false", "verifier=none")


def planned(*arguments: str) -> tuple[settings.Request[TrajectoryConfig], Series]:
    given = settings.load_trajectory(arguments)
    return given, windows.plan(given)


def finish(one: Evaluation, marks: Mapping[str, str]) -> None:
    """The folder of an evaluation as its run would leave it."""
    run = make_run(one.run.path, marks, *one.settings, f"run_dir={one.run.path}")
    identity = runfolder.read_manifest(run)["identity"]
    hashes = {q.id: q.hash for q in questions.load(one.run.cfg.dataset)[0]}
    identity["questions"] = {qid: hashes[qid] for qid in marks}
    if one.window.size == 1:
        identity["model.weights"] = fingerprint(one.window.path)
    runfolder.write_json(run.manifest, {"format": 2, "identity": identity})


def remaining(one: Evaluation) -> evaluate.Remaining:
    return evaluate.remaining(one, questions.load(one.run.cfg.dataset)[0])


def one_of(rows: Sequence[Any], **cells: Any) -> Any:
    found = [row for row in rows if all(row[key] == value for key, value in cells.items())]
    assert len(found) == 1, found
    return found[0]
