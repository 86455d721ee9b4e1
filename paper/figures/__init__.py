"""The figures, one command each; they are written to ``docs/pictures``."""
