"""A server that answers everything alike: its answers are held back until one differs."""

from pipeline.base.errors import UserError
from pipeline.engines import Completion

_ALIKE = 32  # attempts in a row with one text that are not believed,
_QUESTIONS = 4  # where they are of so many questions


class Doubt:
    """Holds back attempts while they all have the text of the one before, so that none is stored.

    Raises:
        UserError: from `hold`, when there are too many: a server that answers every question alike.
    """

    def __init__(self) -> None:
        self.held: list[Completion] = []

    def hold(self, completion: Completion) -> list[Completion]:
        """The attempts that may go on; see the class for what it raises."""
        if completion.finish_reason not in ("stop", "length"):
            return [completion]
        if self.held and completion.text != self.held[-1].text:
            released = self.release()
            self.held = [completion]
            return released
        self.held.append(completion)
        questions = {item.request.question_id for item in self.held}
        if len(self.held) < _ALIKE or len(questions) < _QUESTIONS:
            return []
        text = completion.text[:60]
        raise UserError(
            f"the server answers everything alike: {len(self.held)} attempts in a row, of"
            f" {len(questions)} questions, are {text!r}; they are not kept"
        )

    def release(self) -> list[Completion]:
        """All of them."""
        released, self.held = self.held, []
        return released
