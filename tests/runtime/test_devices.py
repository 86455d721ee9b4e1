"""Sizes of memory are read as people write them."""

import numpy as np
import pytest

from exchangeable.errors import InputError
from exchangeable.runtime import devices


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 2**32), ("500 mb", 500 * 2**20), ("2e9", 2 * 10**9), ("1TiB", 2**40)]
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert devices.parse_size(text) == size
    assert devices.parse_size(np.int64(size)) == devices.parse_size(float(size)) == size


@pytest.mark.parametrize(
    "text", ["", "much", "4 bananas", "-1GB", "0GB", "1.2.3GB", 0, -5, True, [1], float("nan")]
)
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="memory must be a size such as 4GB"):
        devices.parse_size(text)
