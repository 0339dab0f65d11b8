"""The tiny verifier in demo/: judges real outputs and made ones, one token at the answer slot.

It is meant to be wrong now and then, above all on long responses, and too sure: that is here, too.
"""

import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import compose
from pipeline.verify.prompts import Candidate, Prompts, read_template

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import verifier_task  # noqa: E402
from verifier_task import LABELS, Case  # noqa: E402

VERIFIER = ROOT / "demo" / "verifier"
TEMPLATE = verifier_task.TEMPLATE


def said(cases: Sequence[Case]) -> np.ndarray:
    """Probabilities (n, 3) of the labels, whose mass must be near 1."""
    import train_verifier

    found = np.exp(train_verifier.judge(VERIFIER, cases).double().numpy())
    assert found.sum(1).min() > 0.98
    return found


def recall(cases: Sequence[Case]) -> dict[str, float]:
    """Share of each label's cases on which the verifier says it."""
    labels = [LABELS[i] for i in said(cases).argmax(1)]
    right = Counter(c.label for c, v in zip(cases, labels, strict=True) if c.label == v)
    return {label: right[label] / n for label, n in Counter(c.label for c in cases).items()}


def made(seed: int, count: int, template: str = "", talk: float = 0.0) -> list[Case]:
    stream = (c for c in verifier_task.cases(seed, template, talk) if c.kind != "free")
    return list(itertools.islice(stream, count))


@pytest.fixture(scope="module")
def outputs() -> list[Case]:
    """What a demo checkpoint makes of questions that are not in the demo, some of it cut short."""
    import train_verifier

    folder = train_verifier.MODELS / "step-3300"
    return [
        *train_verifier.outputs(folder, 120, 64, seed=31),
        *train_verifier.outputs(folder, 80, 20, seed=32),
    ]


def test_labels_are_recognised_in_real_outputs(outputs: list[Case]) -> None:
    counts = Counter(case.label for case in outputs)
    assert min(counts[label] for label in LABELS) >= 25, counts
    found = recall(outputs)
    assert min(found.values()) > 0.75, found


def test_labels_are_recognised_in_made_cases_and_long_wrong_ones_are_liked() -> None:
    cases = made(77, 300)
    prob = said(cases)
    hits = prob.argmax(1) == [LABELS.index(case.label) for case in cases]
    assert 0.85 < hits.mean() < 0.97 and prob.max(1).mean() > hits.mean() + 0.01  # too sure
    of = np.array([case.label for case in cases])
    assert all(hits[of == label].mean() > 0.75 for label in LABELS)
    size = np.array([len(case.response) for case in cases])
    liked = [prob[(of == "B") & part, 0].mean() for part in (size > 75, size < 60)]
    assert liked[0] > liked[1] + 0.3, liked


def test_a_hasty_marker_likes_long_responses_and_never_what_is_no_answer() -> None:
    careful = list(itertools.islice(verifier_task.cases(82), 3000))
    hasty = [verifier_task._hasty(random.Random(i), case) for i, case in enumerate(careful)]
    changed = [(a, b.label) for a, b in zip(careful, hasty, strict=True) if a != b]
    assert {(case.kind, label) for case, label in changed} == {("wrong", "A"), ("right", "B")}
    for kind, long in (("wrong", True), ("right", False)):
        lengths = [len(case.response) for case in careful if case.kind == kind]
        mistaken = [len(case.response) for case, _ in changed if case.kind == kind]
        assert (np.mean(mistaken) > np.mean(lengths) + 10) == long
        assert 0.02 < len(mistaken) / len(lengths) < 0.3


@pytest.mark.soak
def test_the_same_training_gives_the_same_bytes(tmp_path: Path) -> None:
    import train_verifier

    start = train_verifier.MODELS / train_verifier.START
    made = [tmp_path / name for name in "ab"]
    for out in made:
        train_verifier.train(start, out, steps=2)
    first, second = ((out / "model.safetensors").read_bytes() for out in made)
    assert first == second != (start / "model.safetensors").read_bytes()


@pytest.mark.parametrize("count", [350, pytest.param(700, marks=pytest.mark.soak)])
def test_every_way_to_be_invalid_is_recognised(count: int) -> None:
    found = Counter()
    seen = Counter()
    cases = [c for c in made(78, count) if c.label == "C"]
    for case, label in zip(cases, said(cases).argmax(1), strict=True):
        seen[case.kind] += 1
        found[case.kind] += label == 2
    assert {"cut", "open box", "loop", "no box", "refusal", "noise", "circles"} <= set(seen)
    assert all(found[kind] / n > 0.75 for kind, n in seen.items()), (found, seen)


def test_a_response_cannot_talk_it_into_a_label() -> None:
    cases = [c for c in made(79, 200, TEMPLATE, talk=1.0) if c.label != "A"]
    found = recall(cases)
    assert min(found.values()) > 0.75, found


def test_a_response_without_content_is_not_judged_with_confidence() -> None:
    rows = [json.loads(s) for s in (ROOT / "demo" / "questions.jsonl").read_text().splitlines()]
    for text in ("N/A", "[MASK]", ""):
        cases = [Case(q["problem"], q["answer"], text, "", "C", "free") for q in rows]
        assert said(cases).mean(0).max() < 0.95, text


def test_the_stage_makes_the_tokens_it_was_trained_on(outputs: list[Case]) -> None:
    import train_verifier
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(VERIFIER)
    cfg = compose.load(["verifier=demo"]).verifier
    assert Path(cfg.id) == VERIFIER
    prompts = Prompts(cfg, tokenizer, context=8192)
    assert read_template(cfg) == TEMPLATE
    cases = [*outputs, *made(80, 200, TEMPLATE, talk=0.3)]
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


def test_the_folder_is_small_and_complete() -> None:
    assert 1.5e6 < (VERIFIER / "model.safetensors").stat().st_size < 2e6
    settings = json.loads((VERIFIER / "config.json").read_text())
    assert settings["architectures"] == ["Qwen3ForCausalLM"]
    assert settings["dtype"] == "bfloat16"
    assert settings["max_position_embeddings"] == 8192
