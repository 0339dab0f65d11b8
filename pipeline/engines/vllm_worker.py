"""The extension of vLLM's workers, which may be separate processes on separate GPUs.

vLLM imports it by name in each of them.
"""

import multiprocessing
import os
from typing import Any

import torch

from bayes_at_n.pipeline.base.children import die_with

# In a spawned process: end with the parent, whatever this worker is doing.
if multiprocessing.parent_process() is not None:
    die_with(os.getppid())

# Linux grants a process AMX tiles on request only. oneDNN requests them; vLLM 0.32's attention for
# CPUs with AMX does not and may run first, which ends a worker process with an illegal instruction.
# Without such tiles this does nothing.
torch.cpu._init_amx()


class WorkerExtension:
    """A mixin of vLLM's worker (`worker_extension_cls`), whose methods are called by name."""

    vllm_config: Any  # this and the next two are the worker's
    model_runner: Any
    reload_weights: Any

    def attention_backends(self) -> list[str]:
        """Return the names of the attention kernels of the model's layers, sorted."""
        layers = self.vllm_config.compilation_config.static_forward_context.values()
        getters = [getattr(layer, "get_attn_backend", None) for layer in layers]
        return sorted({getter().get_name() for getter in getters if getter is not None})

    def load_checkpoint(self, folder: str) -> None:
        """Load the weights in a folder, of the same architecture, into the model.

        On a CPU vLLM 0.32 does not update a tied output layer, which is a packed copy of the
        embedding; so that is packed again.
        """
        self.reload_weights(weights_path=folder)
        head = getattr(self.model_runner.get_model(), "lm_head", None)
        if hasattr(head, "cpu_linear"):
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
