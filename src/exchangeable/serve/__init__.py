"""A table behind HTTP."""
