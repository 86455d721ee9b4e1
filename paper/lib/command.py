"""Commands that end with one line, and not with a traceback, when what they need is not there."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

from exchangeable.errors import Failed, InputError, InputWarning
from exchangeable.runtime.interruption import Interrupted


def run_command(main: Callable[[], None]) -> None:
    """Run a command: exit status 2 for wrong input, 1 for what failed."""
    warnings.simplefilter("ignore", InputWarning)  # members without training cells are expected
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except (Failed, Interrupted) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
