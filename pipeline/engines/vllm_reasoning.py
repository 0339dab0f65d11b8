"""Reasoning and answer of a response, split by the parser that vLLM's server has for the model."""

import contextlib
import sys
from dataclasses import replace
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.sampling import ModelConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines.text import joined
from bayes_at_n.pipeline.engines.vllm_import import import_vllm
from bayes_at_n.pipeline.prepare import models

# vLLM's parsers by the beginning of `model_type` in config.json; else by a mark in the vocabulary.
_OF_TYPE = {"qwen3": "qwen3", "glm4_moe": "glm45", "gemma4": "gemma4", "ernie4_5": "ernie45"}
_OF_TYPE |= {"hunyuan": "hunyuan_a13b", "kimi_k2": "kimi_k2", "minimax_m2": "minimax_m2"}
_OF_TYPE |= {"nemotron_h": "nemotron_v3", "olmo3": "olmo3", "seed_oss": "seed_oss", "mimo": "mimo"}
_OF_TYPE |= {"step3p5": "step3p5", "kimi_k3": "kimi_k3", "minimax_m3": "minimax_m3"}
_OF_TYPE |= {"deepseek_v41": "deepseek_v41", "deepseek_v4": "deepseek_v4", "inkling": "inkling"}
_OF_MARK = {"</think>": "deepseek_r1", "[/THINK]": "mistral"}


def name_of(model: ModelConfig, tokenizer: Any) -> str:
    """Return the name of a model's parser, `model.reasoning_parser` or the one of its type.

    Raises UserError: auto, and the type has none.
    """
    if model.reasoning_parser != "auto":
        return str(model.reasoning_parser)
    kind, vocabulary = models.read_config(model).model_type, tokenizer.get_vocab()
    named = [parser for start, parser in _OF_TYPE.items() if kind.startswith(start)]
    named += [parser for mark, parser in _OF_MARK.items() if mark in vocabulary]
    if not named:
        raise UserError(
            f"model.reasoning_parser=auto: none is known for model type {kind}; name one of vLLM's,"
            " or leave it out (model.reasoning_end)"
        )
    return named[0]


class Parser:
    """The parser of a run's model.

    `raw`: settings with which to decode the text that it splits, which may need special tokens.
    """

    def __init__(self, cfg: RunConfig, tokenizer: Any) -> None:
        if "vllm" not in sys.modules:
            import_vllm(key="model.reasoning_parser")
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.reasoning import ReasoningParserManager

        name, key = name_of(cfg.model, tokenizer), "model.reasoning_parser"
        request = ChatCompletionRequest(messages=[{"role": "user", "content": ""}])
        try:
            make = ReasoningParserManager.get_reasoning_parser(name)
            self.parser = make(tokenizer, chat_template_kwargs=cfg.model.chat_template_kwargs)
            self.request = self.parser.adjust_request(request)
            self.parser.extract_reasoning("", self.request)
        except Exception as error:  # vLLM raises whatever its parts raise
            raise UserError(
                f"{key}={name}: not for {cfg.model.id} ({one_line(error)}); name another, or leave"
                " it out (model.reasoning_end)"
            ) from error
        hides = cfg.model.skip_special_tokens
        skips = hides and bool(self.request.skip_special_tokens)
        self.raw = replace(cfg, model=replace(cfg.model, skip_special_tokens=skips))
        self.special = tokenizer.all_special_tokens if hides and not skips else []

    def joined(self, text: str, stopped: bool) -> str:
        """Return reasoning and answer of a raw text, see `text.joined`."""
        reasoning = answer = None
        with contextlib.suppress(Exception):  # a model may write anything
            reasoning, answer = self.parser.extract_reasoning(text, self.request)
        if reasoning is None and answer is None:  # the parser finds nothing in it
            return text
        for token in self.special:
            reasoning, answer = (part and part.replace(token, "") for part in (reasoning, answer))
        return joined(reasoning, answer, self.raw.model.reasoning_end, stopped)
