"""Properties that are computed when they are first read, and kept.

``functools.cached_property`` of Python 3.11 has one lock for all objects of a class, and holds it
while it computes: a refresh that compares all members of a table would block every request that
compares those of another. Python 3.12 has none, and neither has this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801  # it takes the place of that of functools
    """A property that is computed at its first reading, and kept in the object's ``__dict__``.

    No thread waits for another: two that read it first at the same time both compute it, and both
    get the value that was there first. What is in ``vars(instance)`` already is not computed.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        # Without __set__ the object's own entry comes first: this runs only until there is one.
        if instance is None:
            return self
        value = self.compute(instance)
        return vars(instance).setdefault(self.name, value)
