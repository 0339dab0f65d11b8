"""Log-probs of a verifier's label tokens at the answer slot: one prefill, nothing generated.

Both engines give natural log-probs under the full vocabulary, float32 from the model's own logits,
before any temperature. In bfloat16 the two differ by rounding: see `tests/test_verify_stage.py`.
"""

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.config.settings import RunConfig

_TOKENS = 1 << 16  # padded tokens of one forward pass with transformers, unless one prompt has more


class LabelEngine(Protocol):
    """What the verify stage needs of an engine."""

    def logprobs(self, prompts: Sequence[list[int]]) -> npt.NDArray[np.float32]:
        """Per prompt the log-probs of the label tokens as its next token: float32 [prompts, 3]."""

    def describe(self) -> dict[str, Any]:
        """Version, device and effective settings, for the record."""

    def close(self) -> None:
        """Free the memory."""


def load(cfg: RunConfig, label_ids: list[int], longest: int) -> LabelEngine:
    """Load the model of `cfg` to score labels, with the engine that `cfg` names.

    Args:
        cfg: a configuration whose `model` is the verifier.
        label_ids: the token ids of the labels, in the order of the columns.
        longest: the most tokens of any prompt, and one.

    Raises:
        UserError: as `pipeline.engines.load`.
    """
    kind = _VllmLabels if cfg.engine.name == "vllm" else _TransformersLabels
    return kind(cfg, label_ids, longest)


class _VllmLabels:
    """Prompts of one question share the prefix cache, if they come one after the other."""

    def __init__(self, cfg: RunConfig, label_ids: list[int], longest: int) -> None:
        from pipeline.engines.vllm import VllmEngine

        args = {"enable_prefix_caching": True} | dict(cfg.engine.args)
        cfg = dataclasses.replace(cfg, engine=dataclasses.replace(cfg.engine, args=args))
        self.label_ids, self.engine = label_ids, VllmEngine(cfg, longest)

    def logprobs(self, prompts: Sequence[list[int]]) -> npt.NDArray[np.float32]:
        from vllm import SamplingParams, TokensPrompt

        params = SamplingParams(
            temperature=0.0, max_tokens=1, logprob_token_ids=self.label_ids, detokenize=False
        )
        inputs = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        values = np.empty((len(prompts), len(self.label_ids)), dtype=np.float32)
        outputs = self.engine.llm.generate(inputs, params, use_tqdm=False)
        for row, output in zip(values, outputs, strict=True):
            [slot] = output.outputs[0].logprobs
            row[:] = [slot[label].logprob for label in self.label_ids]
        return values

    def describe(self) -> dict[str, Any]:
        return self.engine.describe()

    def close(self) -> None:
        self.engine.close()


class _TransformersLabels:
    """Batches of similar length, left-padded, so that the last position is the answer slot."""

    def __init__(self, cfg: RunConfig, label_ids: list[int], longest: int) -> None:
        from pipeline.engines.transformers import TransformersEngine

        args = _flash(cfg) | dict(cfg.engine.args)
        cfg = dataclasses.replace(cfg, engine=dataclasses.replace(cfg.engine, args=args))
        self.cfg, self.label_ids = cfg, label_ids
        self.engine = TransformersEngine(cfg)
        known = inspect.signature(self.engine.model.forward).parameters
        # The logits of a whole prompt over a whole vocabulary would take most of the memory.
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}

    def logprobs(self, prompts: Sequence[list[int]]) -> npt.NDArray[np.float32]:
        values = np.empty((len(prompts), len(self.label_ids)), dtype=np.float32)
        for rows in _batches(prompts, self.cfg.engine.batch_size):
            values[rows] = self._forward([prompts[row] for row in rows])
        return values

    def _forward(self, prompts: list[list[int]]) -> npt.NDArray[np.float32]:
        import torch

        from pipeline.engines.transformers import _left_padded

        ids, mask = (tensor.to(self.engine.device) for tensor in _left_padded(prompts))
        with torch.inference_mode():
            logits = self.engine.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp_min(0),
                use_cache=False,
                **self.last_only,
            ).logits[:, -1]
            values = torch.log_softmax(logits.float(), dim=-1)[:, self.label_ids].cpu().numpy()
        return np.asarray(values, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return self.engine.describe()

    def close(self) -> None:
        self.engine.close()


def _batches(prompts: Sequence[list[int]], most: int) -> Iterator[list[int]]:
    """The prompts' places, the longest first, in batches of at most `most` and `_TOKENS`."""
    order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
    while order:
        size = min(most, max(1, _TOKENS // len(prompts[order[0]])))
        yield order[:size]
        del order[:size]


def _flash(cfg: RunConfig) -> dict[str, Any]:
    """FlashAttention where the package and a GPU for it are there; else torch's own attention."""
    import torch
    from transformers.utils import is_flash_attn_2_available

    gpu = torch.cuda.is_available() and (cfg.engine.device or "cuda").startswith("cuda")
    half = cfg.model.dtype in ("bfloat16", "float16")
    flash = gpu and half and is_flash_attn_2_available()
    return {"attn_implementation": "flash_attention_2"} if flash else {}
