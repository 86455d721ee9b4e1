"""The contract of scikit-learn's estimators, without scikit-learn until one of its parts is needed.

Importing scikit-learn takes about as long as reading a small table. So parameters, ``repr`` and
conditional methods are written out here, after ``sklearn.base.BaseEstimator``; tags, scores and
errors, which only users of scikit-learn see, import it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sklearn.utils import Tags

_FROM_SCIKIT_LEARN = (
    *("_repr_html_", "_repr_mimebundle_"),
    *("get_metadata_routing", "set_fit_request", "set_score_request"),
)
"""Names of its base classes that are looked up on a subclass of both, when they are first used."""


class Estimator:
    """Base of an estimator whose fitted state is in the attribute ``fitted_``."""

    fit: Callable[..., Any]
    predict: Callable[..., Any]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor; none of them is an estimator."""
        return {name: getattr(self, name) for name in sorted(_defaults(type(self)))}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor."""
        names = sorted(_defaults(type(self)))
        for name, value in params.items():
            if name not in names:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. "
                    f"Valid parameters are: {names!r}."
                )
            setattr(self, name, value)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination, R², of the predictions."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            # Labels of cells never seen say nothing, so numbers as labels teach little.
            regressor_tags=RegressorTags(poor_score=True),
            input_tags=InputTags(string=True, categorical=True),
        )

    def __repr__(self) -> str:
        defaults = _defaults(type(self))
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if hasattr(self, name)]

    def __getattr__(self, name: str) -> Any:
        """Raise scikit-learn's error before ``fit``, or look up a name of its base classes."""
        if name.endswith("_") and not name.startswith("_") and "fitted_" not in vars(self):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                f"appropriate arguments before using this estimator."
            )
        if name in _FROM_SCIKIT_LEARN:
            cls: Any = type(self)
            twin = object.__new__(_scikit_learn_class(cls))
            twin.__dict__ = self.__dict__
            return getattr(twin, name)
        method = inspect.getattr_static(type(self), name, None)
        if isinstance(method, _ConditionalMethod):
            raise AttributeError(method.reason)
        raise AttributeError(f"This {type(self).__name__!r} has no attribute {name!r}")


class available_if:  # noqa: N801  # a decorator, named as scikit-learn's
    """Make a method an attribute only of the instances that ``check`` is true of.

    ``reason`` is the error of the others: a sentence on what the method needs.
    """

    def __init__(self, check: Callable[[Any], bool], reason: str) -> None:
        self.check, self.reason = check, reason

    def __call__(self, method: Callable[..., Any]) -> Any:
        return _ConditionalMethod(method, self.check, self.reason)


class _ConditionalMethod:
    def __init__(
        self, method: Callable[..., Any], check: Callable[[Any], bool], reason: str
    ) -> None:
        self.method, self.check, self.reason = method, check, reason
        self.__doc__ = method.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        if instance is None:
            return self.method
        if not self.check(instance):
            raise AttributeError(self.reason)  # Python looks on, in __getattr__
        return MethodType(self.method, instance)


def _defaults(cls: type) -> dict[str, Any]:
    """Defaults of the constructor's parameters, by name."""
    return {p.name: p.default for p in inspect.signature(cls).parameters.values()}


@cache
def _scikit_learn_class(cls: Any) -> Any:
    """Derive a class from the estimator and from scikit-learn's base classes."""
    from sklearn.base import BaseEstimator, RegressorMixin

    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__init__": cls.__init__}
    return type(cls.__name__, (cls, RegressorMixin, BaseEstimator), members)
