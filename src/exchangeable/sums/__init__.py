"""Sums over the cells of each member, as products with sparse matrices: in parts of a table, on all
cores and in several processes.
"""
