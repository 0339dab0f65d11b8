"""How a problem becomes the exact tokens a model sees: instruction, chat turns, chat template.

>>> fill("{problem}\\n\\nAnswer in \\\\boxed{}.", "What is 2+2?")
'What is 2+2?\\n\\nAnswer in \\\\boxed{}.'
>>> turns("What is 2+2?", system=None)
[{'role': 'user', 'content': 'What is 2+2?'}]
"""

from prompts.bounded import PromptError as PromptError
from prompts.render import Rendered as Rendered
from prompts.render import control_tokens as control_tokens
from prompts.render import difference as difference
from prompts.render import fill as fill
from prompts.render import options as options
from prompts.render import plain as plain
from prompts.render import render as render
from prompts.render import turns as turns
