"""The page, driven in a browser: all four parts, light, dark and as wide as a telephone."""

import os
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

if not os.environ.get("EXCHANGEABLE_SCREENSHOTS"):
    reason = "takes two minutes: name a folder for its pictures in EXCHANGEABLE_SCREENSHOTS"
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("playwright.sync_api", reason="needs exchangeable[soak]")
pytest.importorskip("uvicorn", reason="needs exchangeable[serve]")

from playwright.sync_api import expect
from tests.support import browser as browsers
from tests.support.browser import AXE, CHROMIUM, LOOKS, complete_file, faults, opened
from tests.support.service import served
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.datasets import load

if CHROMIUM is None:
    pytest.skip("needs Debian's chromium", allow_module_level=True)

TOKEN = "a-token-that-nobody-guesses"
CLUB = load("film-club").table
PICTURES = Path(os.environ["EXCHANGEABLE_SCREENSHOTS"])
ODD = [
    "x" * 500,
    "word " * 99 + "word.",
    "\u05e9\u05dc\u05d5\u05dd " * 60 + "\u202e",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467" * 40,
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "'\"&amp;</li>",
]


@pytest.fixture(scope="module")
def browser():
    with browsers.browser() as started:
        yield started


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def likes(tmp_path_factory):
    """A service of positives."""
    folder = tmp_path_factory.mktemp("likes")
    liked = CLUB.at_least(4)
    pl.DataFrame(liked.frame(liked.index)).write_csv(folder / "likes.csv")
    with served(folder, "likes.csv") as running:
        yield running


@pytest.fixture(params=LOOKS)
def look(request):
    return request.param


@pytest.fixture
def page(browser, service, look):
    with opened(browser, service, look, axe=AXE.exists()) as made:
        yield made


def seen(page, name, look, *, whole=False):
    """Nothing is wrong with what is shown; a picture of it for the eye."""
    assert faults(page) == []
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}-{look}.png", full_page=whole)


def rate(page, number, stars):
    """The ``number``th film that is offered."""
    row = page.locator("#choices li").nth(number)
    label = row.locator("> .name").inner_text()
    row.locator("label").nth(stars - 1).click()
    page.locator("#ratings li", has_text=re.compile(re.escape(label))).wait_for()
    return label


def changes(page, selector, action):
    """Act, and wait until the text of an element is another."""
    before = page.locator(selector).inner_text()
    action()
    expect(page.locator(selector).first).not_to_have_text(before, use_inner_text=True)


def pick(page, box, text):
    """Search for a member, and choose the first one that is found."""
    box.locator("input[type=search]").fill(text)
    choice = box.locator(".choice", has_text=text).first
    name = choice.inner_text()
    choice.click()
    return name


def test_recommendations_follow_the_stars_and_tell_why(page, look):
    page.locator("#choices li").first.wait_for()
    assert page.locator("#about").inner_text() == "film-club: 200 members × 120 films, ratings 1–5"
    loved, hated = rate(page, 0, 5), rate(page, 0, 1)
    expect(page.locator("#recommended li .why .name").nth(19)).to_be_attached()
    first = page.locator("#recommended li").first
    assert re.search(r"\d\.\d\d\s+\(\d\.\d\d to \d\.\d\d\)", first.inner_text())
    assert loved in first.inner_text() or hated in first.inner_text()
    page.evaluate("scrollTo(0, 0)")
    box = first.bounding_box()
    assert box["y"] + box["height"] < LOOKS[look]["viewport"]["height"]  # above the fold
    seen(page, "rate", look)
    page.reload()  # ratings stay in the tab
    page.locator("#recommended li").first.wait_for()
    assert {loved, hated} == set(page.locator("#ratings li > .name").all_inner_texts())
    stars = page.locator("#ratings li", has_text=loved).locator("label").first
    changes(page, "#recommended", stars.click)
    page.locator("#search").fill("no film is called that")
    page.get_by_text("No matches.").wait_for()
    page.locator("#clear").click()
    page.get_by_text("Rate a few films to see recommendations.").wait_for()
    assert page.locator("#recommended li").count() == 0


def test_likes_are_toggles_and_the_result_is_a_ranked_list(browser, likes, look):
    with opened(browser, likes, look, axe=AXE.exists()) as page:
        page.locator("#choices li").first.wait_for()
        assert "likes" in page.locator("#about").inner_text()
        assert page.locator("#rate input:not([type=search])").count() == 0
        name = page.locator("#choices li > .name").first.inner_text()
        page.get_by_role("button", name=f"Like {name}", exact=True).click()
        liked = page.locator("#ratings").get_by_role("button", name=f"Like {name}", exact=True)
        liked.wait_for()
        assert liked.get_attribute("aria-pressed") == "true"
        page.locator("#recommended li").first.wait_for()
        other = page.locator("#choices button").first
        other.click()  # with two, the list can tell which of them an item goes with
        page.locator("#recommended .why", has_text="goes with").first.wait_for()
        if look == "phone":
            page.locator("#all-recommended").click()
        listed = page.locator("#recommended li .number").all_inner_texts()
        assert all(re.fullmatch(r"chance [\d.]+\s%", one) for one in listed)
        shares = [float(one.split()[1]) for one in listed]
        assert shares == sorted(shares, reverse=True)
        assert len(shares) == 10
        page.evaluate("scrollTo(0, 0)")
        seen(page, "likes", look)
        liked.click()
        page.locator("#ratings button").first.click()
        page.get_by_text("Like a few films to see recommendations.").wait_for()
        page.locator("#tab-explore").click()
        page.locator("#explored tbody tr").first.wait_for()
        assert re.search(
            r"\d\s%\s+filled in", page.locator("#explored td.number").first.inner_text()
        )
        assert faults(page) == []


def test_all_works_by_the_keyboard_alone(browser, service):
    with opened(browser, service) as page:
        page.locator("#choices li").first.wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator("#search").focus()
        page.keyboard.press("Tab")  # to the stars of the first film
        page.keyboard.press("Space")
        page.locator("#recommended li .why").first.wait_for()
        assert page.evaluate("document.activeElement.closest('#ratings') !== null")
        changes(page, "#recommended", lambda: page.keyboard.press("ArrowRight"))
        page.locator("#tab-rate").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#explore").is_visible()
        assert page.locator("#rate").is_hidden()
        search = page.locator("#explored input[type=search]").first
        search.focus()
        page.keyboard.type("Ada")
        page.locator("#explored .choice").first.wait_for()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_text("Show the whole table").focus()
        page.keyboard.press("Enter")
        page.locator("caption", has_text="19,518 cells").wait_for()
        page.locator("canvas[role=img]").focus()
        page.keyboard.press("ArrowDown")
        assert re.search(r"(observed|filled in) \d", page.locator(".hover").inner_text())


def test_cells_are_listed_sorted_filtered_and_saved(page, look):
    page.locator("#tab-explore").click()
    rows = page.locator("#explored .explorer > .two tbody tr")
    rows.first.wait_for()
    assert page.locator("#explored caption").first.inner_text() == "19,518 cells"
    widths = []
    for text in page.locator("#explored td.number").all_inner_texts():
        low, high = re.search(r"\((.+) to (.+)\)", text).groups()
        widths.append(float(high) - float(low))
    assert all(one >= other - 0.011 for one, other in pairwise(widths))
    ticks = page.locator("#explored .legend .ticks span").all_inner_texts()
    assert ticks == ["1", "3", "5"]  # the whole scale
    assert "filled in, uncertain" in page.locator("#explored .legend").inner_text()
    box = page.locator("#explored canvas[role=img]").bounding_box()
    page.locator("#explored canvas[role=img]").hover(position={"x": box["width"] / 2, "y": 9})
    assert re.search(r"(observed|filled in) \d", page.locator(".hover").inner_text())
    page.evaluate("scrollTo(0, 0)")
    seen(page, "explore", look)
    member = pick(page, page.locator("#explored .finder").first, "Ada Abt")
    page.get_by_text("Show the whole table").wait_for()
    page.get_by_label("Show", exact=True).select_option("observed")
    page.get_by_label("Sort", exact=True).select_option("high")
    known = {label: value for (who, label, value) in rated() if who == member}
    assert page.locator("#explored caption").first.inner_text() == f"{len(known)} cells"
    assert rows.first.locator(".mark.seen").count() == 1
    page.get_by_label("Show", exact=True).select_option("all")
    with page.expect_download() as download:
        page.get_by_text("Download these cells (CSV)").click()
    saved = pl.read_csv(download.value.path())
    assert saved.columns == ["member", "film", "rating", "low", "high", "observed"]
    assert len(saved) == 120
    observed = saved.filter(pl.col("observed") == "yes")
    assert dict(zip(observed["film"], observed["rating"], strict=True)) == known
    filled = saved.filter(pl.col("observed") == "no")
    inside = (filled["low"] <= filled["rating"]) & (filled["rating"] <= filled["high"])
    assert inside.all()
    assert observed["low"].null_count() == len(observed)


def rated():
    return pl.DataFrame(CLUB.frame(CLUB.index, rating=CLUB.values)).rows()


def test_two_members_are_compared(page, look):
    page.locator("#tab-explore").click()
    box = page.locator("#explored .compare")
    one = pick(page, box.locator(".finder").nth(0), "Ada Diaz")
    other = pick(page, box.locator(".finder").nth(1), "Ben Engel")
    box.locator("tbody tr").first.wait_for()
    ratings = {name: {f: v for who, f, v in rated() if who == name} for name in (one, other)}
    both = set(ratings[one]) & set(ratings[other])
    gap = sum(abs(ratings[one][film] - ratings[other][film]) for film in both) / len(both)
    told = box.locator("p[role=status]").last.inner_text()
    assert told.startswith(
        f"{len(both)} films have a value of both; there they differ by {gap:.2f}"
    )
    gaps = [
        abs(float(text.replace("−", "-")))
        for text in box.locator("td:last-child").all_inner_texts()
    ]
    assert gaps == sorted(gaps, reverse=True)
    box.scroll_into_view_if_needed()
    seen(page, "compare", look)
    box.get_by_label("Compare", exact=True).select_option("1")  # films
    assert box.get_by_text("None is chosen yet.").count() == 2


def wide_file(folder):
    """Grades of 30 pupils in 8 subjects, a third of them missing."""
    generator = np.random.default_rng(0)
    level = generator.normal(size=(30, 1)) + generator.normal(size=(1, 8))
    grades = np.round(3 + level + 0.3 * generator.normal(size=(30, 8))).clip(1, 5)
    grades[generator.random((30, 8)) < 0.3] = np.nan
    columns = {f"subject {n}": grades[:, n] for n in range(8)}
    frame = pl.DataFrame({"pupil": [f"pupil {n}" for n in range(30)], **columns}).fill_nan(None)
    frame.write_csv(folder / "grades.csv")
    return frame, folder / "grades.csv"


def test_a_wide_file_is_completed_and_its_least_certain_cells_found(page, look, tmp_path):
    frame, path = wide_file(tmp_path)
    least, file, _ = complete_file(page, path)
    completed = pl.read_csv(file)
    assert completed.columns == frame.columns
    assert completed["pupil"].equals(frame["pupil"])
    for name in frame.columns[1:]:
        assert completed[name].null_count() == 0
        given = frame[name].is_not_null()
        assert completed[name].filter(given).equals(frame[name].filter(given).cast(pl.Float64))
    page.get_by_label("Show", exact=True).select_option("all")
    with page.expect_download() as download:
        page.locator("#file-explorer").get_by_text("Download these cells (CSV)").click()
    cells = pl.read_csv(download.value.path())
    assert len(cells) == 30 * 8
    missing = {
        (pupil, name) for name in frame.columns[1:]
        for pupil in frame.filter(pl.col(name).is_null())["pupil"]
    }  # fmt: skip
    uncertain = cells.filter(pl.col("observed") == "no").with_columns(
        width=pl.col("high") - pl.col("low")
    )
    assert set(uncertain.select("pupil", "column").rows()) == missing
    widest = uncertain.sort("width", descending=True, maintain_order=True).head(5)
    assert [tuple(line[:2]) for line in least] == widest.select("pupil", "column").rows()
    for line, mean in zip(least, widest["value"], strict=True):
        assert f"{mean:.2f} (" in line[2]
    assert "filled in" in least[0][2]
    for pupil, subject, value in widest.select("pupil", "column", "value").rows():
        filled = completed.filter(pl.col("pupil") == pupil)[subject].item()
        assert filled == pytest.approx(value, abs=1e-3)
    seen(page, "table", look, whole=look == "phone")


def test_columns_are_chosen_before_a_file_is_completed(page, look, tmp_path):
    path = tmp_path / "log.csv"
    lines = [f"{n},u{n % 7},f{n // 7},{n % 5 + 1},{n % 3}" for n in range(40)]
    path.write_text("\n".join(["nr,who,what,stars,mood", *lines]), encoding="utf-8")
    page.locator("#tab-file").click()
    page.set_input_files("#file", path)
    page.locator("#reading").wait_for()
    uses = [page.get_by_label(f"Use of the column {name}", exact=True)
            for name in ("nr", "who", "what", "stars", "mood")]  # fmt: skip
    for use, role in zip(uses, ("", "label", "label", "", "value"), strict=True):
        if use.input_value() != role:
            with page.expect_response(re.compile("/v1/columns")):
                use.select_option(role)
    page.get_by_text("7 whos × 6 whats, moods 0–2. 40 of 42 cells have a value.").wait_for()
    seen(page, "columns", look)
    page.get_by_label("Values are").select_option("true")
    page.locator("#file-status.bad", has_text="must be above 0, but 0 is not").wait_for()
    assert page.locator("#complete").is_disabled()
    uses[4].select_option("")
    page.get_by_text("7 whos × 6 whats, likes").wait_for()
    page.locator("#complete:enabled").click()
    page.locator("#file-explorer tbody tr").first.wait_for()
    assert re.search(r"\d\s%", page.locator("#file-explorer td.number").first.inner_text())


def test_a_bad_file_is_told_as_the_command_tells_it(browser, service, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("user,film,rating\na,b,4\na,b,5\n", encoding="utf-8")
    with opened(browser, service, path="#own") as page:
        page.set_input_files("#file", path)
        page.locator("#file-status.bad").wait_for()
        told = CliRunner().invoke(app, ["complete", str(path)]).output
        same = " ".join(told.split()).replace(f"error: {path}", "the file")
        same = same.replace("--duplicates", "\u201cCells that occur more than once\u201d")
        assert page.locator("#file-status").inner_text() == same
        assert page.locator("#complete").is_disabled()
        page.get_by_label("Cells that occur more than once").select_option("mean")  # as it says
        page.locator("#complete:enabled").wait_for()
        assert "1 user × 1 film" in page.locator("#read-summary").inner_text()


def test_a_text_is_read_in_another_encoding_once_that_is_chosen(browser, service, tmp_path):
    path = tmp_path / "windows.csv"
    lines = [f"u{n % 7};caf\xe9 {n // 7};{n % 5 + 1}" for n in range(40)]
    path.write_text("\n".join(["user;film;rating", *lines]), encoding="cp1252")
    with opened(browser, service, path="#own") as page:
        page.expected.add("/columns?likes=false&duplicates=error&wording=fields")
        page.set_input_files("#file", path)
        status = page.locator("#file-status.bad")
        status.wait_for()
        assert "choose \u201cText encoding: Latin-1\u201d" in status.inner_text()
        assert page.locator("#complete").is_disabled()
        assert faults(page) == []
        page.get_by_label("Text encoding").focus()
        page.keyboard.type("Windows, Western")
        page.get_by_text("7 users \xd7 6 films, ratings 1\u20135.").wait_for()
        assert "caf\xe9 0" in page.locator("#preview").inner_text()
        page.locator("#complete:enabled").click()
        page.locator("#file-explorer tbody tr", has_text="caf\xe9").first.wait_for()


def test_a_first_line_of_texts_can_be_taken_for_titles(browser, service, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("u,i\nann,Heat\nbob,Big\nbob,Heat\n", encoding="utf-8")
    with opened(browser, service, path="#own") as page:
        page.set_input_files("#file", path)
        page.locator("#complete:enabled").wait_for()
        assert page.locator("#preview th").all_inner_texts()[0].startswith("column 1")
        page.get_by_text("How the file was read").click()
        page.locator("#found", has_text="\u201cFirst line: titles\u201d").wait_for()
        page.get_by_label("First line").select_option("true")
        page.locator("#preview th", has_text="u").first.wait_for()
        page.get_by_text("2 us \xd7 2 is, likes").wait_for()


def test_titles_stand_for_ids_and_stay_in_the_tab(browser, service, tmp_path):
    path = tmp_path / "titles.csv"
    path.write_text('film;title\nHeat;"Fire; and <b>smoke</b>"\nAlien;Das Ding\xe4\n', "cp1252")
    with opened(browser, service, path="#explore") as page:
        page.locator("#explored tbody tr").first.wait_for()
        page.get_by_text("Titles for ids").click()
        page.locator("#explored .titles input[type=file]").set_input_files(path)
        page.locator(".titles p[role=status]", has_text="3 titles for films").wait_for()
        pick(page, page.locator("#explored .finder").first, "<b>smoke</b>")
        page.locator("#explored tbody", has_text="Fire; and <b>smoke</b> (Heat)").wait_for()
        page.reload()
        page.locator("#tab-rate").click()
        page.locator("#search").fill("ding\xe4")
        page.locator("#choices", has_text="Das Ding\xe4 (Alien)").wait_for()
        assert page.locator("#choices li").count() == 1


def test_labels_of_all_kinds_break_nothing(browser, tmp_path):
    generator = np.random.default_rng(0)
    rows = [
        (f"u{n}" if n else ODD[4], item, generator.integers(1, 11) / 2)
        for n in range(9)
        for item in [*ODD, "a", "b", "c"]
        if generator.random() < 0.7
    ]
    frame = pl.DataFrame(rows, schema=["user", "item", "rating"], orient="row")
    frame.write_csv(tmp_path / "odd.csv")
    with (
        served(tmp_path, "odd.csv") as service,
        opened(browser, service, "phone", axe=AXE.exists()) as page,
    ):
        page.locator("#choices li").first.wait_for()
        for level in ("4.5", "1", "3"):
            page.locator("#choices select").first.select_option(level)
            page.locator("#recommended li .why").first.wait_for()
        seen(page, "odd", "phone", whole=True)
        page.locator("#tab-explore").click()
        pick(page, page.locator("#explored .finder").first, ODD[4])
        page.get_by_text("Show the whole table").wait_for()
        assert page.locator("#explored tbody tr").first.inner_text().startswith(ODD[4])
        assert page.locator("img, #explored script").count() == 0
        seen(page, "odd-cells", "phone", whole=True)


def test_how_it_works_is_computed_in_the_browser(page, look):
    page.locator("#choices li").first.wait_for()
    page.locator("#tab-pools").click()
    page.asked.clear()
    cell = page.locator("[data-at='0 2']")  # nothing was observed there
    assert cell.inner_text() == "3.8"
    cell.hover()
    told = page.locator("#reads").inner_text()
    assert "Ada and C, not observed: reads the pools row Ada 4.00, column C 3.00, all 3.00" in told
    assert "Predicted: 3.75." in told  # 3 + (4 - 3) 3 / (3 + 1)
    assert page.locator(".pool.in-row").text_content() == "4.00 of 3"
    seen(page, "pools", look)
    page.locator("#shuffle").click()
    assert page.locator("#reads").inner_text() == told
    page.locator(".reading").click()  # from nothing to 1
    page.locator("#reads", has_text="observed 1: reads the pools row Ada 3.25").wait_for()
    page.locator("#grid").focus()
    page.keyboard.press("Enter")
    page.locator("#reads", has_text="observed 2").wait_for()
    assert not [url for url in page.asked if "/v1/" in url]  # so any number of people can look


def test_what_takes_long_says_so(browser, service):
    with opened(browser, service) as page:
        page.locator("#choices li").first.wait_for()
        held = []
        page.route("**/recommend", lambda route: held.append(route))
        page.locator("#choices label").first.click()
        page.locator("#timing progress").wait_for()
        assert "Computing recommendations" in page.locator("#timing").inner_text()
        held[0].continue_()
        page.locator("#recommended li").first.wait_for()  # its reasons are still awaited
        assert page.locator("#timing progress").count() == 0
        assert page.locator("#recommended .why").count() == 0
        page.unroute("**/recommend")


def test_a_file_waits_while_the_service_is_busy_with_others(browser, service, tmp_path):
    _, path = wide_file(tmp_path)
    with opened(browser, service, path="#own") as page:
        busy = {"status": 503, "json": {"error": "too many uploads are in progress: try again"}}
        page.expected.add("/columns?likes=false&duplicates=error&wording=fields")
        page.route("**/v1/columns?*", lambda route: route.fulfill(**busy), times=1)
        page.set_input_files("#file", path)
        page.locator("#complete:enabled").wait_for()
        assert "too many" not in page.locator("#own").inner_text()


def test_another_table_can_be_picked(browser, service):
    with opened(browser, service) as page:
        names = [{"name": name} for name in ("films", "a/b ?")]
        page.route("**/v1/tables", lambda route: route.fulfill(json={"tables": names}))
        only = re.compile(r"/v1/tables/[^/]+/(.+)")
        page.route(
            only,
            lambda route: route.continue_(url=only.sub(r"/v1/\1", route.request.url)),
        )
        page.reload()
        page.locator("#choices li").first.wait_for()
        page.locator("#choices label").first.click()
        page.locator("#recommended li").first.wait_for()
        page.locator("#tables select").select_option("a/b ?")
        page.get_by_text("a/b ?: 200 members × 120 films").wait_for()
        page.get_by_text("Rate a few films to see recommendations.").wait_for()
        assert page.locator("#ratings li").count() == 0  # those were of the other table
        assert any("/v1/tables/a%2Fb%20%3F/model" in url for url in page.asked)
        page.locator("#tables select").select_option("films")
        page.locator("#recommended li").first.wait_for()


def test_long_titles_of_columns_fit_a_telephone(browser, service, tmp_path):
    rows = "".join(f"{n % 7},{n % 4},{n % 5 + 1}\n" for n in range(20))
    (tmp_path / "long.csv").write_text(f"{'x' * 490},film,rating\n{rows}", encoding="utf-8")
    with opened(browser, service, "phone", path="#own") as page:
        page.set_input_files("#file", tmp_path / "long.csv")
        page.locator("#complete:enabled").wait_for()
        assert faults(page) == []
        page.locator("#complete").click()
        page.locator("#file-explorer tbody tr").first.wait_for()
        assert faults(page) == []


def test_whole_numbers_of_any_length_name_their_members(browser, tmp_path):
    """A browser would round 76561198000000001."""
    whole = 76561198000000001 + np.arange(12)
    frame = pl.DataFrame({"game": np.arange(12) % 4, "player": whole, "hours": np.arange(12) / 4})
    frame.write_csv(tmp_path / "steam.csv")
    with (
        served(tmp_path, "steam.csv", "--model", "bias") as service,
        opened(browser, service, path="#explore") as page,
    ):
        cells = page.locator("#explored .explorer tbody td:nth-child(2)")
        cells.first.wait_for()
        shown = {int(text) for text in cells.all_inner_texts()}
        assert shown <= set(whole.tolist())
        assert len(shown) > 4
        page.locator("#explored input[type=search]").first.fill("76561198000000007")
        page.locator("#explored .found button").first.click()
        page.locator("#explored", has_text="player: 76561198000000007").wait_for()
        page.locator("#tab-rate").click()
        rated = page.locator("#choices li", has_text="76561198000000007")
        rated.locator("select").select_option("2")
        page.locator("#recommended li").first.wait_for()
        assert faults(page) == []


def test_the_table_that_was_chosen_last_is_shown(browser, tmp_path):
    small = CLUB.frame(CLUB.index[:200], rating=CLUB.values[:200])
    for name in ("one", "two", "three"):
        pl.DataFrame(small).write_csv(tmp_path / f"{name}.csv")
    files = ["one.csv", "two.csv", "three.csv", "--model", "bias"]
    with served(tmp_path, *files) as service, opened(browser, service) as page:
        page.locator("#choices li").first.wait_for()
        waiting = []
        page.route("**/v1/tables/two/model", lambda route: waiting.append(route))
        for name in ("two", "three"):
            page.locator("#tables select").select_option(name)
        page.locator("#about", has_text="three:").wait_for()
        with page.expect_response("**/v1/tables/two/model"):
            waiting[0].continue_()
        page.locator("#tab-explore").click()
        page.locator("#explored tbody tr").first.wait_for()
        assert page.locator("#about").inner_text().startswith("three:")
        assert faults(page) == []


def test_the_page_asks_for_a_token_and_takes_another(browser, tmp_path):
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    with (
        served(tmp_path, "--token-file", "token") as service,
        opened(browser, service) as page,
    ):
        page.expected.update({"/v1/tables", "/model"})  # each is refused once
        form = page.locator("#token")
        form.wait_for()

        def give(text):
            page.locator("#token-text").fill(text)
            form.locator("button").click()

        give("two words\u2026")
        page.get_by_text("without blanks or accents").wait_for()
        give("not-the-token")
        page.get_by_text("This token was not accepted.").wait_for()
        give(f'  "{TOKEN}"  ')  # with what was copied along
        page.locator("#choices li").first.wait_for()
        assert form.is_hidden()
        page.locator("#token-change").click()  # badly this time
        give("another")
        page.expected.add("/members?axis=film&holding=heat&limit=20")
        page.locator("#search").fill("heat")
        page.get_by_text("This token was not accepted.").wait_for()
        give(f"Bearer {TOKEN}")
        page.locator("#choices", has_text="Heat").wait_for()
        assert not any(TOKEN in url for url in page.asked)
        assert TOKEN not in page.content()
        kept = page.evaluate("[JSON.stringify(localStorage), document.cookie, location.href]")
        assert TOKEN not in "".join(kept)
        assert TOKEN not in (tmp_path / "serve.log").read_text()
