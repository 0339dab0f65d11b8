"""Turn a problem into the exact tokens a model sees: instruction, chat turns, chat template.

>>> fill("{problem}\\n\\nAnswer in \\\\boxed{}.", "What is 2+2?")
'What is 2+2?\\n\\nAnswer in \\\\boxed{}.'
>>> turns("What is 2+2?", system=None)
[{'role': 'user', 'content': 'What is 2+2?'}]
"""

from bayes_at_n.prompts.bounded import PromptError as PromptError
from bayes_at_n.prompts.render import Rendered as Rendered
from bayes_at_n.prompts.render import control_tokens as control_tokens
from bayes_at_n.prompts.render import difference as difference
from bayes_at_n.prompts.render import fill as fill
from bayes_at_n.prompts.render import options as options
from bayes_at_n.prompts.render import plain as plain
from bayes_at_n.prompts.render import render as render
from bayes_at_n.prompts.render import turns as turns
