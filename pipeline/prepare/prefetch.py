"""prefetch: bring model, data set and verifier onto this machine, and say what is where."""

from typing import Any

from bayes_at_n.pipeline.base.console import note, results
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.config.settings import OFFICIAL, verifier_as_model
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import models, official_prompt, questions, shots
from bayes_at_n.pipeline.store.runfolder import Run


def prefetch(run: Run) -> None:
    """Download what a run needs into the Hugging Face cache; a second call finds it there.

    Compute nodes without a network then run with ``HF_HUB_OFFLINE=1`` and the same ``HF_HOME``.
    Raises UserError: when something cannot be had.
    """
    model, dataset, verifier = run.cfg.model, run.cfg.dataset, run.cfg.verifier
    found: dict[str, Any] = {"model": models.download(model)}
    results.print(f"model    {model.id}: {found['model']}")
    loaded, _ = questions.load(dataset)
    shots.load(run.cfg)
    where = find_local(dataset.path) or "in the Hugging Face cache"
    results.print(f"dataset  {dataset.path}: {len(loaded)} questions, {where}")
    found |= {"dataset": where, "questions": len(loaded)}
    if verifier.id is not None:
        found["verifier"] = models.download(verifier_as_model(run.cfg).model)
        results.print(f"verifier {verifier.id}: {found['verifier']}")
        if verifier.prompt == OFFICIAL:
            found["prompt"] = official_prompt.fetch(verifier.official)
            results.print(f"prompt   {verifier.official}: {found['prompt']}")
    answer(found)
    note("on nodes without a network: export HF_HUB_OFFLINE=1, with the same HF_HOME as here")
