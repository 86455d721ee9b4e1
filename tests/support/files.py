"""Small files that tests write, and the cells that tables read from them."""

import io
import math

import polars as pl


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(**columns):
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def cells_of(table):
    columns = [v.decode(table.index[:, axis]) for axis, v in enumerate(table.vocabularies)]
    values = [None if math.isnan(value) else value for value in table.values]
    return dict(zip(zip(*columns, strict=True), values, strict=True))
