"""Make a verifier's prompt: one user turn whose fields cannot be left by what stands in them.

What is judged is untrusted text. Three things keep it in its field:

- Fields are encoded as plain text: a control token spelt out in them (``<|im_end|>``) becomes the
  tokens of its characters. Only the chat template makes control tokens.
- A tag of the template, such as ``<The End>``, gets round brackets wherever a field spells its
  letters, in any case and with anything between them, also where only the tokenizer's normaliser
  would make the tag. Of its fences other quotes are made.
- A prompt that is too long is cut in the middle of the response: no end can be pushed out.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config import settings
from bayes_at_n.pipeline.config.settings import FIELDS, OFFICIAL, RunConfig, VerifierConfig
from bayes_at_n.pipeline.prepare import models, official_prompt
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


class Prompt(NamedTuple):
    """Token ids up to the answer slot, and whether the response's middle was left out."""

    token_ids: list[int]
    cut: bool


def as_candidate(question: Mapping[str, Any]) -> Candidate:
    """Make a candidate without response of a row of the questions table, with options and gold."""
    problem, gold = question["problem"], question["gold"]
    if choices := question["choices"]:
        problem = f"{problem}\n\n{options(choices)}"
        gold = f"{gold}) {choices[LETTERS.index(gold)]}"
    return Candidate(question["question_id"], problem, gold, "", "")


def with_fallback(cfg: RunConfig, made: str | None) -> RunConfig:
    """Replace the official prompt by its fallback; not if it or verdicts `made` by it are here."""
    v, instead = cfg.verifier, cfg.verifier.official.fallback
    if (
        v.prompt != OFFICIAL
        or not instead
        or made == str(v.official)
        or official_prompt.read(v.official)
    ):
        return cfg
    why = f"verifier.prompt={OFFICIAL}: is not on this machine, so it is asked with {instead}"
    warn(f"{why}: figures are not {v.name}'s as published. {official_prompt.REMEDY}")
    return replace(cfg, verifier=replace(v, prompt=instead))


def read_template(cfg: VerifierConfig) -> str:
    """Read `verifier.prompt`: the official one, a name in prompts/verifier/, or a file.

    Raises UserError: it is missing, unreadable, or has no usable ``{response}`` or ``{answer}``.
    """
    path = settings.template_file(cfg.prompt)
    try:
        if cfg.prompt == OFFICIAL:
            template = official_prompt.template(cfg.official)
        else:
            template = path.read_text("utf-8").rstrip("\n")
    except (OSError, ValueError) as error:
        why = f"verifier.prompt={cfg.prompt}: {one_line(error)}"
        names = ", ".join(sorted(p.stem for p in settings.FOLDER.glob("*.txt")))
        raise UserError(f"{why}; choose from {names}, or name a file") from error
    bad = [field for field in _LIKE_FIELD.findall(template) if not _FIELD.fullmatch(field)]
    judged = "{response}" if "{response" in template else "{answer}"
    if bad or template.count(judged) != 1 or template.count("{response") > 1:
        others = f"other fields as {{NAME}} or {{NAME:_<12}} {' '.join(bad)}"
        raise UserError(f"{path}: must contain {{response}} once (or {{answer}}), and {others}")
    return template


def uses_answer(template: str) -> bool:
    """Say whether the template restates the extracted answer."""
    return any(field[1] == "answer" for field in _FIELD.finditer(template))


def neutral(text: str, template: str) -> str:
    """Put round brackets around what reads as a tag of the template, quotes for its fences.

    >>> neutral("2 < response  end>, < / a>, <b>, ````", "<Response End> </a> ```")
    "2 ( response  end), ( / a), <b>, '''`"
    """
    for tag in sorted({*_TAG.findall(template)}):
        if tag.startswith("<"):
            letters = re.findall(r"[^\W_]", tag) or [re.escape(tag[1:-1])]
            inside = _FILLER + _FILLER.join(letters) + _FILLER
            text = re.sub(rf"<({inside})>", r"(\1)", text, flags=re.IGNORECASE)
        else:
            text = text.replace(tag, "'''")  # of the same length: engines are sized before
    return text


def fill(template: str, candidate: Candidate, normalise: Any = None) -> tuple[str, int, int]:
    """Make the user's turn; return where in it the response begins and ends, too, in characters.

    A field with fill, alignment and width is padded or cut to the width; other braces are LaTeX and
    stay. Tags of the template lose their brackets in fields, those that `normalise` would make,
    too. Without ``{response}`` the extracted answer is judged, without one the response.
    """
    judged = "{response}" if "{response" in template else "{answer}"
    if judged == "{answer}":
        candidate = candidate._replace(answer=candidate.answer or candidate.response)

    def value(field: re.Match[str]) -> str:
        name, filler, alignment, width = field.groups()
        text = getattr(candidate, name)
        if normalise is not None:  # some put marks in front of every text: without tags it stays
            normal = normalise(text)
            neutralised = neutral(normal, template)
            text = text if neutralised == normal else neutralised
        text = neutral(text, template)
        return text if width is None else f"{text[: int(width)]:{filler or ' '}{alignment}{width}}"

    before, response, after = (_FIELD.sub(value, part) for part in template.partition(judged))
    return before + response + after, len(before), len(before) + len(response)


class Prompts:
    """Makes a verifier's prompts, of `context` tokens with their answer, and knows its label ids.

    Raises UserError: no fast tokenizer or chat template, or a label of several tokens.
    """

    def __init__(self, cfg: VerifierConfig, tokenizer: Any, context: int) -> None:
        from tokenizers import Tokenizer

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
            why = "its chat template does not write the user's text once, or its tokenizer is slow"
            raise UserError(f"verifier.id={cfg.id}: cannot be used: {why}")

        def encoded(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])

        self.before, self.after = map(encoded, parts)
        self.label_ids = list[int]()
        for name, label in vars(cfg.labels).items():
            if label is not None:
                *front, last = encoded(parts[1] + label)
                if front != self.after:
                    pieces = tokenizer.convert_ids_to_tokens([*front, last][len(self.after) :])
                    why = f"must be one token at the answer slot; {cfg.id} makes {pieces} of it"
                    raise UserError(f"verifier.labels.{name}={label}: {why}")
                self.label_ids.append(last)
        # Of fields: the tokenizer without its control tokens, whose ids no text may give.
        every = "".join([*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()])
        control = set(control_tokens(tokenizer, every))
        raw = json.loads(tokenizer.backend_tokenizer.to_str())
        added = (t for t in raw["added_tokens"] if not t["special"])
        raw["added_tokens"] = [t for t in added if t["content"] not in control]
        raw["truncation"] = raw["padding"] = raw["post_processor"] = None
        self.plain = Tokenizer.from_str(json.dumps(raw))
        self.control = frozenset(tokenizer.convert_tokens_to_ids(sorted(control)))
        self.cut = self.plain.encode(CUT, add_special_tokens=False).ids
        self.room = context - 1 - len(self.before) - len(self.after)

    def build(self, candidates: Sequence[Candidate]) -> list[Prompt]:
        """Make prompts. Raises UserError: one is too long without a response, or ill-encoded."""
        normalise = getattr(self.plain.normalizer, "normalize_str", None)
        filled = [fill(self.template, candidate, normalise) for candidate in candidates]
        encodings = self.plain.encode_batch([turn[0] for turn in filled], add_special_tokens=False)
        prompts = []
        for candidate, (text, start, end), of in zip(candidates, filled, encodings, strict=True):
            name = candidate.question_id
            models.check_tokens(self.cfg, self.tokenizer, name, text, of.ids)
            ids = [i for i in of.ids if i not in self.control]
            if cut := len(ids) > self.room:
                both = zip(of.ids, of.offsets, strict=True)
                spans = [span for i, span in both if i not in self.control]
                inside = [n for n, (a, b) in enumerate(spans) if start <= a <= b <= end]
                first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
                room = self.room - (len(ids) - (last - first)) - len(self.cut)
                if room < 2:
                    why = f"even without a response, for the verifier's {self.room} tokens"
                    raise UserError(f"{name}: too long, {why}; take another, or verifier=none")
                ids = [*ids[: first + room - room // 2], *self.cut, *ids[last - room // 2 :]]
            prompts.append(Prompt([*self.before, *ids, *self.after], cut))
        return prompts
