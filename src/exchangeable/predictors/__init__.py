"""Predictors of one table's cells: by a model, a baseline, a ranker, in units that suit the values.

``base`` is the interface, and reads statistics of many cells in one pass.
"""
