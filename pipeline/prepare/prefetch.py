"""prefetch: bring model, data set and verifier onto this machine, and say what is where."""

from collections.abc import Callable
from pathlib import Path

from pipeline.base.console import note, results
from pipeline.base.errors import UserError
from pipeline.prepare import models, questions
from pipeline.store.runfolder import Run

# Weights are stored twice in many repositories; vLLM and transformers read safetensors.
_UNUSED = ["*.pth", "*.pt", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*"]


def prefetch(run: Run) -> None:
    """Download what a run needs into the Hugging Face cache; a second call finds it there.

    Compute nodes without a network then run with ``HF_HUB_OFFLINE=1`` and the same ``HF_HOME``.

    Raises:
        UserError: when something cannot be had.
    """
    model = _try("model", run.cfg.model.id, lambda: _model(run))
    results.print(f"model    {run.cfg.model.id}: {model}", markup=False)
    found, _ = questions.load(run.cfg.dataset)
    local = questions.find_local(run.cfg.dataset.path)
    where = str(local) if local else "in the Hugging Face cache"
    results.print(f"dataset  {run.cfg.dataset.path}: {len(found)} questions, {where}", markup=False)
    verifier = run.cfg.verifier
    if verifier.id is not None:
        name, revision = verifier.id, verifier.revision
        local = questions.find_local(name)
        path = local or _try("verifier", name, lambda: _snapshot(name, revision))
        results.print(f"verifier {name}: {path}", markup=False)
    note("on nodes without a network: export HF_HUB_OFFLINE=1, with the same HF_HOME as here")


def _model(run: Run) -> Path:
    where = models.locate(run.cfg.model)
    return Path(where) if Path(where).is_dir() else _snapshot(where, run.cfg.model.revision)


def _snapshot(hub_id: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    found = Path(snapshot_download(hub_id, revision=revision, ignore_patterns=[*_UNUSED, "*.bin"]))
    if not any(found.glob("*.safetensors")):
        found = Path(snapshot_download(hub_id, revision=revision, ignore_patterns=_UNUSED))
    return found


def _try(what: str, name: str, fetch: Callable[[], Path]) -> Path:
    try:
        return fetch()
    except UserError:
        raise
    except Exception as error:  # network, hub, disk: each has exceptions of its own
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(
            f"{what} {name}: could not be fetched: {reason}. Check the id, the network, and for"
            " gated models that you are logged in (`hf auth login`)"
        ) from error
