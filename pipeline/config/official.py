"""Where a verifier's published prompt is; it is fetched, and no part of the project."""

from dataclasses import dataclass, field
from pathlib import Path

from bayes_at_n.pipeline.base.program import PACKAGES

OFFICIAL = "official"  # the verifier.prompt that is fetched
FOLDER = PACKAGES / "prompts" / "verifier"
FIELDS = ("question", "gold", "response", "answer")  # of a prompt, as the project names them


@dataclass
class OfficialPrompt:
    """A text in a Python file of a public GitHub repository, at one commit."""

    file: str | None = None  # OWNER/NAME/COMMIT/PATH; null: there is none
    sha256: str = ""  # of the file
    name: str = ""  # of the text in it
    fields: dict[str, str] = field(default_factory=dict)  # what its fields are here
    fallback: str | None = None  # the verifier.prompt until `prefetch` has it; null: none

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


def template_file(prompt: str) -> Path:
    """The file of a `verifier.prompt`: of a name in prompts/verifier/, or else a path."""
    named = FOLDER / f"{prompt}.txt"
    return named if named.is_file() else Path(prompt).expanduser()
