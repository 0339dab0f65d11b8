"""The texts that a verifier judges, and their prompts, whose fields contain untrusted text.

Three rules keep the text within its field:

- Fields are encoded as plain text: a control token in them (``<|im_end|>``) becomes the tokens of
  its characters. Only the chat template writes control tokens.
- A tag of the template, such as ``<The End>``, gets round brackets wherever a field has its
  letters, in any case and with anything between them, and also if the tokenizer's normalizer would
  produce the tag. Fences of the template are replaced by other quotes.
- A prompt that is too long is cut in the middle of the response, so that its end stays.

An attempt takes a few dozen bytes of memory: texts are read once for their hashes, and again when
they are judged.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.config.verifier import (
    FIELDS,
    FOLDER,
    OFFICIAL,
    VerifierConfig,
    template_file,
)
from bayes_at_n.pipeline.prepare import models, prefetch
from bayes_at_n.pipeline.store import outcomes, runfolder, shards, tables
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import keys_of, parts
from bayes_at_n.pipeline.verify import calibrate
from bayes_at_n.prompts import PromptError, control_tokens, options, plain, render, turns
from bayes_at_n.verifiers import LETTERS
from bayes_at_n.verifiers.maths.boxed import final_part

ROWS, CHARACTERS = 1024, 1 << 23  # of a batch, which is judged, and lost, as a whole
WORK = f"{shards.HIDDEN}work"  # folder of claims and sessions beside the log-probs of labels
_EACH = 16  # batches at least for each of several workers, so that they end together
CUT = "\n[...]\n"  # replaces the middle of a response
_FIELD = re.compile(rf"\{{({'|'.join(FIELDS)})(?::(.?)([<>^])([0-9]{{1,4}}))?\}}")
_LIKE_FIELD = re.compile(rf"\{{(?:{'|'.join(FIELDS)})\b[^{{}}\n]*\}}")
_TAG = re.compile(r'<[^<>{}\n]+>|"""|```')
_FILLER = r"(?:_|[^\w<>])*"  # spaces, slashes, zero-width characters: what a reader may overlook
_USER = "\u2060user\u2060turn\u2060"  # a placeholder that no template contains or changes


class Candidate(NamedTuple):
    """What a verifier judges; `answer`: the extracted one, or empty."""

    question_id: str
    question: str
    gold: str
    response: str
    answer: str


class Prompt(NamedTuple):
    """Token ids up to the label, and whether the middle of the response was left out."""

    token_ids: list[int]
    cut: bool


def as_candidate(question: Mapping[str, Any]) -> Candidate:
    """Return a candidate without response from a row of the questions table."""
    problem, gold = question["problem"], question["gold"]
    if choices := question["choices"]:
        problem = f"{problem}\n\n{options(choices)}"
        gold = f"{gold}) {choices[LETTERS.index(gold)]}"
    return Candidate(question["question_id"], problem, gold, "", "")


def with_fallback(cfg: RunConfig, stored: str | None) -> RunConfig:
    """Replace the official prompt by its fallback, unless it is available or verdicts used it."""
    v, fallback = cfg.verifier, cfg.verifier.official.fallback
    if (
        v.prompt != OFFICIAL
        or not fallback
        or stored == str(v.official)
        or prefetch.read(v.official)
    ):
        return cfg
    text = f"verifier.prompt={OFFICIAL}: not on this machine, so {fallback} is used instead"
    warn(f"{text}: results differ from those published for {v.name}. {prefetch.REMEDY}")
    return replace(cfg, verifier=replace(v, prompt=fallback))


def read_template(cfg: VerifierConfig) -> str:
    """Read `verifier.prompt`: the official one, a name in prompts/verifier/, or a file.

    Raises UserError: it is missing, unreadable, or has no usable ``{response}`` or ``{answer}``.
    """
    path = template_file(cfg.prompt)
    try:
        if cfg.prompt == OFFICIAL:
            template = prefetch.template(cfg.official)
        else:
            template = path.read_text("utf-8").rstrip("\n")
    except (OSError, ValueError) as error:
        text = f"verifier.prompt={cfg.prompt}: {one_line(error)}"
        names = ", ".join(sorted(p.stem for p in FOLDER.glob("*.txt")))
        raise UserError(f"{text}; choose from {names}, or name a file") from error
    bad = [field for field in _LIKE_FIELD.findall(template) if not _FIELD.fullmatch(field)]
    judged = "{response}" if "{response" in template else "{answer}"
    if bad or template.count(judged) != 1 or template.count("{response") > 1:
        others = f"other fields as {{NAME}} or {{NAME:_<12}} {' '.join(bad)}"
        raise UserError(f"{path}: must contain {{response}} once (or {{answer}}), and {others}")
    return template


def uses_answer(template: str) -> bool:
    """Return whether the template contains the extracted answer."""
    return any(field[1] == "answer" for field in _FIELD.finditer(template))


def neutral(text: str, template: str) -> str:
    """Replace brackets of what reads as a tag of the template, and its fences.

    >>> neutral("2 < response  end>, < / a>, <b>, ````", "<Response End> </a> ```")
    "2 ( response  end), ( / a), <b>, '''`"
    """
    for tag in sorted({*_TAG.findall(template)}):
        if tag.startswith("<"):
            letters = re.findall(r"[^\W_]", tag) or [re.escape(tag[1:-1])]
            inside = _FILLER + _FILLER.join(letters) + _FILLER
            text = re.sub(rf"<({inside})>", r"(\1)", text, flags=re.IGNORECASE)
        else:
            text = text.replace(tag, "'''")  # of the same length, by which engines are sized
    return text


def digest(candidate: Candidate) -> str:
    """Return the hash of what is judged: question, gold answer, response and extracted answer."""
    fields = [text.encode() for text in candidate[1:]]
    lengths = repr([*map(len, fields)]).encode()
    return hashlib.blake2b(b"".join([lengths, *fields]), digest_size=12).hexdigest()


def tag(digest: str) -> str:
    """Return the code in the tags of a text with this digest."""
    return digest[:16]


def fill(template: str, candidate: Candidate, normalize: Any = None) -> tuple[str, int, int]:
    """Return the user's turn, and begin and end of the response in it, in characters.

    A field with fill, alignment and width is padded or cut to the width; other braces are LaTeX and
    stay. Tags of the template are neutralized in fields, also those that `normalize` would produce.
    A template without ``{response}`` gets the extracted answer, or if there is none the response.
    ``{tag}`` is a part of the `digest`: no response can contain such a tag.
    """
    coded = "|".join(re.findall(r"<(\w+) \{tag\}>", template))
    template = template.replace("{tag}", tag(digest(candidate)))
    judged = "{response}" if "{response" in template else "{answer}"
    if judged == "{answer}":
        candidate = candidate._replace(answer=candidate.answer or candidate.response)

    def value(field: re.Match[str]) -> str:
        name, filler, alignment, width = field.groups()
        text = getattr(candidate, name)
        if normalize is not None:  # it may also change text without tags, which must stay
            normal = normalize(text)
            neutralized = neutral(normal, template)
            text = text if neutralized == normal else neutralized
        text = neutral(text, template)
        if coded:  # also with another code, or none
            text = re.sub(rf"<(\W*(?:{coded})\b[^<>]*)>", r"(\1)", text, flags=re.IGNORECASE)
        return text if width is None else f"{text[: int(width)]:{filler or ' '}{alignment}{width}}"

    before, response, after = (_FIELD.sub(value, part) for part in template.partition(judged))
    return before + response + after, len(before), len(before) + len(response)


class Prompts:
    """Renders a verifier's prompts, of at most `context` tokens with `more` that follow.

    Raises UserError: there is no fast tokenizer or chat template, or a label has several tokens.
    """

    def __init__(self, cfg: VerifierConfig, tokenizer: Any, context: int, more: int = 1) -> None:
        from tokenizers import Tokenizer

        self.cfg, self.tokenizer, self.template = cfg, tokenizer, read_template(cfg)
        try:
            kwargs = dict(cfg.chat_template_kwargs)
            if cfg.kind != "plain":
                [(frame, _)] = render(tokenizer, [turns(_USER, None)], kwargs, prefix=cfg.prefix)
            else:
                frame = plain(tokenizer, _USER + cfg.prefix).text
        except PromptError as error:
            raise UserError(f"verifier.id={cfg.id}: {error}; a verifier needs one") from error
        parts = frame.split(_USER)
        if len(parts) != 2 or not getattr(tokenizer, "is_fast", False):
            reason = "its chat template does not contain the user's text once, or it has no fast"
            raise UserError(f"verifier.id={cfg.id}: cannot be used: {reason} tokenizer")

        def encoded(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])

        self.before, self.after = map(encoded, parts)
        self.label_ids = list[int]()
        for name, label in vars(cfg.labels).items():
            if label is not None and cfg.kind != "generate":
                *front, last = encoded(parts[1] + label)
                if front != self.after:
                    pieces = tokenizer.convert_ids_to_tokens([*front, last][len(self.after) :])
                    fault = f"must be one token after the prompt; {cfg.id} encodes it to {pieces}"
                    raise UserError(f"verifier.labels.{name}={label}: {fault}")
                self.label_ids.append(last)
        # For fields: the tokenizer without control tokens, whose ids no text may produce.
        all_added = "".join([*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()])
        control = set(control_tokens(tokenizer, all_added))
        raw = json.loads(tokenizer.backend_tokenizer.to_str())
        added = (t for t in raw["added_tokens"] if not t["special"])
        raw["added_tokens"] = [t for t in added if t["content"] not in control]
        raw["truncation"] = raw["padding"] = raw["post_processor"] = None
        self.plain = Tokenizer.from_str(json.dumps(raw))
        self.control = frozenset(tokenizer.convert_tokens_to_ids(sorted(control)))
        self.cut = self.plain.encode(CUT, add_special_tokens=False).ids
        self.space = context - more - len(self.before) - len(self.after)  # for the user's turn

    def build(self, candidates: Sequence[Candidate]) -> list[Prompt]:
        """Render  Raises UserError: one is too long without response, or ill-encoded."""
        normalize = getattr(self.plain.normalizer, "normalize_str", None)
        filled = [fill(self.template, candidate, normalize) for candidate in candidates]
        encodings = self.plain.encode_batch([turn[0] for turn in filled], add_special_tokens=False)
        prompts = []
        for candidate, (text, start, end), code in zip(candidates, filled, encodings, strict=True):
            name = candidate.question_id
            models.check_tokens(self.cfg, self.tokenizer, name, text, code.ids)
            ids = [i for i in code.ids if i not in self.control]
            if cut := len(ids) > self.space:
                pairs = zip(code.ids, code.offsets, strict=True)
                spans = [span for i, span in pairs if i not in self.control]
                inside = [n for n, (a, b) in enumerate(spans) if start <= a <= b <= end]
                first, last = (inside[0], inside[-1] + 1) if inside else (0, 0)
                keep = self.space - (len(ids) - (last - first)) - len(self.cut)
                if keep < 2:
                    detail = f"even without a response, for the verifier's {self.space} tokens"
                    raise UserError(f"{name}: too long, {detail}; use another, or verifier=none")
                ids = [*ids[: first + keep - keep // 2], *self.cut, *ids[last - keep // 2 :]]
            prompts.append(Prompt([*self.before, *ids, *self.after], cut))
        return prompts


def probes(run: Run) -> list[Candidate]:
    """Return the content-free candidates: one per text, or one per question and text."""
    v = run.cfg.verifier
    if v.calibration == "contextual":
        return [Candidate("", text, text, text, text) for text in v.content_free]
    rows = [as_candidate(row) for row in run.questions] if v.calibration == "question" else []
    return [row._replace(response=text) for row in rows for text in v.content_free]


Text = tuple[str, Candidate]  # with its hash


class Plan(NamedTuple):
    """The texts to judge, each once."""

    folder: Path  # of the log-probs
    made_by: dict[str, Any]  # identity of the verifier
    probes: list[Text]  # content-free ones, which come first
    attempts: pa.Table  # of `texts_to_judge`, in the order of their files
    starts: list[int]  # of batches, counted over probes and attempts
    longest: int  # bytes of the longest user turn

    @property
    def work(self) -> Path:
        """Return the folder of the workers' claims and sessions, which Parquet readers skip."""
        return self.folder / WORK

    @property
    def names(self) -> list[str]:
        """Return the hashes of all texts."""
        return [*(name for name, _ in self.probes), *self.attempts["judged"].to_pylist()]

    def span(self, batch: int) -> range:
        """Return the texts of a batch."""
        total = len(self.probes) + len(self.attempts)
        return range(*[*self.starts, total][batch : batch + 2])


@shards.relisted
def texts_to_judge(run: Run, template: str) -> pa.Table:
    """Return all attempts, ordered by question and trial, with the hash of what is judged of each.

    Columns: `key` (`tables.encode`), `part` (stem of its file), `judged` (hash of its text; empty:
    unreadable), `bytes` of the text, `place` (its position in the order of files), `truth`
    (`true_labels`), and grades. With judge=unmatched only what the rule grader does not accept.
    """
    judge, listed = run.cfg.dataset.judge, parts(run.attempts)
    with_answer = uses_answer(template)
    keys_by_part = [keys_of(run, part) for part in listed]
    stems = np.repeat([part.stem for part in listed], [*map(len, keys_by_part)])
    keys, first = np.unique(np.concatenate(keys_by_part), return_index=True)
    keys, first = keys[keys >= 0], first[keys >= 0]
    grades = outcomes.ruled(run, ["outcome", "box", *["answer"] * with_answer])
    grades = tables.aligned(run, grades, keys)
    attempts = pa.table({"key": keys, "part": stems[first]} | grades)
    if (ungraded := attempts["outcome"].null_count) and (judge == "unmatched" or with_answer):
        remedy = "judge=unmatched and prompts with {answer} need grades: run `grade` first"
        raise UserError(f"{run.path}: {ungraded} attempts are not graded; {remedy}")
    if judge == "unmatched":
        decided = outcomes.decided_by_verifier(judge, attempts["outcome"], attempts["box"])
        attempts = attempts.filter(decided)
    hashes = np.zeros(len(attempts), "S24")
    sizes, positions = np.zeros((2, len(attempts)), np.int64)
    for position, (i, candidate) in enumerate(candidates(run, attempts)):
        hashes[i], positions[i] = digest(candidate), position
        sizes[i] = sum(len(field.encode()) for field in candidate[1:])
    truth = calibrate.true_labels(attempts["outcome"], run)
    made = {"judged": pa.array(hashes).cast(pa.string()), "bytes": sizes, "place": positions}
    return pa.table(
        {name: attempts[name] for name in attempts.column_names} | made | {"truth": truth}
    )


def candidates(run: Run, attempts: pa.Table, few: bool = False) -> Iterator[tuple[int, Candidate]]:
    """Yield the index and the candidate of each attempt, with options in the attempt's order.

    A judge that writes gets the answer after the reasoning. `few`: see `tables.responses`.
    """
    damage, keys = shards.Damage(), attempts["key"].to_pylist()
    writes, end = run.cfg.verifier.kind == "generate", run.cfg.model.reasoning_end
    answers = attempts["answer"].to_pylist() if "answer" in attempts.column_names else []
    for i, text in tables.responses(run, attempts["key"].to_numpy(), damage, few):
        question, trial = run.questions[keys[i] >> 32], keys[i] & 0xFFFFFFFF
        presented = runfolder.as_presented(run.cfg, question, trial)
        extracted = runfolder.presented_letter(presented, answers[i] or "") if answers else ""
        if writes:
            start = final_part(text, end)
            text = "" if start is None else text[start:].strip()
        yield i, as_candidate(presented)._replace(response=text, answer=extracted)
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are sampled again")


def distinct(attempts: pa.Table, judged: Sequence[str]) -> pa.Table:
    """Return one attempt for each text that is not in `judged`, in the order of files."""
    rest = attempts.filter(pc.invert(pc.is_in(attempts["judged"], value_set=pa.array(judged))))
    first = np.unique(rest["judged"].to_numpy().astype("S"), return_index=True)[1]
    return rest.take(first).sort_by("place")


def batches(sizes: Sequence[int], workers: int) -> list[int]:
    """Divide texts into batches by their bytes; return where each begins.

    >>> batches([10, 10, CHARACTERS, 10], 1), len(batches([10] * 3000, 1))
    ([0, 3], 3)
    """
    most = ROWS if workers == 1 else min(ROWS, 1 + len(sizes) // (_EACH * workers))
    starts, first, size = list[int](), 0, 0
    for i, bytes_ in enumerate(sizes, 1):
        size += bytes_
        if i - first >= most or size >= CHARACTERS or i == len(sizes):
            starts.append(first)
            first, size = i, 0
    return starts


def read_batch(run: Run, plan: Plan, batch: int) -> list[Text]:
    """Read the texts of a batch, sorted by question, without unreadable ones."""
    span, n = plan.span(batch), len(plan.probes)
    texts = plan.probes[span.start : span.stop]
    if span.stop > n:
        first = max(0, span.start - n)
        attempts = plan.attempts.slice(first, span.stop - n - first)
        names = attempts["judged"].to_pylist()
        texts += [(names[i], candidate) for i, candidate in candidates(run, attempts, few=True)]
    return sorted(texts, key=lambda text: text[1].question)  # so that they share cached prefixes
