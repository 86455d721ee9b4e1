"""Requests that are made to do harm: files that grow, sockets that send nothing."""

import io
import socket

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def growing_parquet(column, rows=20_000, length=2**16, others=0):
    """A small file with one long text in every row of a column, in a dictionary."""
    texts = ["x" * length, *map(str, range(others))]
    repeated = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), texts)
    users, films = np.divmod(np.arange(rows), 2**8)
    columns = {"user": users, "film": films, "rating": pa.array([None, *[3.0] * (rows - 1)])}
    buffer = io.BytesIO()
    pq.write_table(pa.table({**columns, column: repeated}), buffer, store_schema=False)
    return buffer.getvalue()


def many_columns(columns=400, rows=100_000):
    """A small Parquet file with many columns of one value."""
    ones = pa.array(np.zeros(rows, np.int64))
    buffer = io.BytesIO()
    pq.write_table(pa.table({f"c{n}": ones for n in range(columns)}), buffer)
    return buffer.getvalue()


def thin_csv(members=60_000):
    """One item, and a value of every member: comparing members takes their number squared."""
    rows = (b"%d,1,%d\n" % (n, n % 5 + 1) for n in range(1, members))
    return b"user,item,value\n0,1,\n" + b"".join(rows)


def open_socket(port, sent=b""):
    """A connection that has sent something, and waits."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=20)
    opened.sendall(sent)
    return opened


def is_closed(connection, seconds):
    """Whether the other side closes a connection within some seconds."""
    connection.settimeout(seconds)
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
