"""What is asked of vLLM's workers, which may be processes of their own, on GPUs of their own.

Imported by vLLM in each of them, by name.
"""

import multiprocessing
import os
from typing import Any

import torch

from bayes_at_n.pipeline.base.children import die_with

# Of a core that was started afresh ("spawn") the workers, too, end with it, whatever they are at.
if multiprocessing.parent_process() is not None:
    die_with(os.getppid())

# Linux gives a process AMX tiles only if it asks. oneDNN asks; vLLM 0.32's attention for CPUs with
# AMX does not, and may come first: a worker process of its own then dies of an illegal instruction.
# Where there are no such tiles this does nothing.
torch.cpu._init_amx()


class WorkerExtension:
    """Mixed by vLLM into its worker (`worker_extension_cls`): its methods are called by name."""

    vllm_config: Any  # the worker's, as the others that are not defined here
    model_runner: Any
    reload_weights: Any

    def attention_backends(self) -> list[str]:
        """Return names of the kernels that the model's layers attend with, sorted, each once."""
        layers = self.vllm_config.compilation_config.static_forward_context.values()
        asked = [getattr(layer, "get_attn_backend", None) for layer in layers]
        return sorted({ask().get_name() for ask in asked if ask is not None})

    def load_checkpoint(self, folder: str) -> None:
        """Read the weights in a folder into the loaded model, whose architecture they have.

        On a CPU vLLM 0.32 leaves a tied output layer as it was: its packed copy of the embedding.
        """
        self.reload_weights(weights_path=folder)
        head = getattr(self.model_runner.get_model(), "lm_head", None)
        if hasattr(head, "cpu_linear"):
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
