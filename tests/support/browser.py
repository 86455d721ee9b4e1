"""The page in Debian's chromium: how it looks, what is wrong with it, and a task done with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parents[2] / ".soak/node_modules/axe-core/axe.min.js"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
TARGET = 44
"""Pixels that a finger needs."""
_SMALL = """least => [...document.querySelectorAll(
    "button, input, select, summary, textarea, [role=tab], [data-at]")]
  .filter(one => one.checkVisibility())
  .map(one => [one.outerHTML.slice(0, 90), (one.closest("label") ?? one).getBoundingClientRect()])
  .filter(([html, box]) => box.width < least - 0.5 || box.height < least - 0.5)
  .map(([html, box]) => `${Math.round(box.width)} x ${Math.round(box.height)}: ${html}`)"""


@contextmanager
def browser() -> Iterator[Any]:
    """Start chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield made
        finally:
            made.close()


@contextmanager
def opened(
    browser: Any, service: Any, look: str = "light", *, axe: bool = False, path: str = ""
) -> Iterator[Any]:
    """Open the page; nothing may go wrong in it, and it may ask no other host.

    Its own scripts are all that it allows, so axe needs its policy off.
    """
    context = browser.new_context(**LOOKS[look], bypass_csp=axe, accept_downloads=True)
    context.set_default_timeout(20_000)
    page = context.new_page()
    home = f"http://127.0.0.1:{service.port}"
    wrong: list[str] = []
    asked: set[str] = set()

    def note(line: Any) -> None:
        if line.type == "error" and not line.location["url"].endswith(tuple(page.expected)):
            wrong.append(f"{line.text} {line.location['url']}")

    page.expected: set[str] = set()  # ends of addresses that may fail
    page.asked = asked
    page.on("console", note)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
    page.on("request", lambda request: asked.add(request.url))
    page.goto(f"{home}/{path}")
    try:
        yield page
    finally:
        context.close()
    assert not wrong, "; ".join(wrong)
    assert all(url.startswith((f"{home}/", f"blob:{home}/", "data:")) for url in asked)


def faults(page: Any) -> list[str]:
    """What axe finds, what is wider than the screen, and what is too small for a finger."""
    found = [f"small: {one}" for one in page.evaluate(_SMALL, TARGET)]
    width, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    if width > screen:
        found.append(f"{width} pixels are wider than the screen of {screen}")
    if AXE.exists():
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found += [
            f"{one['impact']}: {one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in page.evaluate("axe.run()")["violations"]
        ]
    return found


def complete_file(page: Any, path: Path) -> tuple[list[list[str]], Path, int]:
    """Upload a file, find the five least certain cells, and download the completed table.

    Returns these cells, the file, and the number of steps that a person takes.
    """
    page.locator("#tab-file").click()
    page.set_input_files("#file", path)
    page.locator("#complete:enabled").click()
    lines = page.locator("#file-explorer .explorer tbody tr")
    lines.first.wait_for()
    least = [lines.nth(at).locator("td").all_inner_texts() for at in range(5)]
    with page.expect_download() as download:
        page.locator("#download").click()
    return least, Path(download.value.path()), 4
