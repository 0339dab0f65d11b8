"""prefetch: bring model, data set and verifier onto this machine, and say what is where."""

from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import note, results
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.config.settings import OFFICIAL, ModelConfig, verifier_as_model
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import models, official_prompt, questions, shots
from bayes_at_n.pipeline.prepare.hub import from_hub
from bayes_at_n.pipeline.store.runfolder import Run

# Weights are stored twice in many repositories; vLLM and transformers read safetensors.
_UNUSED = ["*.pth", "*.pt", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*"]


def prefetch(run: Run) -> None:
    """Download what a run needs into the Hugging Face cache; a second call finds it there.

    Compute nodes without a network then run with ``HF_HUB_OFFLINE=1`` and the same ``HF_HOME``.
    Raises UserError: when something cannot be had.
    """
    model, dataset, verifier = run.cfg.model, run.cfg.dataset, run.cfg.verifier
    found: dict[str, Any] = {"model": weights(model)}
    results.print(f"model    {model.id}: {found['model']}")
    loaded, _ = questions.load(dataset)
    shots.load(run.cfg)
    where = find_local(dataset.path) or "in the Hugging Face cache"
    results.print(f"dataset  {dataset.path}: {len(loaded)} questions, {where}")
    found |= {"dataset": where, "questions": len(loaded)}
    if verifier.id is not None:
        found["verifier"] = weights(verifier_as_model(run.cfg).model)
        results.print(f"verifier {verifier.id}: {found['verifier']}")
        if verifier.prompt == OFFICIAL:
            found["prompt"] = official_prompt.fetch(verifier.official)
            results.print(f"prompt   {verifier.official}: {found['prompt']}")
    answer(found)
    note("on nodes without a network: export HF_HUB_OFFLINE=1, with the same HF_HOME as here")


def weights(model: ModelConfig) -> Path:
    """The folder of a model: a local one, or a snapshot of a hub id, with .bin only if need be."""
    from huggingface_hub import snapshot_download

    name = models.locate(model)
    if (folder := Path(name)).is_dir():
        return folder
    remedy = "Check the id, the network, and the login for gated models (`hf auth login`)"
    with from_hub(name, remedy):
        for unused in ([*_UNUSED, "*.bin"], _UNUSED):
            folder = Path(snapshot_download(name, revision=model.revision, ignore_patterns=unused))
            if any(folder.glob("*.safetensors")):
                break
    return folder
