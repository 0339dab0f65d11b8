"""Make a verifier's prompt: one user turn whose fields cannot be left by what stands in them.

What is judged is untrusted text. Three things keep it in its field:

- Fields are encoded as plain text: a control token spelt out in them (``<|im_end|>``) becomes the
  tokens of its characters. Only the chat template around the user's turn makes control tokens.
- A tag of the template, such as ``<Candidate Response End>``, gets round brackets wherever a field
  spells its letters, whatever the case and whatever stands between them, also where only the
  tokenizer's normaliser would make the tag. Of its fences other quotes are made.
- A prompt that is too long is cut in the middle of the response: no end can be pushed out.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.settings import (
    FIELDS,
    FOLDER,
    OFFICIAL,
    RunConfig,
    VerifierConfig,
    template_file,
)
from bayes_at_n.pipeline.prepare import models, published
from bayes_at_n.prompts import PromptError, control_tokens, options, plain, render, turns
from bayes_at_n.verifiers import LETTERS

CUT = "\n[...]\n"  # stands where the middle of a response was left out
_FIELD = re.compile(rf"\{{({'|'.join(FIELDS)})(?::(.?)([<>^])([0-9]{{1,4}}))?\}}")
_LIKE_FIELD = re.compile(rf"\{{(?:{'|'.join(FIELDS)})\b[^{{}}\n]*\}}")
_TAG = re.compile(r'<[^<>{}\n]+>|"""|```')
_FILLER = r"(?:_|[^\w<>])*"  # spaces, a slash, marks without width: what a reader may overlook
_USER = "\u2060user\u2060turn\u2060"  # no template writes this, and none changes it


class Candidate(NamedTuple):
    """What a verifier is to judge; `answer` is the extracted one, empty without one."""

    question_id: str
    question: str
    gold: str
    response: str
    answer: str


def asked(question: Mapping[str, Any]) -> Candidate:
    """Make what a verifier is told of a row of the questions table, with options and gold text."""
    problem, gold = question["problem"], question["gold"]
    if choices := question["choices"]:
        problem = f"{problem}\n\n{options(choices)}"
        gold = f"{gold}) {choices[LETTERS.index(gold)]}"
    return Candidate(question["question_id"], problem, gold, "", "")


class Prompt(NamedTuple):
    """Token ids up to the answer slot, and whether the response's middle was left out."""

    token_ids: list[int]
    cut: bool


def here(cfg: RunConfig, made: str | None) -> RunConfig:
    """Replace the official prompt, while it is not here, by the one that stands in for it.

    Not where verdicts are `made` by it: no machine puts them aside because it lacks the prompt.
    """
    v, instead = cfg.verifier, cfg.verifier.official.fallback
    if v.prompt != OFFICIAL or instead is None or made == str(v.official):
        return cfg
    if published.read(v.official):
        return cfg
    warn(
        f"verifier.prompt={OFFICIAL}: is not on this machine, so it is asked with {instead}:"
        f" figures are not {v.name}'s as published. {published.REMEDY}"
    )
    return replace(cfg, verifier=replace(v, prompt=instead))


def read_template(cfg: VerifierConfig) -> str:
    """Read `verifier.prompt`: the official one, a name in prompts/verifier/, or a file.

    Raises UserError: it is missing, unreadable, or has no usable ``{response}`` or ``{answer}``.
    """
    path = template_file(cfg.prompt)
    try:
        official = cfg.prompt == OFFICIAL
        template = published.template(cfg.official) if official else path.read_text("utf-8")
    except (OSError, ValueError) as error:
        names = ", ".join(sorted(p.stem for p in FOLDER.glob("*.txt")))
        raise UserError(
            f"verifier.prompt={cfg.prompt}: {one_line(error)}; choose from {names}, or name a file"
        ) from error
    template = template if official else template.rstrip("\n")
    bad = [field for field in _LIKE_FIELD.findall(template) if not _FIELD.fullmatch(field)]
    if bad or template.count(_judged(template)) != 1 or template.count("{response") > 1:
        raise UserError(
            f"{path}: must contain {{response}} once, without a width (or {{answer}} instead), and"
            f" other fields as {{NAME}} or {{NAME:_<12}} {' '.join(bad)}"
        )
    return template


def _judged(template: str) -> str:
    """The field that holds what is judged."""
    return "{response}" if "{response" in template else "{answer}"


def uses_answer(template: str) -> bool:
    """Say whether the template restates the extracted answer."""
    return any(field[1] == "answer" for field in _FIELD.finditer(template))


def neutral(text: str, template: str) -> str:
    """Put round brackets around whatever in a text reads as a tag of the template; no fence of it.

    >>> neutral("2 < response  end>, < / a>, <b>, ````", "<Response End> </a> ```")
    "2 ( response  end), ( / a), <b>, '''`"
    """
    for tag in sorted({*_TAG.findall(template)}):
        if not tag.startswith("<"):
            text = text.replace(tag, "'''")  # of the same length: engines are sized before
            continue
        letters = re.findall(r"[^\W_]", tag) or [re.escape(tag[1:-1])]
        inside = _FILLER + _FILLER.join(letters) + _FILLER
        text = re.sub(rf"<({inside})>", r"(\1)", text, flags=re.IGNORECASE)
    return text


def fill(template: str, candidate: Candidate) -> tuple[str, int, int]:
    """Make the user's turn; return where in it the response begins and ends, too, in characters.

    A field with fill, alignment and width is padded or cut to the width; other braces are LaTeX and
    stay. Tags of the template lose their brackets in what goes into the fields. A template without
    ``{response}`` has the extracted answer judged, of a response without one the response.
    """
    judged = _judged(template)
    if judged == "{answer}":
        candidate = candidate._replace(answer=candidate.answer or candidate.response)

    def value(field: re.Match[str]) -> str:
        name, filler, alignment, width = field.groups()
        text = neutral(getattr(candidate, name), template)
        return text if width is None else f"{text[: int(width)]:{filler or ' '}{alignment}{width}}"

    before, response, after = (_FIELD.sub(value, part) for part in template.partition(judged))
    return before + response + after, len(before), len(before) + len(response)


class Prompts:
    """Makes a verifier's prompts, of `context` tokens with their answer, and knows its label ids.

    Raises UserError: without a fast tokenizer, with a chat template unless the prompt is plain, for
    a label of several tokens, or for token ids that are those of another text.
    """

    def __init__(self, cfg: VerifierConfig, tokenizer: Any, context: int) -> None:
        self.cfg, self.tokenizer, self.template = cfg, tokenizer, read_template(cfg)
        try:
            kwargs = dict(cfg.chat_template_kwargs)
            if cfg.kind == "chat":
                [(frame, _)] = render(tokenizer, [turns(_USER, None)], kwargs, prefix=cfg.prefix)
            else:
                frame = plain(tokenizer, _USER + cfg.prefix).text
        except PromptError as error:
            raise UserError(f"verifier.id={cfg.id}: {error}; a verifier needs one") from error
        parts = frame.split(_USER)
        if len(parts) != 2 or not getattr(tokenizer, "is_fast", False):
            raise UserError(
                f"verifier.id={cfg.id}: cannot be used: its chat template does not write the"
                " user's text once, or its tokenizer is not a fast one"
            )
        self.before, self.after = map(self._ids, parts)
        labels = {name: text for name, text in vars(cfg.labels).items() if text is not None}
        self.label_ids = [self._label(parts[1], name, text) for name, text in labels.items()]
        self.plain, self.control = _plain(tokenizer)
        self.cut = self.plain.encode(CUT, add_special_tokens=False).ids
        self.room = context - 1 - len(self.before) - len(self.after)

    def build(self, candidates: Sequence[Candidate]) -> list[Prompt]:
        """Make the prompt of every candidate, in order.

        Raises UserError: when a question and its gold answer alone are too long.
        """
        filled = [fill(self.template, self._normal(candidate)) for candidate in candidates]
        texts = [text for text, _, _ in filled]
        encodings = self.plain.encode_batch(texts, add_special_tokens=False)
        prompts = []
        for candidate, turn, encoding in zip(candidates, filled, encodings, strict=True):
            name = candidate.question_id
            models.check_tokens(self.cfg, self.tokenizer, name, turn[0], encoding.ids)
            ids = [i for i in encoding.ids if i not in self.control]
            if cut := len(ids) > self.room:
                ids = self._shortened(name, encoding, *turn[1:])
            prompts.append(Prompt([*self.before, *ids, *self.after], cut))
        return prompts

    def _normal(self, candidate: Candidate) -> Candidate:
        """The candidate; a field in which the tokenizer's normaliser would make a tag, without it.

        Other fields stay as they are: some normalisers put marks in front of every text.
        """
        if self.plain.normalizer is None:
            return candidate

        def without_tags(value: str) -> str:
            normal = self.plain.normalizer.normalize_str(value)
            neutralised = neutral(normal, self.template)
            return value if neutralised == normal else neutralised

        return Candidate(candidate.question_id, *map(without_tags, candidate[1:]))

    def _shortened(self, name: str, encoding: Any, start: int, end: int) -> list[int]:
        """Keep as much of both ends of the response as the context holds."""
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        plain = [(i, span) for i, span in tokens if i not in self.control]
        ids = [i for i, _ in plain]
        inside = [n for n, (_, (a, b)) in enumerate(plain) if start <= a and b <= end]
        first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
        room = self.room - (len(ids) - (last - first)) - len(self.cut)
        if room < 2:
            raise UserError(
                f"{name}: too long for the verifier even without a response: its context leaves"
                f" {self.room} tokens; take one with more, or verifier=none"
            )
        head, tail = room - room // 2, room // 2
        return [*ids[: first + head], *self.cut, *ids[last - tail :]]

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _label(self, after: str, name: str, text: str) -> int:
        """The id of a label at the answer slot."""
        ids, known = self._ids(after + text), len(self.after)
        if ids[:known] != self.after or len(ids) != known + 1:
            pieces = self.tokenizer.convert_ids_to_tokens(ids[known:])
            raise UserError(
                f"verifier.labels.{name}={text}: must be one token at the answer slot;"
                f" {self.cfg.id}'s tokenizer makes {len(ids) - known} of it ({pieces})"
            )
        return ids[-1]


def _plain(tokenizer: Any) -> tuple[Any, frozenset[int]]:
    """The tokenizer without its control tokens, and their ids, which no text may give."""
    from tokenizers import Tokenizer

    every = "".join([*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()])
    control = set(control_tokens(tokenizer, every))
    raw = json.loads(tokenizer.backend_tokenizer.to_str())
    raw["added_tokens"] = [
        t for t in raw["added_tokens"] if t["content"] not in control and not t["special"]
    ]
    raw["truncation"] = raw["padding"] = raw["post_processor"] = None
    ids = tokenizer.convert_tokens_to_ids(sorted(control))
    return Tokenizer.from_str(json.dumps(raw)), frozenset(ids)
