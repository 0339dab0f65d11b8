"""One of several verifiers on a node: a `Judge` in a process of its own, asked by `replicas.py`.

It tells what its engine is, then an answer for every list of candidates, and None after every step
of the engine in between; an error is the last thing that it tells.
"""

import pickle
import sys
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.workers import process


def main() -> int:
    """Judge until nothing more is asked; returns the exit status, as the command line has it."""
    with process.answering() as answers:

        def tell(what: Any) -> None:
            pickle.dump(what, answers)
            answers.flush()

        cfg, most = process.take_order()
        # Late: torch counts the cores when it is imported.
        from bayes_at_n.pipeline.verify.judge import Judge

        try:
            judge = Judge(cfg, most)
            tell(judge.described)
            while candidates := _asked():
                tell(judge.ask(candidates, lambda: tell(None)))
            judge.engine.close()
        except UserError as error:
            tell(error)
            return error.exit_code
        return 0


def _asked() -> Any:
    """The candidates that come next; None when the parent has no more."""
    try:
        return pickle.load(sys.stdin.buffer)
    except EOFError:
        return None


if __name__ == "__main__":
    sys.exit(main())
