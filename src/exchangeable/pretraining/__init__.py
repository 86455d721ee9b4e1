"""Pretraining: synthetic tables, lessons drawn from them, and the weights in the package.

``synthetic`` draws tables, ``lessons`` makes examples of them, ``pretrain`` trains on these by the
loop of the room ``training``, and ``bundled`` gives out the models whose weights are included.
"""
