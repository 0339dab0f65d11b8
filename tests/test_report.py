"""The report in a real browser: it loads from disk, asks nothing, sorts, filters, shows attempts.

What models wrote is hostile here: it must be shown, and run nothing.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import Capsys, add_grades, add_verdicts, change_attempts, make_run, make_tokenizer

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare.cohort import from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.report import build, data, figures, overview, single, texts, tokens
from bayes_at_n.pipeline.rubrics import rubric, signals
from bayes_at_n.pipeline.store import graded, parquet, runfolder

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HOSTILE = [
    "<script>window.owned=1</script> \\boxed{2}",
    "<img src=x onerror='window.owned=1'> \\boxed{2}",
    "</script><script>window.owned=1</script> \\boxed{2}",
    "[x](javascript:window.owned=1) $\\href{javascript:window.owned=1}{x}$ \\boxed{2}",
    "$\\text{<img src=x onerror=window.owned=1>}$ \u2028window.owned=1\u2029 \\boxed{2}",
    "*/window.owned=1;/*`${window.owned=1}` \U0001d465 \\(x_1 < \\frac{1}{2}\\) \\boxed{2}",
]
# Expressions that grow, that fill a page or that lead out of it, and sound ones.
GROWING = r"\def\a{xxxxxxxx}\def\b{\a\a\a\a\a\a\a\a}\def\c{\b\b\b\b\b\b\b\b}\c\c\c\c\c\c\c\c"
MATHS = [
    r"\mathbb{R}+\mathbf{v}",
    r"\hspace{2em}x",
    GROWING,
    *("{" * 290 + "}" * 290, "x" + "'" * 500, "&" * 600, "\\frac" * 100, "\\left(" * 90, "é" * 590),
    *(r"\rule{99999em}{9999em}", r"\hspace{-9999em}x", r"\hspace{1e9em}", r"\Huge\kern999em y"),
    *(r"\href{javascript:window.owned=1}{x}", r"\url{javascript:window.owned=1}"),
    *(r"\htmlStyle{color:red}{y}", r"\htmlData{x=1,onclick=window.owned=1}{y}", r"\color{red}z"),
    r"\includegraphics[height=9em]{javascript:window.owned=1}",
    r"\text{</mtext><img src=x onerror=window.owned=1><script>window.owned=1</script>}",
]
BOX = "\\boxed{2}"
MARKS = {"q<b>1": "110~1u", "q2": "010101", "q/3": "-+1111"}


def verdicts(run: Any, rows: dict[tuple[str, int], tuple[float, float, float]]) -> None:
    """A verifier's table made by hand, raw and calibrated alike."""
    table = []
    for (qid, trial), three in rows.items():
        row: dict[str, Any] = {"question_id": qid, "trial": trial}
        for letter, share in zip("abc", three, strict=True):
            row |= {letter: share, f"raw_{letter}": share, f"direct_{letter}": share}
            row |= {f"logprob_{letter}": float(np.log(share)), f"base_{letter}": 0.0}
        best = "ABC"[int(np.argmax(three))]
        table.append(row | {"mass": 1.0, "label": best, "tokens": 9, "cut": False})
    add_verdicts(run, table)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one data set and one of another; the first writes hostile texts."""
    root = tmp_path_factory.mktemp("report") / "runs"
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(root.parent / "model")
    texts = {
        "q<b>1": HOSTILE,
        "q2": [f"<think>{t}</think> so $x=2$, \\boxed{{2}}" for t in HOSTILE],
    }
    more = {"other": {"z": ["".join(f"${source}$ " for source in MATHS), "\\boxed{2}"]}}
    for dataset, name, marks in (
        ("set", "evil", MARKS),
        ("set", "plain", MARKS),
        ("other", "evil", {"z": "10"}),
    ):
        run = make_run(
            root / dataset / name,
            marks,
            f"dataset.name={dataset}",
            f"model.id={root.parent / 'model'}",
            texts=texts if dataset == "set" and name == "evil" else more.get(dataset),
        )
        if name == "evil" and dataset == "set":
            retoken(run, tokenizer)
            keys = [(qid, t) for qid, line in marks.items() for t in range(len(line))]
            verdicts(run, {key: (0.9, 0.06, 0.04) for key in keys})
        signals.make(run)
    return root


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty figures: drawing them takes longer than all else."""
    monkeypatch.setattr(figures.style, "svg", lambda drawn: "<svg></svg>")


def retoken(run: Any, tokenizer: Any) -> None:
    """Give every attempt the tokens that its text really has, with log-probs that rise."""

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        ids = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        row["token_ids"], row["completion_tokens"] = [*ids, tokenizer.eos_token_id], len(ids) + 1
        return row | {"logprobs": [-0.02 * i for i in range(len(ids) + 1)]}

    change_attempts(run, changed)


@pytest.fixture(scope="module")
def index_html(runs: Path) -> Path:
    cfg = analysis.load([f"runs={runs}", f"out={runs.parent / 'out'}", "dataset=set,other"])
    build.report(cfg)
    return runs.parent / "out" / "index.html"


@pytest.fixture
def copied(index_html: Path, tmp_path: Path) -> Path:
    """The page in a folder of its own, for tests that change its files."""
    return shutil.copytree(index_html.parent, tmp_path / "out") / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here (chromium, chromium-browser or google-chrome)")
    api = pytest.importorskip("playwright.sync_api")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=root)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def watched(browser: Any) -> tuple[Any, list[str]]:
    """A page, and what is wrong in it: console errors, exceptions, requests that are no file."""
    opened = browser.new_page()
    wrong: list[str] = []
    opened.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith("file:") else wrong.append(r.url))
    return opened, wrong


@pytest.fixture
def page(watched: tuple[Any, list[str]], index_html: Path) -> Iterator[Any]:
    """The report as in a new window, where nothing may go wrong."""
    opened, wrong = watched
    opened.set_viewport_size({"width": 1200, "height": 800})
    opened.emulate_media(color_scheme="light")
    wrong.clear()
    opened.goto(index_html.as_uri())
    yield opened
    assert not wrong
    assert opened.evaluate("window.owned") is None
    opened.evaluate("localStorage.clear()")
    opened.goto("about:blank")


def go(page: Any, *parts: str | int) -> None:
    """Follow the address of an attempt, and wait until it is shown."""
    page.evaluate(
        "parts => { location.hash = parts.map(encodeURIComponent).join('/'); }",
        list(map(str, parts)),
    )
    page.wait_for_selector(f"#attempt h3:has-text('{parts[2]} · trial {parts[3]}')")


def expect(what: Any) -> Any:
    """Assertions that wait until they are true."""
    from playwright.sync_api import expect as of_playwright

    return of_playwright(what)


@pytest.mark.browser
def test_tables_sort_by_click_and_keyboard(page: Any) -> None:
    page.click("role=tab[name='set']")
    head = page.locator("#panel-1 .sortable thead button").first
    names = page.locator("#panel-1 table.sortable").first.locator("tbody th")
    head.click()
    expect(names).to_have_text(["evil", "plain"])
    first = page.locator("#panel-1 .sortable thead th").first
    expect(first).to_have_attribute("aria-sort", "ascending")
    head.press("Enter")
    expect(names).to_have_text(["plain", "evil"])
    expect(first).to_have_attribute("aria-sort", "descending")


@pytest.mark.browser
def test_hostile_texts_are_shown_and_run_nothing(page: Any) -> None:
    for trial, text in enumerate(HOSTILE):
        go(page, "set", "evil", "q<b>1", trial)
        for mode in ("Text", "Token heat"):
            page.click(f"role=button[name='{mode}']")
            expect(page.locator(f"button:text-is('{mode}')[aria-pressed=true]")).to_have_count(1)
            shown = page.locator("[aria-label=Response] .prose").text_content()
            assert text.split()[0].removeprefix("$\\text{") in shown.split()[0]
        assert shown == text  # the heat leaves every character where it was
        expect(page.locator("#attempt script, #attempt img, #attempt section a")).to_have_count(0)


@pytest.mark.browser
def test_mathematics_is_drawn_in_the_page_from_sound_parts_alone(page: Any) -> None:
    go(page, "other", "evil", "z", 0)
    page.click("role=button[name='Text']")
    prose = page.locator("[aria-label=Response] .prose")
    page.wait_for_selector("[aria-label=Response] .prose mtext")
    parts = prose.evaluate(
        "prose => [...prose.querySelectorAll('*')].map((part) => [part.localName,"
        " part.namespaceURI, [...part.attributes].map(({ name, value }) => [name, value])])"
    )
    source = (build.FOLDER / "maths.js").read_text(encoding="utf-8")
    tags, attributes = (
        set(found.split()) for found in re.findall(r"new Set\(`([^`]+)`\.split", source)
    )
    drawn = [part for part in parts if part[0] not in ("mark", "div")]
    assert len(drawn) > 100 and {name for name, _, _ in drawn} <= {*tags, "math"}
    assert {namespace for _, namespace, _ in drawn} == {"http://www.w3.org/1998/Math/MathML"}
    given = [pair for _, _, pairs in drawn for pair in pairs]
    assert {name for name, _ in given} <= attributes and ["width", "2em"] in given
    lengths = [float(n) for _, value in given for n in re.findall(r"(-?[\d.]+)em", value)]
    assert max(map(abs, lengths)) <= 20
    text = prose.text_content()
    assert "ℝ+𝐯" in text and "onerror" in text and GROWING in text  # the last as it was written
    for kept in MATHS[-7:-2]:  # links, and what names attributes
        assert kept in text or "color" in kept


def test_the_library_of_mathematics_is_the_published_one() -> None:
    """The checksum is the one by which pages that load KaTeX 0.16.22 from elsewhere know it."""
    library = (build.FOLDER / "katex.min.js").read_bytes().partition(b"*/\n")[2]
    digest = base64.b64encode(hashlib.sha384(library).digest()).decode()
    assert digest == "cMkvdD8LoxVzGF/RPUKAcvmm49FQ0oxwDF3BGKtDXcEc+T1b2N+teh/OJfpU0jr6"


@pytest.mark.browser
def test_an_attempt_shows_answer_mathematics_verdicts_and_categories(page: Any) -> None:
    go(page, "set", "evil", "q2", 5)
    expect(page.locator("mark")).to_have_text("2")
    expect(page.locator("[aria-label=Response] math")).to_have_count(2)  # x = …, and the box
    expect(page.locator("[aria-label=Grader]")).to_contain_text("✓ correct")
    verifier = page.locator("[aria-label=Verifier]")
    expect(verifier).to_contain_text("0.900")
    expect(verifier).not_to_contain_text("Disagrees")
    go(page, "set", "evil", "q2", 4)
    expect(verifier).to_contain_text("Disagrees")


@pytest.mark.browser
def test_long_reasoning_is_folded_and_drawn_when_seen(browser: Any, copied: Path) -> None:
    [path] = copied.parent.glob("attempts/*/0-0-0.js")
    of_texts, lines = value(path), "so $x_1 = 2$, as it was\n\n" * 5_000
    for row, end in zip(
        ("1/0", "1/1", "1/2"), ("</think>", "<|channel|>final<|message|>", ""), strict=True
    ):
        text = f"<think>{lines}{end}" + (f"Then {BOX}, no: {BOX}." if end else "")
        of_texts["rows"][row] |= {"text": text, "lengths": None}
    path.write_text(f'bayesReport("0-0-0",{json.dumps(of_texts)});\n')
    page = browser.new_page()
    page.goto(f"{copied.as_uri()}#set/evil/q2/0")
    fold, mark = page.locator("details.reasoning"), page.locator("[aria-label=Response] mark")
    expect(fold).not_to_have_attribute("open", "")
    expect(fold.locator("summary")).to_contain_text("Reasoning: 125,015 of 125,045 characters")
    mark.wait_for()
    expect(fold.locator("math")).to_have_count(0)
    fold.locator("summary").click()
    fold.locator("math").first.wait_for()
    assert fold.locator("math").count() < 500  # of 5,000: what is near the screen
    expect(mark).not_to_be_in_viewport()
    page.keyboard.press("a")
    expect(mark).to_be_in_viewport()
    colours = page.locator("[aria-label=Response] [data-kind]")
    expect(colours).to_have_attribute("data-kind", "bad")
    wrong = mark.evaluate("mark => getComputedStyle(mark).backgroundColor")
    go(page, "set", "evil", "q2", 1)  # correct, and in Harmony's channels: no marker of this model
    expect(colours).to_have_attribute("data-kind", "good")
    expect(fold.locator("summary")).to_contain_text("Reasoning: ")
    assert wrong != mark.evaluate("mark => getComputedStyle(mark).backgroundColor")
    go(page, "set", "evil", "q2", 2)
    expect(fold).to_have_attribute("open", "")
    expect(fold.locator("summary")).to_contain_text("without an end")
    page.close()


@pytest.mark.browser
def test_the_heat_reads_each_token(page: Any) -> None:
    go(page, "set", "evil", "q<b>1", 0)
    page.keyboard.press("t")
    token = page.locator("[aria-label=Response] [data-i='25']")
    token.click()
    expect(token).to_have_text(HOSTILE[0][25])
    said = page.locator(".legend [role=status]")
    expect(said).to_contain_text("token 25: ")
    nats = re.search(r"−(\d\.\d+)", said.inner_text())
    assert nats is not None and float(nats[1]) == pytest.approx(0.5, abs=0.06)
    page.keyboard.press("t")
    expect(page.locator("[aria-label=Response] [data-i]")).to_have_count(0)


@pytest.mark.browser
def test_filters(page: Any, runs: Path) -> None:
    go(page, "set", "evil", "q2", 0)

    def found(number: int) -> None:
        expect(page.locator("#list-count")).to_have_text(f"{number} of {2 * everything} attempts")

    everything = sum(map(len, MARKS.values()))
    expect(page.locator("#list-count")).to_have_text("6 of 12 attempts")
    page.select_option("#by-question", "-1")
    found(everything)
    page.select_option("#by-outcome", "correct")
    found(sum(line.count("1") for line in MARKS.values()))
    page.select_option("#by-outcome", "")
    page.select_option("#by-agreement", "verifier")  # the verifier said A of all of them
    found(everything - sum(line.count("1") + line.count("+") for line in MARKS.values()))
    page.select_option("#by-agreement", "")
    page.select_option("#by-end", "1")
    found(1)
    page.select_option("#by-end", "")
    page.fill("#by-to", "0.6")
    run = runfolder.Run(load_folder(runs / "set" / "evil", []))
    bits = signals.read(run)["completion_bpt"].to_numpy()
    few = int((bits <= 0.6).sum())
    assert 0 < few < everything
    found(few)
    page.click("#filters button[type=reset]")
    page.wait_for_selector(f"#list li:nth-child({2 * everything})")


@pytest.mark.browser
def test_filters_live_in_the_address_over_all_models(page: Any, index_html: Path) -> None:
    go(page, "set", "evil", "q2", 0)
    page.click("#filters button[type=reset]")
    count, rows = page.locator("#list-count"), page.locator("#list a")
    expect(count).to_have_text("36 of 36 attempts")
    models = page.locator("#by-model option")
    expect(models).to_have_text(["all models (36)", "evil (18)", "plain (18)"])
    page.select_option("#by-outcome", "correct")
    expect(count).to_have_text("20 of 36 attempts")  # 10 ones each
    expect(models).to_have_text(["all models (20)", "evil (10)", "plain (10)"])
    expect(page.locator("#by-outcome option:checked")).to_have_text("correct (20)")
    expect(page.locator("#attempt h3").first).to_have_text("No attempt is open")  # it was wrong
    before = rows.first.text_content()
    page.select_option("#by-sort", "long")
    expect(rows.first).not_to_have_text(before)
    page.keyboard.press("j")
    page.wait_for_selector("#attempt h3:has-text('trial')")
    address = page.url
    assert "sort=long" in address and "outcome=correct" in address and "models=all" in address
    first = rows.first.inner_text()
    page.goto("about:blank")
    page.goto(address)  # as a link that somebody was sent
    expect(count).to_have_text("20 of 36 attempts")
    expect(rows.first).to_have_attribute("aria-current", "true")
    assert rows.first.inner_text() == first
    tokens = [int(line.split(" tok")[0].split()[-1]) for line in rows.all_inner_texts()]
    assert tokens == sorted(tokens, reverse=True) and len({*tokens}) > 2
    page.fill("#by-text", "=2")
    expect(count).to_have_text("20 of 36 attempts")
    page.fill("#by-text", "Q/3")
    expect(count).to_have_text("8 of 36 attempts")
    page.fill("#by-text", "onerror")
    expect(count).to_have_text("0 of 36 attempts")
    expect(page.locator("#attempt")).to_contain_text("No attempt passes these filters")
    expect(page.locator("#attempt [aria-label=Response]")).to_have_count(0)  # nothing stale
    page.select_option("#by-outcome", "")
    page.select_option("#by-in", "responses")
    expect(count).to_have_text("4 of 36 attempts")  # two of q<b>1, two of q2: in texts alone
    page.go_back()
    expect(page.locator("#by-in")).to_have_value("")
    expect(count).to_have_text("0 of 36 attempts")


@pytest.mark.browser
def test_a_question_shows_who_answered_what_and_leads_to_attempts_and_back(page: Any) -> None:
    go(page, "set", "evil", "q/3", 2)
    page.keyboard.press("q")
    expect(page).to_have_title("q/3, all answers")
    expect(page.locator("[aria-label=Problem]")).to_contain_text("the problem of q/3")
    expect(page.locator("[aria-label=Problem] dd")).to_have_text(["2", "8 of 12 attempts"])
    lines = page.locator(".answers tbody tr")
    shown = [[*map(str.strip, line.split("\t"))] for line in lines.all_inner_texts()]
    assert ["✓ 2", "8", "4", "4"] in shown and len(shown) == 3
    cells = page.locator(".strips tr").first.locator("td a")
    expect(cells).to_have_count(6)
    expect(cells.nth(2)).to_have_attribute("title", "trial 2: correct, 2")
    lines.first.locator("a").nth(2).click()  # those of the second model
    expect(page.locator("#list-count")).to_have_text("4 of 12 attempts")
    expect(page.locator(".strips .pale")).to_have_count(8)
    expect(lines.first).to_have_attribute("aria-current", "true")
    page.locator(".strips a[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#attempt h3:has-text('plain · q/3 · trial 2')")
    page.go_back()
    expect(page).to_have_title("q/3, all answers")
    page.keyboard.press("p")
    expect(page).to_have_title("q2, all answers")


@pytest.mark.browser
def test_many_trials_share_cells_and_lists_begin_near_one(browser: Any, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "set" / "one", {"q": "10-" * 150}, "dataset.name=set")
    out = build.write(*_loaded([f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'out'}"]))
    page = browser.new_page()
    page.goto(f"{out.as_uri()}#set//q")
    cells = page.locator(".strips td a")
    expect(cells).to_have_count(150)
    title = "trials 447 to 449: 1 correct, 1 wrong, 1 without a valid answer"
    expect(cells.last).to_have_attribute("title", title)
    go(page, "set", "one", "q", 349)
    rows = page.locator("#list a")
    expect(rows).to_have_count(200)
    expect(rows.first).to_contain_text("trial 249")
    page.click("#earlier")
    expect(rows).to_have_count(400)
    page.click("#earlier")
    expect(rows.first).to_contain_text("trial 0")
    expect(page.locator("#earlier")).to_be_hidden()
    page.close()


def _loaded(settings: list[str]) -> tuple[Any, Any]:
    cfg = analysis.load(settings)
    return cohorts_of.load(cfg), cfg


@pytest.mark.browser
def test_disagreements_are_one_list_the_surest_first(page: Any, index_html: Path) -> None:
    [path] = index_html.parent.glob("attempts/*/0-i0.js")
    index = value(path)
    right = [index["outcome"]["values"][code] == "correct" for code in index["outcome"]["codes"]]
    judged = [
        i for i, a in enumerate(index["a"]) if a is not None and index["outcome"]["codes"][i] >= 0
    ]
    differ = [i for i in judged if right[i] is not True]  # the verifier says A of all
    page.click("role=tab[name='set']")
    link = page.locator("#panel-1 a:text('read them')")
    expect(link.locator("xpath=..")).to_contain_text(f"{len(differ)} of {len(judged)} attempts")
    link.click()
    expect(page.locator("#list a")).to_have_count(len(differ))
    expect(page.locator("#list a").first).to_contain_text("grader wrong: 0.9")


@pytest.mark.browser
def test_keys_move_between_attempts_and_back(page: Any) -> None:
    go(page, "set", "evil", "q2", 0)
    for key, title in (
        ("j", "q2 · trial 1"),
        ("k", "q2 · trial 0"),
        ("n", "q/3 · trial 0"),
        ("m", "plain · q/3 · trial 0"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(f"#attempt h3:has-text('{title}')")
    page.go_back()
    page.wait_for_selector("#attempt h3:has-text('evil · q/3 · trial 0')")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("Escape")
    page.wait_for_selector("#panel-1:visible")


@pytest.mark.browser
def test_an_address_works_on_load_and_a_wrong_one_says_so(page: Any, index_html: Path) -> None:
    page.goto("about:blank")
    page.goto(f"{index_html.as_uri()}#set/evil/q%2F3/2")
    page.wait_for_selector("#attempt h3:has-text('q/3 · trial 2')")
    for part in ("set/nobody/q2/0", "set/evil/nothing/0", "set/evil/q2/99"):
        page.goto(f"{index_html.as_uri()}#{part}")
        page.wait_for_selector("#attempt [role=alert]")


@pytest.mark.browser
def test_the_map_opens_a_cell_and_moves_by_arrows(page: Any) -> None:
    page.click("role=tab[name='set']")
    cells = page.locator("#panel-1 .map td a")
    expect(cells).to_have_count(6)
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 0')")
    expect(page.locator("#list-count")).to_contain_text("6 of")


@pytest.mark.browser
def test_themes_and_narrow_screens(page: Any) -> None:
    body = page.locator("body")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    expect(body).not_to_have_css("background-color", light)
    page.click("#theme")
    expect(body).to_have_css("background-color", light)
    page.keyboard.press("d")
    expect(body).not_to_have_css("background-color", light)
    page.set_viewport_size({"width": 360, "height": 700})
    go(page, "set", "evil", "q2", 0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.browser
def test_paper_keeps_what_is_said_of_the_scores(page: Any) -> None:
    page.click("role=tab[name='set']")
    page.emulate_media(media="print")
    expect(page.locator("#panel-1 .first .hint").last).to_be_visible()
    expect(page.locator("#panel-1 .map-order")).to_be_hidden()
    page.emulate_media(media="screen")


@pytest.mark.browser
def test_a_lost_side_file_is_named(browser: Any, copied: Path) -> None:
    [lost] = copied.parent.glob("attempts/*/1-i0.js")
    lost.unlink()
    page = browser.new_page()  # the browser itself reports the missing file
    page.goto(f"{copied.as_uri()}#other/evil/z/0")
    page.wait_for_selector("#attempt [role=alert]:has-text('1-i0.js is missing')")
    page.close()


def test_side_files_are_ascii_and_json(index_html: Path) -> None:
    files = sorted(index_html.parent.glob("attempts/*/?-*.js"))
    assert len(files) == 10  # numbers of two data sets, twice; prompts and texts of three runs
    for path in files:
        found = re.fullmatch(r'bayesReport\("([^"]+)",(.+)\);\n', path.read_bytes().decode("ascii"))
        assert found is not None and found[1] == path.stem
        json.loads(found[2])


def side(out: Path) -> Path:
    """The side files that the page of a report names; they must be there, and nothing half-made."""
    [stamp] = re.findall(rb'"stamp": ?"([^"]+)"', (out / "index.html").read_bytes())
    assert sorted(path.name for path in (out / "attempts" / stamp.decode()).glob("*.js")) == [
        "0-d0.js",
        "0-i0.js",
    ]
    assert not [*out.rglob("*.tmp")]
    return out / "attempts" / str(stamp.decode())


@pytest.mark.usefixtures("unseen")
def test_reports_into_one_place_are_each_whole(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set", "report.texts=false"])
    ours, theirs = build._page, []

    def late(*arguments: Any) -> str:  # another report begins later and ends before this one
        monkeypatch.setattr(build, "_page", ours)
        build.report(cfg)
        theirs.append(side(tmp_path))
        return ours(*arguments)

    monkeypatch.setattr(build, "_page", late)
    build.report(cfg)
    last = side(tmp_path)
    assert last != theirs[0] and theirs[0].is_dir()  # somebody may have that page open

    # What no page has named for an hour goes: of a replaced report, of a killed one.
    killed, notes = tmp_path / "attempts" / "20260101T000001", tmp_path / "attempts" / "notes"
    for folder in (killed, notes):
        folder.mkdir()
    for folder in (last, theirs[0], killed, notes):
        os.utime(folder, (0, 0))
    build.report(cfg)
    assert {*(tmp_path / "attempts").iterdir()} == {side(tmp_path), last, notes}
    for path in side(tmp_path).iterdir():
        assert "window.owned" not in path.read_text()


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("swapped", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_report_that_fails_leaves_a_whole_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: bool
) -> None:
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set", "report.texts=false"])
    build.report(cfg)
    before, write = side(tmp_path), build.atomic.write_text

    def fails(path: Path, text: str, sync: bool = True) -> None:
        if path.name == "index.html":
            if swapped:
                write(path, text)
            raise OSError("no space")
        write(path, text, sync)

    monkeypatch.setattr(build.atomic, "write_text", fails)
    with pytest.raises(OSError, match="no space"):
        build.report(cfg)
    assert (side(tmp_path) != before) == swapped
    assert len([*(tmp_path / "attempts").iterdir()]) == 1 + swapped


@pytest.mark.usefixtures("unseen")
def test_processes_write_a_share_of_a_run_each(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "set" / "evil"
    shutil.copytree(runs / "set" / "evil", folder)
    paths = [*(folder / "attempts").glob("*.parquet")]
    path, schema = paths[0], parquet.pq.read_schema(paths[0])
    rows = [row for one in paths for row in parquet.whole(one, schema).to_pylist()]
    run = runfolder.opened(folder)
    grades = graded.ruled(run, graded.GRADES_TABLE.columns.names[2:]).to_pylist()
    half = len(rows) // 2
    again = rows[half - 1] | {"text": "made twice: the first counts"}
    for number, part in enumerate((rows[:half], [again, *rows[half:]])):
        made = pa.Table.from_pylist(part, schema=schema)
        parquet.write_part(path.with_name(f"{number}.parquet"), made)
        keys = [(row["question_id"], row["trial"]) for row in part]
        own = [row for row in grades if (row["question_id"], row["trial"]) in keys]
        add_grades(run, str(number), own)
    for path in paths:
        path.unlink()
    monkeypatch.setattr(texts, "SHARE_BYTES", 0)
    build.report(analysis.load([f"runs={tmp_path / 'runs'}", f"out={tmp_path / 'out'}"]))
    files = {one.stem: value(one) for one in (tmp_path / "out").glob("attempts/*/0-0*.js")}
    assert files.keys() == {"0-0-p", "0-0-0", "0-0-1"}
    index, ids = value(next((tmp_path / "out").glob("attempts/*/0-i0.js"))), [*MARKS]
    assert len(index["file"]) == len(rows)
    for row in rows:
        q, t = ids.index(row["question_id"]), row["trial"]
        at = [*zip(index["q"], index["t"], strict=True)].index((q, t))
        shown = files[f"0-0-{index['file'][at]}"]["rows"][f"{q}/{t}"]
        assert shown["text"] == row["text"] and len(shown["levels"]) == row["completion_tokens"]


def test_a_killed_process_is_an_error_in_words() -> None:
    with pytest.raises(UserError, match=r"killed.*run the same"), texts.processes() as mapped:
        list(mapped(signal.raise_signal, [signal.SIGKILL] * 2))


def value(path: Path) -> Any:
    """What a side file hands over."""
    return json.loads(path.read_text().partition(",")[2].removesuffix(");\n"))


@pytest.mark.usefixtures("unseen")
def test_texts_of_the_first_trials_only(runs: Path, tmp_path: Path) -> None:
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set", "report.trials=2"])
    build.report(cfg)
    [path] = tmp_path.glob("attempts/*/0-i0.js")
    index = value(path)
    assert [file >= 0 for file in index["file"]] == [trial < 2 for trial in index["t"]]
    with pytest.raises(UserError, match=r"report\.trials=0"):
        build.report(analysis.load([f"runs={runs}", "report.trials=0"]))


def test_outcomes_without_runs(tmp_path: Path) -> None:
    outcomes = np.random.default_rng(0).integers(0, 2, (3, 4, 5))
    cohort = from_arrays("coins</script>", ["a", "b", "c\ud800"], list("wxyz"), outcomes)
    path = build.write([cohort], analysis.load([f"out={tmp_path}"]))
    text = path.read_text(encoding="utf-8")
    assert "</script>" not in text[text.index('id="page-data"') : text.index("</script>")]
    counts = data.counts(cohort)
    assert counts["correct"] == outcomes.sum(axis=2).tolist()
    assert not (tmp_path / "attempts").exists()


def test_a_folder_that_cannot_be_written(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        build.report(analysis.load([f"runs={runs}", f"out={tmp_path / 'file' / 'out'}"]))


def test_lengths_cover_the_text_where_characters_share_tokens() -> None:
    tokenizer = make_tokenizer()
    decoder = tokens.of_tokenizer(tokenizer.backend_tokenizer)
    text = "é \U0001d465 ok"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    found = tokens.lengths(text, [*ids, tokenizer.eos_token_id], decoder)
    assert len(ids) == len(text.encode()) and found is not None
    assert found.tolist() == [0, 1, 1, 0, 0, 0, 2, 1, 1, 1, 0]
    assert tokens.lengths("another text", ids, decoder) is None
    assert tokens.lengths(text, [*ids, -1, 10**9], decoder).tolist() == [*found, 0]  # of another
    ids = tokenizer("4. Problem:", add_special_tokens=False)["input_ids"]  # with a stop string
    assert tokens.lengths("4", ids, decoder).tolist() == [1, *[0] * 10]
    made = texts._tokens("So 4", ids, [-1.0] * 11, decoder, "So ")
    assert made["lengths"] == tokens.packed(np.array([3, 1, *[0] * 10]))
    assert made["levels"][0] == tokens.UNKNOWN


def test_surprisal_is_kept_to_a_few_percent() -> None:
    nats = np.random.default_rng(1).exponential(1.5, 500)
    letters = tokens.levels(-nats)
    alphabet = [chr(c) for c in range(33, 127) if chr(c) != "\\"]
    bits = np.array([(alphabet.index(letter) / tokens.STEPS) ** 2 for letter in letters])
    assert np.abs(np.sqrt(bits) - np.sqrt(nats / np.log(2))).max() <= 0.5 / tokens.STEPS + 1e-9


def test_ranks_of_many_trials_are_thinned() -> None:
    outcomes = np.random.default_rng(3).integers(0, 2, (2, 1, 70_000), np.int8)
    drawn = figures.settling(["a", "b"], outcomes)
    assert len(drawn["svg"]) < 200_000 and "order of models" in drawn["title"]
    said = figures.settling(["a", "b"], outcomes[:, :, :9], "a, b are not apart")["caption"]
    assert said.endswith("By all 9 trials: a, b are not apart.")


def test_the_headline_orders_the_first_screen() -> None:
    brief = np.full((6, 20), -1)
    brief[:, :2] = 1
    long = np.where(np.arange(20) < 18, 1, 0) * np.ones((6, 1), int)
    made = from_arrays("d", ["brief", "long"], [*"abcdef"], np.stack([brief, long]))
    for headline, order in (("avg", ["brief", "long"]), ("bayes", ["long", "brief"])):
        cfg = analysis.load([f"headline={headline}"])
        tables = data.tables(made, cfg, None)
        drawn = overview.first(made, cfg, tables)
        assert [row["model"] for row in drawn["rows"]] == order
        assert drawn["names"] == ["avg", "Bayes@N"][:: 1 if headline == "avg" else -1]
        [best, _], [best_row, _] = tables["leaderboard"].rows, drawn["rows"]
        key, other = ("avg", "mu") if headline == "avg" else ("mu", "avg")
        assert best_row["score"] == f"{best[key]:.3f}" and best_row["other"] == f"{best[other]:.3f}"
        assert any("Bayes@N of" in line and "brief" in line for line in drawn["apart"])
        of_page = data.table(tables["leaderboard"])["columns"]
        [by] = [c["title"] for c in of_page if c["sorted"]]
        assert by == ("avg" if headline == "avg" else "μ")


def test_ranks_settle_where_a_loop_says() -> None:
    outcomes = np.random.default_rng(2).integers(0, 2, (4, 3, 12))
    _, ranks, settled = figures.trajectories(outcomes)
    slow = []
    for n in range(1, 13):
        scores = outcomes[:, :, :n].sum(axis=(1, 2))
        slow.append([1 + int((scores > score).sum()) for score in scores])
    assert ranks.T.tolist() == slow
    last = max(n for n in range(1, 12) if slow[n - 1] != slow[-1]) + 1
    assert settled == (last if last < 12 else None)


@pytest.fixture(scope="module")
def torn_html(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models, one without signals, one that left a question out; a name that turns round."""
    root = tmp_path_factory.mktemp("torn")
    shutil.copytree(runs / "set", root / "runs" / "turn\u202eset")
    folder = root / "runs" / "turn\u202eset"
    shutil.copytree(folder / "plain", folder / "torn")
    shutil.rmtree(folder / "torn" / "signals")
    build.report(analysis.load([f"runs={root / 'runs'}", f"out={root / 'out'}"]))
    return root / "out" / "index.html"


@pytest.mark.browser
def test_a_run_without_signals_costs_others_no_categories(browser: Any, torn_html: Path) -> None:
    page = browser.new_page()
    page.goto(torn_html.as_uri())
    notices = page.locator("#panel-0 .notice")
    expect(notices).to_contain_text("torn has no categories")
    expect(notices).to_contain_text("pipeline categorize")
    expect(notices).not_to_contain_text("made again")
    rubrics = page.locator("#panel-0 .block:has(h3:text-is('Rubrics')) tbody th")
    expect(rubrics).to_have_count(2)
    assert sorted(rubrics.all_inner_texts()) == ["evil", "plain"]
    [listed, more] = (next(torn_html.parent.glob(f"attempts/*/0-{x}0.js")) for x in "id")
    models, rubrics = np.array(value(listed)["m"]), value(more)["rubrics"]
    codes = [np.array([rubric["codes"] for rubric in rubrics])[:, models == m] for m in range(3)]
    assert codes[0].max() > 0 and codes[1].max() > 0 and set(codes[2].flat) == {-1}
    page.close()


@pytest.mark.usefixtures("unseen")
def test_runs_left_out_are_named_on_the_page(tmp_path: Path) -> None:
    cohort = from_arrays("coins", ["a", "b"], ["1"], [[[1, 0]], [[1, 1]]])
    cohort = replace(cohort, warnings=["<c> is left out: other questions"])
    text = build.write([cohort], analysis.load([f"out={tmp_path}"])).read_text(encoding="utf-8")
    assert "&lt;c&gt; is left out: other questions</li>" in text


@pytest.mark.browser
def test_a_name_cannot_turn_the_text_round(browser: Any, torn_html: Path) -> None:
    page = browser.new_page()
    page.goto(torn_html.as_uri())
    expect(page.locator("h1 bdi")).to_have_text("turn⟨U+202E⟩set")
    page.locator(".map td a").first.click()
    page.wait_for_selector("#attempt h3 bdi")
    assert "\u202e" not in page.locator("body").inner_text()
    assert "\u202e" not in page.title()
    page.close()


@pytest.mark.browser
def test_the_focus_follows_what_is_opened(page: Any) -> None:
    page.click("role=tab[name='set']")
    title = page.title()
    cell = page.locator("#panel-1 .map td a").nth(1)
    name = cell.get_attribute("aria-label")
    page.locator("#panel-1 .map td a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 0')")
    page.wait_for_selector("#attempt h3:focus")
    item = page.locator("#list a").nth(2)
    item.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 2')")
    page.wait_for_selector("#list a[aria-current]:focus")
    page.locator("#attempt button[title='key j']").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 3')")
    page.wait_for_selector("#attempt button[title='key j']:focus")
    page.keyboard.press("m")
    page.wait_for_selector("#attempt h3:has-text('plain · q2 · trial 3')")
    page.wait_for_selector("#attempt button[title='key j']:focus")
    expect(page).not_to_have_title(title)
    page.keyboard.press("Escape")
    page.wait_for_selector("#panel-1:visible")
    expect(page.get_by_label(name, exact=True)).to_be_focused()
    expect(page).to_have_title(title)
    page.go_back()
    page.wait_for_selector("#attempt h3:has-text('plain · q2 · trial 3'):focus")


@pytest.mark.browser
def test_tokens_and_strip_are_read_by_keys(page: Any) -> None:
    go(page, "set", "evil", "q<b>1", 0)
    page.keyboard.press("t")
    said = page.locator("[aria-label=Response] .legend [role=status]")
    group = page.locator("[aria-label=Response] .tokens")
    expect(group.locator("[tabindex='0']")).to_have_count(1)
    group.locator("[tabindex='0']").focus()
    for key, number in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0)):
        page.keyboard.press(key)
        expect(said).to_contain_text(f"token {number}: ")
    page.keyboard.press("End")
    last = len(HOSTILE[0]) - 1
    expect(said).to_contain_text(f"token {last}: ")
    expect(group.locator("[tabindex='0']")).to_have_count(1)
    strip = page.locator("[aria-label=Response] .strip")
    strip.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(strip).to_have_attribute("aria-valuetext", re.compile(f"^token {last}: "))
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(group.locator("[data-i='0']")).to_be_focused()
    go(page, "set", "evil", "q2", 4)
    group.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")  # -.02 a token: 2 bits, in 92 steps, at the 70th
    expect(group.locator("[data-i]:focus:not([data-i='0'])")).to_have_count(1)
    assert int(page.evaluate("document.activeElement.dataset.i")) == pytest.approx(70, abs=4)
    page.keyboard.press("t")


@pytest.mark.browser
def test_after_a_broken_address_everything_still_works(page: Any, index_html: Path) -> None:
    for part in ("nowhere/nobody/x/1", "set/nobody/x/1"):
        page.goto("about:blank")
        page.goto(f"{index_html.as_uri()}#{part}")
        page.wait_for_selector("#attempt [role=alert]")
        page.click("#filters button[type=reset]")
        for key in "jknpmMt":
            page.keyboard.press(key)
        page.click("#filters button[type=reset]")
        page.locator("#list a").first.click()
        page.wait_for_selector("#attempt h3:has-text('trial 0')")
    page.goto(f"{index_html.as_uri()}#set/evil/zzz/0")
    page.wait_for_selector("#attempt [role=alert]:has-text('no question zzz')")
    expect(page.locator("#list a")).to_have_count(sum(map(len, MARKS.values())))
    page.keyboard.press("j")
    page.wait_for_selector("#attempt h3:has-text('trial 0')")


@pytest.mark.browser
def test_a_damaged_side_file_leaves_nothing_of_another(browser: Any, copied: Path) -> None:
    page = browser.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    for value in ("{}", "null", "[]", '{"q":[0],"t":[0]}', None):
        for ending, shown in (("0-0-0", "0-0-0"), ("0-d0", "0-d0"), ("0-i0", "0-i0")):
            [path] = copied.parent.glob(f"attempts/*/{ending}.js")
            sound = path.read_text()
            path.write_text("" if value is None else f'bayesReport("{ending}",{value});\n')
            page.goto("about:blank")
            page.goto(f"{copied.as_uri()}#set/evil/q2/0")
            page.wait_for_selector(f"#attempt [role=alert]:has-text('{shown}.js is damaged')")
            expect(page.locator("#list a")).to_have_count(0 if ending == "0-i0" else 6)
            page.click("#filters button[type=reset]")
            page.keyboard.press("j")
            page.keyboard.press("m")
            path.write_text(sound)
            assert not wrong, value
    page.close()


@pytest.mark.browser
def test_the_answer_is_marked_by_the_letter_the_attempt_saw(browser: Any, copied: Path) -> None:
    [path] = copied.parent.glob("attempts/*/0-0-0.js")
    of_texts, numbers = value(path), path.with_name("0-i0.js")
    of_texts["rows"]["0/0"] |= {"order": "B A", "text": "\\boxed{A}, no: \\boxed{B}; \\boxed{A}"}
    of_index = value(numbers)
    of_index["answer"]["values"][of_index["answer"]["codes"][0]] = "A"  # as the table calls it
    for name, side_file in (("0-0-0", of_texts), ("0-i0", of_index)):
        script = f'bayesReport("{name}",{json.dumps(side_file)});\n'
        path.with_name(f"{name}.js").write_text(script)
    page = browser.new_page()
    page.goto(f"{copied.as_uri()}#set/evil/q%3Cb%3E1/0")
    expect(page.locator("[aria-label=Response] mark")).to_have_text("B")
    page.close()


@pytest.mark.browser
def test_a_late_fault_does_not_replace_a_newer_attempt(browser: Any, copied: Path) -> None:
    [lost] = copied.parent.glob("attempts/*/1-i0.js")
    lost.unlink()
    page = browser.new_page()
    page.goto(f"{copied.as_uri()}#set/evil/q2/0")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 0')")
    with page.expect_event("requestfailed", lambda request: request.url.endswith(lost.name)):
        page.evaluate(
            "() => { location.hash = 'other/evil/z/0'; dispatchEvent(new Event('hashchange'));"
            " location.hash = 'set/evil/q2/1'; dispatchEvent(new Event('hashchange')); }"
        )
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 1')")
    assert page.locator("#attempt [role=alert]").count() == 0
    page.close()


@pytest.mark.browser
def test_a_filter_that_comes_before_an_attempt_is_drawn_does_not_stop_it(page: Any) -> None:
    go(page, "set", "evil", "q2", 0)
    page.evaluate(
        """async () => {
          const [{ head }, held] = [document, []];
          head.append = (script) => held.push(script);
          for (const address of ["set/plain/q2/1", "set/plain/q2/1?models=all"]) {
            location.hash = address;
            await new Promise((go) => addEventListener("hashchange", go, { once: true }));
            await new Promise((go) => setTimeout(go));
          }
          delete head.append;
          head.append(...held);
        }"""
    )
    page.wait_for_selector("#attempt h3:has-text('plain · q2 · trial 1')")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_cell_of_the_map_can_be_read(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.click("role=tab[name='set']")
    page.wait_for_selector("#panel-1 .map td a")
    colours = page.evaluate(
        """() => {
          const cell = document.querySelector("#panel-1 .map td a");
          const pen = document.createElement("canvas").getContext("2d",
            { willReadFrequently: true });
          const rgb = (colour) => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)]; };
          return Array.from({ length: 101 }, (_, share) => {
            cell.style.setProperty("--share", share);
            const style = getComputedStyle(cell);
            return [rgb(style.color), rgb(style.backgroundColor)];
          });
        }"""
    )
    part = np.array(colours) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    bright = linear @ [0.2126, 0.7152, 0.0722]  # relative luminance, WCAG 2.2
    contrast = (bright.max(axis=1) + 0.05) / (bright.min(axis=1) + 0.05)
    assert len(np.unique(bright[:, 1])) > 50 and contrast.min() >= 4.5


def test_a_written_replacement_character_keeps_the_heat() -> None:
    tokenizer = make_tokenizer()
    decoder = tokens.of_tokenizer(tokenizer.backend_tokenizer)
    for text in (
        "a\ufffdb",
        "\ufffd\ufffd€ \ufffd",
        "é\ufffd" * 40,
        "中\ufffd\U0001d465" * 9,
        "\ufffd",
    ):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        found = tokens.lengths(text, [*ids, tokenizer.eos_token_id], decoder)
        assert found is not None and len(found) == len(ids) + 1
        assert found.sum() == tokens.utf16(text)
    # A character that was cut off by the end of the completion decodes to U+FFFD, too.
    ids = tokenizer("ok €", add_special_tokens=False)["input_ids"][:-1]
    assert tokens.lengths("ok \ufffd", ids, decoder).tolist() == [1, 1, 1, 0, 1]


@pytest.mark.browser
def test_twelve_rubrics_fit_and_what_does_not_fit_fades(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click("role=tab[name='set']")
    block = page.locator("#panel-1 .block:has(h3:text-is('Rubrics'))")
    # The fixture's runs have ten columns in common: three more of the widest make all rubrics.
    expect(block.locator("thead th")).to_have_count(10)
    block.locator("tr").evaluate_all(
        "rows => rows.forEach((row) => row.append("
        "...[1, 2, 3].map((at) => row.cells[at].cloneNode(true))))"
    )
    box = "#panel-1 .block:has(h3:text-is('Rubrics')) .scroll"
    page.wait_for_selector(f"{box}:not(.on-right)")
    page.set_viewport_size({"width": 600, "height": 800})
    page.wait_for_selector(f"{box}.on-right")
    block.locator(".scroll").evaluate("box => { box.scrollLeft = 9999; }")
    page.wait_for_selector(f"{box}:not(.on-right)")


@pytest.mark.browser
def test_a_long_question_leaves_the_trial_in_sight(page: Any) -> None:
    go(page, "set", "evil", "q2", 0)
    page.click("#filters button[type=reset]")
    item = page.locator("#list a").first
    item.locator(".of bdi").last.evaluate("name => { name.textContent = 'q'.repeat(300); }")
    trial = item.locator(".of > span").last
    assert trial.evaluate("one => one.scrollWidth <= one.clientWidth && one.clientWidth > 5")
    assert item.evaluate("one => one.scrollWidth <= one.clientWidth + 1")


@pytest.mark.browser
def test_the_first_screen_says_what_is_best_and_whether_it_is_settled(page: Any) -> None:
    page.click("role=tab[name='set']")
    block = page.locator("#panel-1 .first")
    expect(block.locator("h3")).to_contain_text("cannot be told apart on these 3 questions")
    expect(block.locator("tbody th")).to_have_count(2)
    assert block.locator("tbody td:first-child").all_inner_texts() == ["1", "1"]  # a shared rank
    expect(block.locator("tbody tr").first).to_contain_text("0.50")  # P(best) of two alike
    assert (
        page.evaluate("document.querySelector('#panel-1 .first').getBoundingClientRect().bottom")
        < 800
    )


@pytest.mark.browser
def test_the_map_has_the_hardest_question_first_and_tells_what_it_asks(page: Any) -> None:
    page.click("role=tab[name='set']")
    place = page.locator("#panel-1 .map")
    assert place.locator("thead bdi").all_inner_texts() == ["q<b>1", "q2", "q/3"]
    means = [
        int(share) for share in place.locator("tbody tr").first.locator("td").all_inner_texts()
    ]
    assert means == sorted(means) and len(means) == 3
    place.locator("td a").nth(1).hover()
    expect(page.locator("#tip")).to_contain_text("q2: 3 of 6 correct")
    page.mouse.move(0, 0)
    expect(page.locator("#tip")).to_be_hidden()
    place.locator("td a").first.focus()
    expect(page.locator("#tip")).to_contain_text("q<b>1")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip")).to_contain_text("q2: 3 of 6 correct")
    page.select_option("#panel-1 .map-order", "0")
    assert place.locator("thead bdi").all_inner_texts() == [*MARKS]


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_no_figure_is_cut(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.click("role=tab[name='set']")
    page.wait_for_selector("#panel-1 .map td a")
    for part in ("#panel-1 .lead", "#panel-1 h4", "#panel-1 .hint"):  # names may be long
        page.evaluate("part => document.querySelector(part).append('m'.repeat(300))", part)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        """() => [...document.querySelectorAll("#panel-1 :is(figure *, .forest, .map table)")]
          .filter((part) => !part.ownerSVGElement || part.localName === "text")
          .filter((part) => { const { left, right } = part.getBoundingClientRect();
            return left < 0 || right > innerWidth; }).map((part) => part.outerHTML.slice(0, 99))"""
    )
    assert cut == []


def test_rubrics_that_part_all_attempts_alike_share_a_card() -> None:
    names = ["invalid", "wrong", "correct"]
    rows = [
        {"index": i, "name": name, "when": "correct", "weight": i} for i, name in enumerate(names)
    ]
    one, two = (rubric.parse({"name": name, "categories": rows}) for name in ("one", "two"))
    codes = np.array([[[1, 2, 2]], [[0, 1, 2]]], np.int8)
    board = Table("", [], [{"model": "b"}, {"model": "a"}])
    of = {"one": (one, codes), "two": (two, codes), "other": (two, codes[::-1])}
    made = overview.rubrics(["a", "b"], of, board)
    assert [card["names"] for card in made["cards"]] == [["one", "two"], ["two"]]
    assert made["finding"] == "a is first under 2 of 3 rubrics, b under 1"
    model, parts = made["cards"][0]["rows"][0]
    assert model == "b" and [part["side"] for part in parts] == ["correct", "wrong", "invalid"]
    assert sum(part["share"] for part in parts) == pytest.approx(100, abs=0.02)
    assert [card["firsts"] for card in made["cards"]] == [[["a"]], [["b"]]]
    even = overview.rubrics(["a", "b"], {"one": (one, codes[[0, 0]])}, board)
    assert even["finding"] == "b and a are each first under 1 of 1 rubrics"
    assert even["cards"][0]["firsts"] == []  # nobody is ahead


def test_a_model_has_one_look_in_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(figures, "figure", lambda *_: {})
    for module, name in ((figures.leaderboard, "rank_trajectories"), (figures.caps, "by_cap")):
        monkeypatch.setattr(module, name, lambda first, *_: asked.append(list(first)))
    rows = [{"model": name, "avg": 0, "avg_low": 0, "avg_high": 1, "attempts": 2} for name in "ba"]
    limits = [{"model": name, "max_tokens": 8} for name in "aabb"]
    tables = {"leaderboard": Table("", [], rows), "caps": Table("", [], limits)}
    cohort = from_arrays("coins", ["a", "b"], ["q"], [[[1, 0]], [[1, 1]]])
    assert list(figures.figures(cohort, tables, [], "avg"))
    limits_drawn, ranks_drawn = asked
    assert [row["model"] for row in limits_drawn] == [*"bbaa"] and ranks_drawn == ["b", "a"]


@pytest.mark.browser
@pytest.mark.parametrize("fits", [True, False])
def test_a_report_in_one_file_reads_attempts_as_far_as_they_fit(
    browser: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    pack = single.pack

    def tight(side: Path, room: int, sampled: int) -> single.Packed:
        """In a byte less than all of it takes."""
        room = sum(single._size(*file) for file in pack(side, room, sampled).files.items()) - 1
        found = pack(side, room, sampled)
        assert sum(single._size(*file) for file in found.files.items()) <= room
        return found

    if not fits:
        monkeypatch.setattr(single, "pack", tight)
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set,other", "single=true"])
    build.report(cfg)
    index = tmp_path / "report.html"
    assert [*tmp_path.iterdir()] == [index]
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.goto(index.as_uri())
    go(page, "set", "evil", "q2", 0)
    expect(page.locator("[aria-label=Response] math")).not_to_have_count(0)
    page.evaluate("location.hash = 'set/evil/q2/5'")
    if not fits:
        page.wait_for_selector("#attempt [role=alert]:has-text('all but those of the first 5')")
        expect(page.locator(".meta")).to_contain_text("of 6 trials")
    else:
        page.wait_for_selector("#attempt h3:has-text('q2 · trial 5')")
        expect(page.locator("[aria-label=Response]")).to_contain_text("window.owned")
    assert asked == [index.as_uri()] and page.evaluate("window.owned") is None
    page.close()


def test_more_than_fits_is_not_even_written(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    run = runfolder.Run(load_folder(runs / "set" / "evil", []))
    assert single.most_trials([run]) is None
    size = sum(path.stat().st_size for path in run.attempts.glob("*"))
    monkeypatch.setattr(single, "LIMIT", size // 8 + 1)
    assert single.most_trials([run]) == run.cfg.sampling.trials // 2


def test_open_starts_a_browser_or_says_that_there_is_none(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(build.webbrowser, "open", opened.append)  # None, as where there is none
    settings = [f"runs={runs}", f"out={tmp_path}", "dataset=other", "report.texts=false"]
    build.report(analysis.load(settings), open=True)
    assert opened == [(tmp_path / "index.html").resolve().as_uri()]
    assert "no browser" in capsys.readouterr().err
