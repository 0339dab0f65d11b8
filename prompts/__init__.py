"""How a problem becomes the exact tokens a model sees: instruction, chat turns, chat template.

>>> fill("{problem}\\n\\nAnswer in \\\\boxed{}.", "What is 2+2?")
'What is 2+2?\\n\\nAnswer in \\\\boxed{}.'
>>> turns("What is 2+2?", system=None)
[{'role': 'user', 'content': 'What is 2+2?'}]
"""

from prompts.bounded import PromptError
from prompts.render import (
    Rendered,
    control_tokens,
    fill,
    options,
    plain,
    render,
    turns,
)

__all__ = [
    "PromptError",
    "Rendered",
    "control_tokens",
    "fill",
    "options",
    "plain",
    "render",
    "turns",
]
