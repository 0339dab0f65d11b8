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
from helpers import demo_questions

from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts, read_template
from bayes_at_n.verifiers import extract

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import verifier_task  # noqa: E402
from verifier_task import LABELS, Case  # noqa: E402

VERIFIER = ROOT / "demo" / "verifier"
TEMPLATE = verifier_task.TEMPLATE


def sampled(folder: Path, problems: Sequence[str], limit: int) -> list[tuple[str, bool]]:
    """An attempt at every problem, T = 0.6, top-p = 0.95: the text, and whether it ended."""
    import torch
    from train_demo import chat, load, user_turn

    model, tokenizer = load(folder, padding_side="left")
    prompts = [chat(tokenizer, user_turn(problem)) for problem in problems]
    inputs = tokenizer(prompts, padding=True, return_tensors="pt", return_token_type_ids=False)
    how: Any = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 0}
    with torch.no_grad():
        output = model.generate(**inputs, **how, max_new_tokens=limit)
    output = output[:, inputs["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(output, skip_special_tokens=True)
    ended = (output == tokenizer.eos_token_id).any(1).tolist()
    return list(zip(texts, ended, strict=True))


def attempted(folder: Path, count: int, limit: int, seed: int) -> list[Case]:
    """An attempt of a demo checkpoint, of at most `limit` tokens, at each of `count` new questions.

    The label is C when the attempt was cut or has no box, else A if the last box is the gold
    answer, as a string, else B.
    """
    import torch

    rng = random.Random(seed)
    torch.manual_seed(seed)
    families = list(verifier_task.FAMILIES.values())
    drawn = (rng.choice(families).make(rng) for _ in itertools.count())
    new = (item for item in drawn if item.problem not in verifier_task.HELD_OUT)
    items = list(itertools.islice(new, count))
    attempts = sampled(folder, [item.problem for item in items], limit)
    labelled = []
    for item, (text, ended) in zip(items, attempts, strict=True):
        answer = extract(text, truncated=not ended).answer or ""
        label = "C" if not answer else "A" if answer == item.answer else "B"
        labelled.append(Case(item.problem, item.answer, text, answer, label, "real"))
    return labelled


def judged(cases: Sequence[Case]) -> Any:
    """Log-probabilities of A, B and C at the answer slot, float32 (cases, 3)."""
    import torch
    from train_demo import chat, load
    from train_verifier import label_ids

    model, tokenizer = load(VERIFIER, padding_side="left")
    prompts = [chat(tokenizer, verifier_task.turn(TEMPLATE, case)) for case in cases]
    labels = label_ids(tokenizer, prompts[0])
    options = {"add_special_tokens": False, "padding": True, "return_token_type_ids": False}
    found = torch.empty(len(prompts), 3)
    alike = np.argsort([*map(len, prompts)])  # little is padded where lengths are near
    for some in np.array_split(alike, -(-len(prompts) // 32)):
        batch = tokenizer([prompts[i] for i in some], return_tensors="pt", **options)
        with torch.no_grad():
            logits = model(**batch, logits_to_keep=1).logits[:, -1]
        found[some] = logits.log_softmax(-1)[:, labels].float()
    return found


def said(cases: Sequence[Case]) -> np.ndarray:
    """Probabilities (n, 3) of the labels, whose mass must be near 1."""
    found = np.exp(judged(cases).double().numpy())
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
    return [*attempted(folder, 120, 64, seed=31), *attempted(folder, 80, 20, seed=32)]


def test_labels_are_recognised_in_real_outputs(outputs: list[Case]) -> None:
    counts = Counter(case.label for case in outputs)
    assert min(counts[label] for label in LABELS) >= 25, counts
    found = recall(outputs)
    assert min(found.values()) > 0.75, found


@pytest.mark.soak
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
    rows = demo_questions()
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
