"""The rooms of the package: imports point up the list, and no folder or file grows too large."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "exchangeable"

# Top to bottom: a room imports from itself and from those above. docs/architecture.md says why.
ROOMS = (
    "errors", "_version", "metrics", "runtime", "kernels", "values", "arrays", "data", "datasets",
    "baselines", "nn", "models", "testing", "training", "pretraining", "completion", "evaluation",
    "serve", "cli",
)  # fmt: skip

# Packages that a room must not import at the top level of a module, where they would cost every
# user of the room the time they take to load.
HEAVY = {
    "errors": ("torch", "polars"),
    "_version": ("torch", "polars"),
    "metrics": ("torch", "polars"),
    "runtime": ("polars",),
    "kernels": ("polars",),
    "values": ("polars",),
    "arrays": ("polars",),
    "data": ("torch",),
    "datasets": ("torch",),
    "baselines": ("polars",),
    "nn": ("polars",),
    "models": ("polars",),
    "testing": ("polars",),
    "training": ("polars",),
    "pretraining": ("polars",),
    "cli": ("torch", "polars", "fastapi"),
}
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULES, MAX_LINES = 20, 350


def room_of(module):
    """``exchangeable.nn.layers`` is in the room nn."""
    return module.split(".")[1] if module.count(".") else None


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree):
    """Modules that are imported anywhere in a module, in functions and for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "exchangeable":  # from exchangeable import nn
                yield from (f"exchangeable.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def top_level(tree):
    """The statements that run when the module is imported, functions and type imports left out."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If):
            yield node


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_up_the_list_of_rooms(path):
    here = room_of(name_of(path))
    if here in (None, "__main__"):
        return  # the package itself gives out names of all rooms
    allowed = set(ROOMS[: ROOMS.index(here) + 1])
    tree = ast.parse(path.read_text())
    rooms = {room_of(module) for module in imports(tree) if module.startswith("exchangeable.")}
    assert rooms <= allowed, f"{name_of(path)} imports {sorted(rooms - allowed)}, which are below"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_packages_stay_out_of_light_rooms(path):
    room = room_of(name_of(path))
    # Within arrays and values the modules on tensors need torch; the ones tables use must not.
    light = {"exchangeable.arrays.cells", "exchangeable.values.scale"}
    banned = HEAVY.get(room, ()) + (("torch",) if name_of(path) in light else ())
    body = ast.Module(list(top_level(ast.parse(path.read_text()))), [])
    found = {module.split(".")[0] for module in imports(body)}
    assert not found & set(banned)


@pytest.mark.parametrize("room", [name for name in ROOMS if (PACKAGE / name).is_dir()])
def test_a_room_says_what_lives_in_it_and_holds_at_most_twenty_modules(room):
    text = (PACKAGE / room / "__init__.py").read_text()
    assert len(ast.get_docstring(ast.parse(text)) or "") > 40
    modules = [path for path in (PACKAGE / room).glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_short_enough_to_read(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_every_folder_is_a_room():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert folders | files == set(ROOMS)
