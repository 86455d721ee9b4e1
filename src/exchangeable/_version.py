"""The version of the package, importable from every room."""

__version__ = "0.1.0"
