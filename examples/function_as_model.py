"""Evaluate any function from prompts to texts, such as the client of an agent or of an API.

Runs in a few seconds and needs neither a GPU nor a network:

    python examples/function_as_model.py
"""

import random

from bayes_at_n import evaluate

QUESTIONS = [
    {"id": f"{a}x{b}", "problem": f"What is {a} * {b}?", "answer": str(a * b)}
    for a, b in [(3, 4), (12, 12), (17, 23), (31, 19), (99, 101)]
]


def multiply(prompts: list[str]) -> list[str]:
    """Answer each prompt in text; the larger the product, the more often it is one off."""
    answers = []
    for prompt in prompts:
        a, b = (int(word.strip("?.")) for word in prompt.split() if word.strip("?.").isdigit())
        error = random.random() < a * b / 10_000
        answers.append(f"The product is \\boxed{{{a * b + error}}}.")
    return answers


if __name__ == "__main__":
    run = evaluate(
        model=multiply,
        name="multiply",
        dataset={"name": "products", "rows": QUESTIONS},
        sampling={"trials": 16},
    )
    for question, outcomes in zip(run.questions, run.matrix, strict=True):
        print(f"{question['question_id']:>7}  {outcomes.mean():.2f} of {outcomes.count()} trials")
