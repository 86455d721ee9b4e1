"""A cached property is computed once, and one object's computation blocks no other's."""

import ast
import threading
from dataclasses import dataclass
from pathlib import Path

import exchangeable
from exchangeable.runtime.cache import cached_property


@dataclass(frozen=True, eq=False)
class Circle:
    radius: float
    begun: threading.Event
    go_on: threading.Event

    @cached_property
    def area(self):
        """Its area."""
        self.begun.set()
        assert self.go_on.wait(10)
        return [3 * self.radius**2]


def circle(radius, *, waits=False):
    made = Circle(radius, threading.Event(), threading.Event())
    if not waits:
        made.go_on.set()
    return made


def test_it_is_computed_at_the_first_reading_and_kept():
    one = circle(1)
    assert not one.begun.is_set()
    assert one.area == [3]
    one.begun.clear()
    assert one.area is one.area
    assert not one.begun.is_set()
    assert Circle.area.__doc__ == "Its area."


def test_what_was_set_before_is_not_computed():
    one = circle(1)
    vars(one)["area"] = [7]
    assert one.area == [7]
    assert not one.begun.is_set()


def test_a_computation_for_one_object_does_not_block_that_for_another():
    slow, quick, found = circle(2, waits=True), circle(1), []
    threads = [threading.Thread(target=lambda each=each: found.append(each.area))
               for each in (slow, quick)]  # fmt: skip
    threads[0].start()
    assert slow.begun.wait(10)
    threads[1].start()
    threads[1].join(10)
    assert found == [[3]]
    slow.go_on.set()
    threads[0].join(10)
    assert found == [[3], [12]]


def test_two_readers_at_once_get_the_same_value():
    one, found = circle(2, waits=True), []
    threads = [threading.Thread(target=lambda: found.append(one.area)) for _ in range(2)]
    for thread in threads:
        thread.start()
    one.go_on.set()
    for thread in threads:
        thread.join(10)
    assert found[0] is found[1]


def test_no_module_uses_the_cached_property_that_has_a_lock():
    for path in Path(exchangeable.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "functools":
                assert "cached_property" not in {name.name for name in node.names}, path
