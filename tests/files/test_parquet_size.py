"""What a file that is sent may hold, found out before it is unpacked."""

import io

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")

from tests.support.service_engine import FRAME

from exchangeable.errors import InputError
from exchangeable.files import parquet_size
from exchangeable.files.parquet_size import NotParquet, measure
from exchangeable.serve.uploads import Upload


def parquet_of(frame, **options):
    buffer = io.BytesIO()
    pq.write_table(frame.to_arrow(), buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": False},
        {"row_group_size": 100, "write_page_index": True},
        {"data_page_version": "2.0", "data_page_size": 500},
    ],
)
def test_the_size_of_a_parquet_file_is_known_before_it_is_measure(options):
    content = parquet_of(FRAME, **options)
    described = pq.ParquetFile(io.BytesIO(content)).metadata
    groups = [described.row_group(n).total_byte_size for n in range(described.num_row_groups)]
    found = measure(content)
    assert found.values == len(FRAME)
    assert 0.9 * sum(groups) < found.bytes <= sum(groups)  # which count the headers, too


def test_a_small_file_that_would_be_large_is_refused():
    texts = ["x" * 3000 + str(n) for n in range(100_000)]
    frame = pl.DataFrame({"user": texts, "film": "a", "stars": 1.0})
    content = parquet_of(frame, compression="zstd")
    assert len(content) < 2**22
    with pytest.raises(InputError, match=r"at most 256 MB uncompressed, but has 29\d MB"):
        Upload(content).read_table(1_000_000)
    # One text that comes again in every row of the answer.
    long = pl.DataFrame({"user": "x" * 501, "film": ["a", "b"], "stars": [1.0, None]})
    for sent in (parquet_of(long), long.write_csv().encode()):
        with pytest.raises(InputError, match="at most 500 characters, but one has 501"):
            Upload(sent).read_table(1_000_000)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damage_to_a_parquet_file_leads_astray_who_reads_its_size(data):
    content = bytearray(parquet_of(FRAME[:50], row_group_size=20))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.one_of(st.integers(0, len(content) - 1), st.integers(-900, -9)))
        content[at] = data.draw(st.integers(0, 255))
    try:
        found = measure(bytes(content))
    except NotParquet:
        return
    assert found.bytes >= 0
    assert found.values >= 0


def test_lists_in_lists_without_end_are_refused():
    content = bytearray(parquet_of(pl.DataFrame({"user": [str(n) for n in range(2000)]})))
    content[4:2004] = b"\x19" * 2000  # each byte: a list of one list
    with pytest.raises(NotParquet, match="nested too deeply"):
        measure(bytes(content))


def test_columns_that_share_pages_without_end_are_not_followed(monkeypatch):
    monkeypatch.setattr(parquet_size, "MAX_PAGES", 5)
    with pytest.raises(NotParquet, match="more than 5 pages"):
        measure(parquet_of(FRAME, row_group_size=100))
