"""Links, commands and names in the documentation lead somewhere, and all public names are in it."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml
from tests.project.test_architecture import PACKAGE, ROOMS
from tests.support.markdown import ROOT, anchors, links, pages, slug

import exchangeable

DOCS = ROOT / "docs"
API = sorted((DOCS / "api").glob("*.md"))
DIRECTIVE = re.compile(r"^\{\{ (?:include|script) (\S+) \}\}$", flags=re.MULTILINE)
RECORD = DOCS / "lab-notes"  # its commands are those of their day


def text_of(page):
    """A page, or the file that is included in its place."""
    text = page.read_text(encoding="utf-8")
    included = DIRECTIVE.search(text)
    return text if included is None else (ROOT / included[1]).read_text(encoding="utf-8")


def relative(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_links_and_their_anchors_lead_somewhere(page):
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"\w+:", link):
            assert re.fullmatch(r"https?://[\w.-]+\.\w+(/\S*)?", link), link
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{relative(page)}: {link}"
        assert not anchor or anchor in anchors(text_of(target)), f"{relative(page)}: {link}"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=relative)
def test_pages_of_the_site_link_within_the_site(page):
    """Other files of the repository are named, since the site does not have them."""
    for link in links(page.read_text(encoding="utf-8")):
        path = link.partition("#")[0]
        if path and "://" not in link:
            assert (page.parent / path).resolve().is_relative_to(DOCS), link


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"[\w/-]+\.md", str(yaml.safe_load(without_tags())["nav"])))
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def without_tags():
    return re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [p for p in pages() if RECORD not in p.parents], ids=relative)
def test_commands_name_files_that_exist(page):
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"python -m (paper[.\w]*)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{relative(page)}: {module}"
    for path in re.findall(r"(?<![\w/])(?:benchmarks|soak|examples|tests)/[\w/]+\.py", text):
        assert (ROOT / path).exists(), f"{relative(page)}: {path}"
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for target in re.findall(r"`make (\w+)`|^make (\w+)", text, re.MULTILINE):
        assert "".join(target) in targets, f"{relative(page)}: make {''.join(target)}"


def documented(page):
    """Names that the directives of a page of the reference show, those of whole modules too."""
    names = set()
    for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        thing = find(path)
        names.add(path.rpartition(".")[2])
        if inspect.ismodule(thing):
            names |= {name for name in vars(thing) if not name.startswith("_")}
    return names


def find(path):
    """The object that a dotted path names."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("page", [p for p in API if p.stem != "index"], ids=lambda p: p.stem)
def test_the_reference_has_every_public_name_of_a_room(page):
    room = importlib.import_module(f"exchangeable.{page.stem}")
    public = set(getattr(room, "__all__", ())) or set(public_names(room))
    assert public <= documented(page) | ALIASES


# Names that rooms give on from others, where they are described; types of arguments.
ALIASES = {"UNKNOWN", "State"}


def public_names(room):
    """The lazy names of a room, or what a module defines itself."""
    if "__getattr__" in vars(room):
        return dir(room)
    tree = ast.parse(Path(room.__file__).read_text(encoding="utf-8"))
    defined = (n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef))
    return [name for name in defined if not name.startswith("_")]


def test_the_reference_has_a_page_for_every_public_room_and_every_name():
    rooms = {name for name in exchangeable.__all__ if name.islower() and name != "complete"}
    assert rooms == {page.stem for page in API} - {"index"}
    everything = set().union(*map(documented, API))
    assert set(exchangeable.__all__) - rooms <= everything


def test_headings_make_the_anchors_that_the_site_makes():
    assert slug("Last.fm: user × artist × tag") == "lastfm-user-artist-tag"
    assert slug("`Completer().fit(cells)` and more") == "completerfitcells-and-more"


@pytest.mark.parametrize("page", [p for p in pages() if RECORD not in p.parents], ids=relative)
def test_modules_that_pages_name_exist(page):
    rooms = "|".join(room for room in ROOMS if (PACKAGE / room).is_dir())
    text = page.read_text(encoding="utf-8")
    for room, module in re.findall(rf"`(?:exchangeable\.)?({rooms})\.([a-z_]+)", text):
        places = (f"{module}.py", f"{module}/__init__.py")
        known = any((PACKAGE / room / place).exists() for place in places)
        assert known or hasattr(importlib.import_module(f"exchangeable.{room}"), module), module


def test_the_architecture_page_lists_the_rooms_in_their_order():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| ", text[: text.index("## The data's way")], re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == list(ROOMS)
