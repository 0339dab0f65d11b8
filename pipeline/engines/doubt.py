"""A server that answers everything alike is not believed."""

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.store.columns import FINISHED

_ALIKE = 32  # attempts in a row with one text that are not believed,
_QUESTIONS = 4  # where they are of so many questions


class Doubt:
    """Holds back attempts that have the text of the one before, until another text comes.

    So of a server that begins to answer everything alike the first answer is stored and, as long as
    there is enough else to do, no other. `hold` raises UserError when there are too many in a row.
    """

    def __init__(self) -> None:
        self.held: list[Completion] = []
        self._text: str | None = None
        self._times = 0
        self._questions: set[str] = set()

    def hold(self, completion: Completion) -> list[Completion]:
        """The attempts that may go on."""
        if completion.finish_reason not in FINISHED:
            return [completion]
        if completion.text != self._text:
            self._text, self._times, self._questions = completion.text, 0, set()
            released = [*self.release(), completion]
        else:
            self.held.append(completion)
            released = []
        self._times += 1
        self._questions.add(completion.request.question_id)
        if self._times >= _ALIKE and len(self._questions) >= _QUESTIONS:
            raise UserError(
                f"the server answers everything alike: {self._times} attempts in a row, of"
                f" {len(self._questions)} questions, are {completion.text[:60]!r}"
            )
        return released

    def release(self) -> list[Completion]:
        """All that are held; they count as before."""
        released, self.held = self.held, []
        return released
