"""Commands, run in this process as they are from a shell."""

from typer.testing import CliRunner

from exchangeable.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    """Run a command that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def train_small(*more):
    """Train a small model on the film club, in the folder ``model``."""
    arguments = ("--steps", "6", "--width", "8", "--depth", "2", "--evaluate-every", "3")
    return run("train", "film-club", "--out", "model", *arguments, *more)
