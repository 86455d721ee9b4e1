"""The estimator: fit a table, predict its cells, recommend, update, fill in, save.

``completer`` is the public class; the other modules are functions on its fitted state, ``Fitted``.
Import ``Completer`` and ``complete`` from ``exchangeable``.
"""
