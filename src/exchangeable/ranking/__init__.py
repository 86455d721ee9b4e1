"""Tables of positives: rankers of unseen items, in closed form.

A ranker is fitted to positives, and scores all items for any row of them: of a known user, or of
one that comes later.
"""
