"""The page, driven in a browser: all three parts, light, dark and as wide as a telephone."""

import os
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("playwright.sync_api", reason="needs exchangeable[soak]")
pytest.importorskip("uvicorn", reason="needs exchangeable[serve]")

from playwright.sync_api import sync_playwright
from tests.support.service import served
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.datasets import load

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parents[2] / ".soak/node_modules/axe-core/axe.min.js"
LOOKS = {
    "light": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
TOKEN = "a-token-that-nobody-guesses"

if CHROMIUM is None:
    pytest.skip("needs Debian's chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(params=LOOKS)
def look(request):
    return request.param


@pytest.fixture
def page(browser, service, look):
    """With all that went wrong while the test had it, and all hosts that it asked."""
    # Its own scripts are all that the page allows, which axe is not.
    context = browser.new_context(**LOOKS[look], bypass_csp=AXE.exists(), accept_downloads=True)
    made = context.new_page()
    wrong, asked = [], set()
    made.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("request", lambda request: asked.add(request.url))
    home = f"http://127.0.0.1:{service.port}"
    made.goto(home)
    yield made
    context.close()
    assert wrong == []
    assert all(url.startswith((f"{home}/", "blob:", "data:")) for url in asked)


def seen(page, name, look):
    """Nothing is wider than the screen, axe finds nothing serious, and a picture for the eye."""
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]
    if AXE.exists():
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        bad = [(one["id"], one["nodes"][0]["html"]) for one in found
               if one["impact"] in ("serious", "critical")]  # fmt: skip
        assert bad == []
    folder = os.environ.get("EXCHANGEABLE_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}-{look}.png", full_page=True)


def rate(page, number, stars):
    """The ``number``th film that is offered."""
    row = page.locator("#choices li").nth(number)
    label = row.locator("> span").inner_text()
    row.locator("label").nth(stars - 1).click()
    page.locator("#ratings li > span", has_text=re.compile(f"^{re.escape(label)}$")).wait_for()
    return label


def test_recommendations_follow_the_stars_and_tell_why(page, look):
    page.locator("#choices li").first.wait_for()
    loved, hated = rate(page, 0, 5), rate(page, 0, 1)
    page.wait_for_function("document.querySelectorAll('#recommended li .why span').length >= 16")
    assert re.match(r"[\d.]+ ms", page.locator("#timing").inner_text())
    first = page.locator("#recommended li").first.inner_text()
    assert re.search(r"\d\.\d\d\s+\(\d\.\d\d to \d\.\d\d\)", first)
    assert loved in first or hated in first
    seen(page, "rate", look)
    before = page.locator("#recommended").inner_text()
    page.locator("#ratings li", has_text=loved).locator("label").first.click()
    page.wait_for_function("old => document.querySelector('#recommended').innerText !== old",
                           arg=before)  # fmt: skip
    page.locator("#search").fill("no film is called that")
    page.get_by_text("No matches.").wait_for()
    page.locator("#clear").click()
    page.get_by_text("Rate a few items to see recommendations.").wait_for()
    assert page.locator("#recommended li").count() == 0


def test_stars_can_be_given_with_the_keyboard_alone(page, look):
    page.locator("#choices li").first.wait_for()
    page.locator("#search").focus()
    page.keyboard.press("Tab")  # to the stars of the first film
    page.keyboard.press("Space")
    page.locator("#recommended li .why").first.wait_for()
    assert page.evaluate("document.activeElement.closest('#ratings') !== null")
    old = page.locator("#recommended").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("old => document.querySelector('#recommended').innerText !== old",
                           arg=old)  # fmt: skip
    page.locator("#tab-rate").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#table").is_visible()
    assert page.locator("#rate").is_hidden()


def test_a_table_of_ones_own_is_looked_at_and_completed(page, look, tmp_path):
    table = load("film-club").table
    frame = pl.DataFrame(table.frame(table.index[:2500], stars=table.values[:2500]))
    path = tmp_path / "mine.csv"
    frame.write_csv(path)
    page.locator("#tab-table").click()
    page.set_input_files("#file", path)
    page.locator("#look").wait_for(timeout=60_000)
    found = page.locator("#found").inner_text()
    assert "2,500 cells" in found
    assert "on" in page.locator("#notes").inner_text()
    box = page.locator("#completed").bounding_box()
    page.locator("#completed").hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    assert re.search(r": (observed )?\d", page.locator("#hover").inner_text())
    page.locator("#observed").focus()
    page.keyboard.press("ArrowDown")
    seen(page, "table", look)
    with page.expect_download(timeout=60_000) as got:
        page.locator("#download").click()
    assert got.value.suggested_filename == "mine.completed.csv"
    completed = pl.read_csv(got.value.path())
    assert len(completed) == len(frame["member"].unique()) * len(frame["film"].unique())


def test_how_it_works_shows_what_a_cell_reads_and_follows_changes(page, look):
    page.locator("#tab-pools").click()
    page.locator("#pools-model", has_text="predicted by the model").wait_for(timeout=60_000)
    cell = page.locator("[data-at='0 2']")  # nothing was observed there
    assert re.fullmatch(r"\d\.\d", cell.inner_text())
    cell.hover()
    told = page.locator("#reads").inner_text()
    assert "Ada and C, not observed: reads the pools row Ada 3.00, column C 3.67, all 3.25" in told
    assert "The model predicts" in told
    assert page.locator(".pool.in-row").text_content() == "3.00 of 4"
    seen(page, "pools", look)
    page.locator("#shuffle").click()
    assert page.locator("#reads").inner_text() == told
    page.locator(".reading").click()  # from nothing to 1
    page.locator("#reads", has_text="observed 1: reads the pools row Ada 2.60").wait_for()
    page.locator("#grid").focus()
    page.keyboard.press("Enter")
    page.locator("#reads", has_text="observed 2").wait_for()
    page.locator("#pools-model", has_text="predicted by the model").wait_for(timeout=60_000)


def test_a_bad_file_is_told_as_the_command_tells_it(browser, service, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("user,film,rating\na,b,4\na,b,5\n", encoding="utf-8")
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{service.port}/#table")
    page.set_input_files("#file", path)
    page.locator("#table-status.bad").wait_for(timeout=60_000)
    told = CliRunner().invoke(app, ["complete", str(path)]).output
    same = " ".join(told.split()).replace(f"error: {path}", "the file")
    assert page.locator("#table-status").inner_text() == same
    assert page.locator("#look").is_hidden()
    page.locator("#duplicates").select_option("mean")  # as it says
    page.locator("#look").wait_for(timeout=60_000)
    assert "1 cell" in page.locator("#found").inner_text()
    page.close()


def test_the_page_asks_for_a_token_where_one_is_needed(browser, tmp_path):
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    with served(tmp_path, "--token-file", "token") as service:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{service.port}")
        for given in ("not the token", TOKEN):  # the first is not taken, and it asks again
            page.locator("#token").wait_for()
            page.locator("#token-text").fill(given)
            page.locator("#token button").click()
        page.locator("#choices li").first.wait_for()
        assert page.locator("#token").is_hidden()
        page.close()
