"""Answers of the engine: lists of cells, computed together where several wait for them."""
