"""The tiny verifier in demo/: judges real outputs and made ones, one token at the answer slot."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import verifier_task
from helpers import ROOT
from verifier_task import LABELS, Case

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts, read_template

VERIFIER = ROOT / "demo" / "verifier"
TEMPLATE = verifier_task.TEMPLATE


def said(cases: Sequence[Case]) -> np.ndarray:
    """Probabilities (n, 3) of the labels at the answer slot, whose mass must be near 1."""
    import torch
    from train_demo import chat, load
    from train_verifier import label_ids

    model, tokenizer = load(VERIFIER, padding_side="left")
    prompts = [chat(tokenizer, verifier_task.turn(TEMPLATE, case)) for case in cases]
    labels = label_ids(tokenizer, prompts[0])
    options = {"add_special_tokens": False, "padding": True, "return_token_type_ids": False}
    found = np.empty((len(prompts), 3))
    alike = np.argsort([*map(len, prompts)])  # little is padded where lengths are near
    for some in np.array_split(alike, -(-len(prompts) // 32)):
        batch = tokenizer([prompts[i] for i in some], return_tensors="pt", **options)
        with torch.no_grad():
            logits = model(**batch, logits_to_keep=1).logits[:, -1]
        found[some] = logits.double().softmax(-1)[:, labels].numpy()
    assert found.sum(1).min() > 0.98
    return found


def made(seed: int, count: int, template: str = "", talk: float = 0.0) -> list[Case]:
    stream = (c for c in verifier_task.cases(seed, template, talk) if c.kind != "free")
    return list(itertools.islice(stream, count))


def test_every_way_to_be_invalid_is_recognised() -> None:
    cases = [c for c in made(78, 350) if c.label == "C"]
    right = said(cases).argmax(1) == 2
    kinds = np.array([case.kind for case in cases])
    assert {"cut", "open box", "loop", "no box", "refusal", "noise", "circles"} <= {*kinds}
    assert all(right[kinds == kind].mean() > 0.75 for kind in kinds)


def test_a_response_cannot_talk_it_into_a_label() -> None:
    cases = [c for c in made(79, 200, TEMPLATE, talk=1.0) if c.label != "A"]
    said_of = said(cases).argmax(1)
    for i, label in enumerate("BC", start=1):
        assert (said_of[[c.label == label for c in cases]] == i).mean() > 0.75


def test_the_stage_makes_the_tokens_it_was_trained_on() -> None:
    import train_verifier
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(VERIFIER)
    cfg = compose.load(["verifier=demo"]).verifier
    assert Path(cfg.id) == VERIFIER
    prompts = Prompts(cfg, tokenizer, context=8192)
    assert read_template(cfg) == TEMPLATE
    cases = made(80, 200, TEMPLATE, talk=0.3)
    built = prompts.build([Candidate("", c.question, c.gold, c.response, c.answer) for c in cases])
    texts = [train_verifier.chat(tokenizer, verifier_task.turn(TEMPLATE, c)) for c in cases]
    for text, prompt in zip(texts, built, strict=True):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == prompt.token_ids
        assert not prompt.cut
    labels = train_verifier.label_ids(tokenizer, texts[0])
    assert labels == prompts.label_ids
    assert tokenizer.convert_ids_to_tokens(labels) == list(LABELS)


def test_training_cases_hold_no_demo_question_and_no_wrong_label() -> None:
    held_out = {row["problem"] for row in verifier_task.demo_questions()}
    cases = list(itertools.islice(verifier_task.cases(81, TEMPLATE), 3000))
    assert held_out.isdisjoint(case.question for case in cases)
    for case in cases:
        if case.kind == "right":
            assert case.answer == case.gold
        elif case.kind == "wrong":
            assert case.answer not in (case.gold, "")
        elif case.kind not in ("free", "circles"):
            assert case.answer == "" and case.label == "C"
