"""Values of cells: their scale, how models encode them, and the distributions that are predicted.

``scale`` needs numpy only; ``codecs``, ``losses``, ``distributions`` and ``calibration`` use torch.
"""
