"""``python -m exchangeable`` is the command."""

from exchangeable.cli import run

run()
