"""Fixtures of empty databases, of SQLite and of a PostgreSQL of one's own."""

from itertools import count

import pytest
from tests.support import postgres

NUMBER = count()


@pytest.fixture(scope="session")
def server():
    if postgres.missing():
        pytest.skip(postgres.missing())
    with postgres.server() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'table.db'}"
    import sqlalchemy as sa

    address = request.getfixturevalue("server")
    engine = sa.create_engine(f"{address}/postgres", isolation_level="AUTOCOMMIT")
    name = f"test{next(NUMBER)}"
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{address}/{name}"
