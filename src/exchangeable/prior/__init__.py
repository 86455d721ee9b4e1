"""The prior: closed-form predictions for every cell that a model may start from.

Biases, drift, two factorizations, similar members and cells near in time, and the trust in each.
"""
