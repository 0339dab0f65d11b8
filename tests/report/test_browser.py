"""The report in a real browser: it loads from disk, asks nothing, sorts, filters, shows attempts.

What models wrote is hostile here: it must be shown, and run nothing.
"""

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import make_run
from report_runs import BOX, GROWING, HOSTILE, MARKS, MATHS, columns, put, value

from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.report import build, label
from bayes_at_n.pipeline.score import labels

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


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
    opened.emulate_media(color_scheme="light", media="screen")
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
    page.click(".tabs bdi:text-is('set')")
    head = page.locator("#panel-1 .sortable:visible thead button").first
    names = page.locator("#panel-1 table.sortable:visible").first.locator("tbody th")
    head.click()
    expect(names).to_have_text(["evil", "plain"])
    first = page.locator("#panel-1 .sortable:visible thead th").first
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
    source = (build.FOLDER / "prose.js").read_text(encoding="utf-8")
    tags, attributes = (found.split() for found in re.findall(r"new Set\(`([^`]+)`\.split", source))
    drawn = [part for part in parts if part[0] not in ("mark", "div")]
    assert len(drawn) > 100 and {name for name, _, _ in drawn} <= {*tags, "math"}
    assert {namespace for _, namespace, _ in drawn} == {"http://www.w3.org/1998/Math/MathML"}
    given = [pair for _, _, pairs in drawn for pair in pairs]
    assert {name for name, _ in given} <= {*attributes} and ["width", "2em"] in given
    lengths = [float(n) for _, value in given for n in re.findall(r"(-?[\d.]+)em", value)]
    assert max(map(abs, lengths)) <= 20
    text = prose.text_content()
    assert "ℝ+𝐯" in text and "onerror" in text and GROWING in text  # the last as it was written
    for kept in MATHS[-7:-2]:  # links, and what names attributes
        assert kept in text or "color" in kept


@pytest.mark.browser
def test_an_attempt_shows_answer_mathematics_verdicts_and_categories(page: Any) -> None:
    go(page, "set", "evil", "q2", 5)
    expect(page.locator("mark")).to_have_text("2")
    expect(page.locator("[aria-label=Response] math")).to_have_count(2)  # x = …, and the box
    summary = page.locator("#attempt .verdicts")
    expect(summary).to_contain_text("✓ correct")
    expect(summary).not_to_contain_text("disagree")
    details = page.locator("[aria-label=Details]")
    expect(details).to_contain_text("correct 0.90, incorrect 0.06, invalid 0.04")
    expect(page.locator("[aria-label=Categories] dd").first).to_contain_text("(weight ")
    go(page, "set", "evil", "q2", 4)
    expect(summary).to_contain_text("they disagree")
    go(page, "set", "plain", "q2", 4)
    expect(details).not_to_contain_text("verifier")  # what is not known is not there


@pytest.mark.browser
def test_long_reasoning_is_folded_and_drawn_when_seen(browser: Any, copied: Path) -> None:
    [path] = copied.parent.glob("attempts/*/0-0-0.js")
    of_texts, lines = value(path), "so $x_1 = 2$, as it was\n\n" * 5_000
    for row, end in zip(
        ("1/0", "1/1", "1/2"), ("</think>", "<|channel|>final<|message|>", ""), strict=True
    ):
        text = f"<think>{lines}{end}" + (f"Then {BOX}, no: {BOX}." if end else "")
        of_texts["rows"][row] |= {"text": text, "lengths": None}
    put(path, of_texts)
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
    expect(rows.first).to_have_attribute("aria-current", "true")  # the one before was wrong
    before = rows.first.text_content()
    page.select_option("#by-sort", "long")
    expect(rows.first).not_to_have_text(before)
    page.keyboard.press("j")
    page.wait_for_url("**sort=long**")
    current = page.locator("#list a[aria-current=true]")
    expect(current).to_have_count(1)
    address, opened = page.url, current.inner_text()
    assert "sort=long" in address and "outcome=correct" in address and "models=all" in address
    page.goto("about:blank")
    page.goto(address)  # as a link that somebody was sent
    expect(count).to_have_text("20 of 36 attempts")
    expect(current).to_have_text(opened, use_inner_text=True)
    tokens = [int(line.split(" tokens")[0].split()[-1]) for line in rows.all_inner_texts()]
    assert tokens == sorted(tokens, reverse=True) and len({*tokens}) > 2
    page.keyboard.press("/")
    page.fill("#by-text", "Q/3")
    expect(count).to_have_text("8 of 36 attempts")
    page.fill("#by-text", "onerror")
    expect(count).to_have_text("0 of 36 attempts")
    expect(page.locator("#attempt")).to_contain_text("No attempt matches these filters")
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
    lines.first.locator("a").nth(2).click()  # those of the second model
    expect(page.locator("#list-count")).to_have_text("4 of 12 attempts")
    expect(lines.first).to_have_attribute("aria-current", "true")
    page.locator("#list a").first.click()
    page.wait_for_selector("#attempt h3:has-text('plain · q/3 · trial 2')")
    page.go_back()
    expect(page).to_have_title("q/3, all answers")
    page.keyboard.press("p")
    expect(page).to_have_title("q2, all answers")


@pytest.mark.browser
def test_disagreements_are_one_list_the_surest_first(page: Any, index_html: Path) -> None:
    [path] = index_html.parent.glob("attempts/*/0-q0.js")
    index = columns(path)
    rows = zip(index["outcome"], index["a"], strict=True)
    judged = [outcome for outcome, a in rows if a is not None and outcome is not None]
    differ = [outcome for outcome in judged if outcome != "correct"]  # the verifier says A of all
    page.click(".tabs bdi:text-is('set')")
    link = page.locator("#panel-1 a:text('read them')")
    expect(link.locator("xpath=..")).to_contain_text(f"{len(differ)} of {len(judged)} attempts")
    link.click()
    expect(page.locator("#list a")).to_have_count(len(differ))
    expect(page.locator("#list a").first).to_contain_text("verifier: P(correct) 0.9")


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
def test_the_focus_follows_what_is_opened(page: Any) -> None:
    page.click(".tabs bdi:text-is('set')")
    title = page.title()
    expect(page.locator("#panel-1 .map td a")).to_have_count(6)
    name = page.locator("#panel-1 .map td a").nth(1).get_attribute("aria-label")
    page.locator("#panel-1 .map td a").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 0'):focus")
    page.locator("#list a").nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 2')")
    page.wait_for_selector("#list a[aria-current]:focus")
    page.locator("#attempt button[title='key j']").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#attempt h3:has-text('q2 · trial 3')")
    page.wait_for_selector("#attempt button[title='key j']:focus")
    expect(page).not_to_have_title(title)
    page.keyboard.press("Escape")
    page.wait_for_selector("#panel-1:visible")
    expect(page.get_by_label(name, exact=True)).to_be_focused()
    expect(page).to_have_title(title)


@pytest.mark.browser
def test_tokens_are_read_by_keys(page: Any) -> None:
    go(page, "set", "evil", "q<b>1", 0)
    page.keyboard.press("t")
    said = page.locator("[aria-label=Response] .legend [role=status]")
    group = page.locator("[aria-label=Response] .tokens")
    expect(group.locator("[tabindex='0']")).to_have_count(1)
    group.locator("[tabindex='0']").focus()
    for key, number in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0)):
        page.keyboard.press(key)
        expect(said).to_contain_text(f"token {number}: ")
    expect(group.locator("[data-i='25']")).to_have_text(HOSTILE[0][25])
    group.locator("[data-i='25']").hover()
    expect(said).to_contain_text("token 25: ")
    expect(said).to_contain_text("−0.5")
    go(page, "set", "evil", "q2", 4)
    group.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")  # -.02 a token: 2 bits at the 70th
    expect(group.locator("[data-i]:focus:not([data-i='0'])")).to_have_count(1)
    assert page.evaluate("document.activeElement.dataset.i") == "70"
    page.keyboard.press("t")
    expect(page.locator("[aria-label=Response] [data-i]")).to_have_count(0)


@pytest.mark.browser
def test_after_a_broken_address_everything_still_works(page: Any, index_html: Path) -> None:
    for part in ("nowhere/nobody/x/1", "set/nobody/x/1", "set/evil/q2/99"):
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
    for text, ending in itertools.product(('{"q":[0],"t":[0]}', None), ("0-0-0", "0-q0")):
        [path] = copied.parent.glob(f"attempts/*/{ending}.js")
        sound = path.read_text()
        path.write_text("" if text is None else f'bayesReport("{ending}",{text});\n')
        page.goto("about:blank")
        page.goto(f"{copied.as_uri()}#set/evil/q2/0")
        page.wait_for_selector(f"#attempt [role=alert]:has-text('{ending}.js is damaged')")
        expect(page.locator("#list a")).to_have_count(0 if ending == "0-q0" else 6)
        for key in "jm":
            page.keyboard.press(key)
        path.write_text(sound)
        assert not wrong, text
    page.close()


@pytest.mark.browser
def test_the_answer_is_marked_by_the_letter_the_attempt_saw(browser: Any, copied: Path) -> None:
    [path] = copied.parent.glob("attempts/*/0-0-0.js")
    of_texts, numbers = value(path), path.with_name("0-q0.js")
    of_texts["rows"]["0/0"] |= {"order": "B A", "text": "\\boxed{A}, no: \\boxed{B}; \\boxed{A}"}
    of_index = value(numbers)
    answers = of_index["answer"]
    answers["values"][answers["codes"][0]] = "A"  # as the table calls it
    prompts = path.with_name("0-0-p.js")
    of_prompts = value(prompts)
    of_prompts["rows"]["0"]["choices"] = ["one", "<i>two</i>"]
    put(prompts, of_prompts)
    put(path, of_texts)
    put(numbers, of_index)
    page = browser.new_page()
    page.goto(f"{copied.as_uri()}#set/evil/q%3Cb%3E1/0")
    expect(page.locator("[aria-label=Response] mark")).to_have_text("B")
    options = page.locator("[aria-label=Problem] .options li")
    assert [text.split() for text in options.all_inner_texts()] == [
        ["<i>two</i>", "(B)"],
        ["one", "(A)"],
    ]
    page.close()


@pytest.mark.browser
def test_the_map_has_the_hardest_question_first_and_tells_what_it_asks(page: Any) -> None:
    page.click(".tabs bdi:text-is('set')")
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


@pytest.mark.browser
def test_a_report_in_one_file_reads_attempts_as_far_as_they_fit(
    browser: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = build.pack

    def tight(side: Path, room: int, sampled: int) -> build.Packed:
        """In a byte less than all of it takes."""
        room = sum(build.packed_size(*file) for file in pack(side, room, sampled).files.items()) - 1
        found = pack(side, room, sampled)
        assert sum(build.packed_size(*file) for file in found.files.items()) <= room
        return found

    monkeypatch.setattr(build, "pack", tight)
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
    page.wait_for_selector("#attempt [role=alert]:has-text('all but those of the first 5')")
    expect(page.locator(".meta")).to_contain_text("of 6 trials")
    assert asked == [index.as_uri()] and page.evaluate("window.owned") is None
    page.close()


def test_attempts_are_labeled_with_keys_and_downloaded(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "secret-name", {"<b>q": "1" * len(HOSTILE)}, texts={"<b>q": HOSTILE})
    label.label([str(run.path)])
    context = browser.new_context(accept_downloads=True)
    page, wrong = context.new_page(), list[str]()
    page.on("console", lambda m: wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((run.path / "labels" / "label.html").as_uri())
    assert "secret-name" not in page.inner_text("body") and "Gold answer" in page.inner_text("main")
    page.fill("#name", "ana/..")
    for key in ("Tab", *"ynuk"):
        page.keyboard.press(key)
    page.reload()  # they are kept
    assert ", 3 labeled" in page.inner_text("h3 >> nth=0")
    page.fill("#name", "ben")
    page.keyboard.press("Tab")  # does not see them
    assert ", 0 labeled" in page.inner_text("h3 >> nth=0")
    page.fill("#name", "ana/..")
    page.keyboard.press("Tab")
    with page.expect_download() as download:
        page.click("text=Download")
    assert download.value.suggested_filename == "ana___.jsonl"
    path = tmp_path / "ana.jsonl"
    download.value.save_as(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["correct"] for row in rows] == [True, False, None]
    assert page.evaluate("window.owned") is None and not wrong
    assert len(labels.rows(path, run)) == 2
    context.close()
