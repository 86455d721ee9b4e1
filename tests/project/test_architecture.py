"""The rooms of the package: imports point up the list, and no folder or file grows too large."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from exchangeable.data.options import TableOptions

PACKAGE = Path(__file__).parents[2] / "src" / "exchangeable"

# Top to bottom: a room imports from itself and from those above. docs/architecture.md says why.
ROOMS = (
    "errors", "_version", "metrics", "runtime", "kernels", "values", "arrays", "files", "data",
    "datasets", "sums", "baselines", "prior", "ranking", "nn", "models", "testing", "training",
    "pretraining", "predictors", "completion", "evaluation", "storage", "serve", "cli",
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
    "files": ("torch",),
    "data": ("torch",),
    "datasets": ("torch",),
    "sums": ("polars",),
    "baselines": ("polars",),
    "prior": ("polars",),
    "ranking": ("polars",),
    "nn": ("polars",),
    "models": ("polars",),
    "testing": ("polars",),
    "training": ("polars",),
    "pretraining": ("polars",),
    "predictors": ("polars",),
    "storage": ("torch", "fastapi"),
    "cli": ("torch", "polars", "fastapi"),
}
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULES, MAX_LINES = 20, 350


MODULE_NAME = re.compile(r"exchangeable(\.\w+)+[.:]?\w*")
IMPORTERS = ("import_module", "__import__")


def room_of(module):
    """``exchangeable.nn.layers`` is in the room nn; the package itself is in none."""
    return module.split(".")[1] if module.count(".") else None


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path):
    """The package that relative imports of a module start from."""
    return name_of(path.parent / "__init__.py")


def imports(nodes, package):
    """Modules that are imported by nodes of a module in ``package``, by their absolute names.

    Names of modules of the package in texts count: ``import_module`` and others take them.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                if alias.asname is None:
                    yield alias.name.split(".")[0]  # this name is bound
        elif isinstance(node, ast.ImportFrom):
            module = resolve("." * node.level + (node.module or ""), package)
            if module == "exchangeable":  # from exchangeable import nn
                yield from (f"exchangeable.{alias.name}" for alias in node.names)
            else:
                yield module
        elif isinstance(node, ast.Call) and last_name(node.func) in IMPORTERS:
            yield from (resolve(text, package) for text in map(text_of, node.args[:1]) if text)
        elif MODULE_NAME.fullmatch(text_of(node)):
            yield node.value


def last_name(node):
    """``import_module`` of importlib.import_module, imported itself or not."""
    return getattr(node, "attr", getattr(node, "id", None))


def text_of(node):
    """The text that a node stands for, if it is a literal."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else ""


def resolve(module, package):
    """The absolute name of a module: ``..nn.layers`` from exchangeable.models, say."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    if not level:
        return module
    above = package.split(".")[: package.count(".") + 2 - level]
    return ".".join([*above, *([name] if name else [])])


def top_level(tree):
    """The nodes that run when the module is imported, functions and type imports left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING":
            yield from top_level(ast.Module(node.orelse, []))
            continue
        yield node
        yield from top_level(node)


def rooms_below(source, path):
    """What a module imports although it is below its room, or is the package itself."""
    allowed = ROOMS[: ROOMS.index(room_of(name_of(path))) + 1]
    modules = set(imports(ast.walk(ast.parse(source)), package_of(path)))
    ours = {module for module in modules if module.split(".")[0] == "exchangeable"}
    return sorted(module for module in ours if room_of(module) not in allowed)


def heavy_imports(source, path):
    """The packages that a module must not import, but does when it is imported."""
    # Within arrays and values the modules on tensors need torch; the ones tables use must not.
    light = {"exchangeable.arrays.cells", "exchangeable.values.scale"}
    room = room_of(name_of(path))
    banned = HEAVY.get(room, ()) + (("torch",) if name_of(path) in light else ())
    modules = imports(top_level(ast.parse(source)), package_of(path))
    return sorted({module.split(".")[0] for module in modules} & set(banned))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_up_the_list_of_rooms(path):
    if room_of(name_of(path)) in (None, "__main__"):
        return  # the package itself gives out names of all rooms
    below = rooms_below(path.read_text(), path)
    assert not below, f"{name_of(path)} imports {below}, which are below or the package itself"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_packages_stay_out_of_light_rooms(path):
    assert heavy_imports(path.read_text(), path) == []


@pytest.mark.parametrize(
    "source",
    [
        "from exchangeable.completion.completer import Completer",
        "from exchangeable import Completer",
        "from exchangeable import *",
        "from ..completion.completer import Completer",
        "from ..completion import completer",
        "from .. import completion",
        "from .. import Completer",
        "from ...exchangeable.completion import completer",
        "import exchangeable",
        "import exchangeable as ex\nex.Completer",
        "import exchangeable.errors\nexchangeable.Completer",
        "import exchangeable.completion.completer as completer",
        "def read():\n    from exchangeable.completion import completer",
        "if TYPE_CHECKING:\n    from exchangeable.completion import completer",
        "importlib.import_module('exchangeable.completion.completer')",
        "import_module('exchangeable')",
        "import_module('..completion', __package__)",
        "import_module('.completer', 'exchangeable.completion')",
        "import_module(f'exchangeable.completion.{name}')",
        "__import__('exchangeable.completion')",
        "sys.modules['exchangeable.completion']",
        "attach('exchangeable.completion', {'completer': ('Completer',)})",
    ],
)
def test_an_import_of_a_room_below_is_found_however_it_is_written(source):
    assert rooms_below(source, PACKAGE / "data" / "table.py")
    assert rooms_below(source, PACKAGE / "data" / "__init__.py")


@pytest.mark.parametrize(
    "source",
    [
        "from exchangeable.data.table import Table",
        "from exchangeable import errors",
        "from .table import Table",
        "from . import table",
        "from ..errors import InputError",
        "import exchangeable.errors as errors",
        "import_module('exchangeable.data.table')",
        "import_module('.table', __package__)",
        "attach(__name__, {'table': ('Table',)})",
        "raise InputError('exchangeable complete FILE; exchangeable.Completer().fit(cells)')",
    ],
)
def test_imports_of_the_room_itself_and_of_rooms_above_are_allowed(source):
    assert rooms_below(source, PACKAGE / "data" / "table.py") == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch.nn", True),
        ("if True:\n    import torch", True),
        ("if not TYPE_CHECKING:\n    import torch", True),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", True),
        ("try:\n    from torch import nn\nexcept ImportError:\n    pass", True),
        ("class Table:\n    import torch", True),
        ("torch = import_module('torch')", True),
        ("if TYPE_CHECKING:\n    import torch", False),
        ("if typing.TYPE_CHECKING:\n    import torch", False),
        ("def read():\n    import torch", False),
        ("class Table:\n    def read(self):\n        import torch", False),
        ("async def read():\n    import torch", False),
    ],
)
def test_a_heavy_package_is_found_wherever_it_is_imported_at_once(source, found):
    assert bool(heavy_imports(source, PACKAGE / "data" / "table.py")) == found


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


def errors_with_options(source):
    """Texts of errors that name an option of the command, such as --axes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and last_name(node.func) in ("InputError", "Failed"):
            texts = " ".join(text_of(part) for part in ast.walk(node))
            if re.search(r"(?<![\w-])--[a-z]", texts):
                yield texts


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_errors_outside_the_command_name_keyword_arguments_not_options(path):
    if room_of(name_of(path)) != "cli":
        assert list(errors_with_options(path.read_text())) == []


def errors_with_arguments(source):
    """Texts of errors that name an option as Python does, which no border can word otherwise."""
    names = "|".join(field.name for field in fields(TableOptions))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and last_name(node.func) in ("InputError", "Failed"):
            texts = " ".join(text_of(part) for part in ast.walk(node))
            if re.search(rf"(?<![\w'])({names})=", texts):
                yield texts


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_errors_name_options_so_that_each_border_can_word_them(path):
    assert list(errors_with_arguments(path.read_text())) == []


def test_an_argument_in_an_error_is_found_and_one_of_a_call_is_not():
    assert list(errors_with_arguments("raise InputError(f'{name}: see it; axes= names them')"))
    call = "raise InputError(f\"{option('axes')} names them, {name(axes=3)}\")"
    assert not list(errors_with_arguments(call))


def test_an_option_in_an_error_is_found_and_one_elsewhere_is_not():
    assert list(errors_with_options("raise InputError(f'{name}: see ' 'it; --axes names them')"))
    assert not list(errors_with_options("add('--axes'); raise InputError('a--b; axes= names it')"))
