"""Factors that are products over all three axes of a table: their moments, and their fit."""
