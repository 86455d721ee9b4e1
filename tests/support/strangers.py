"""A mark of tests that ask about members that are not in the table on purpose."""

import pytest

STRANGERS = pytest.mark.filterwarnings("ignore::exchangeable.errors.InputWarning")
