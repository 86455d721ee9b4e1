import pytest
from tests.support.databases import server, url

__all__ = ["server", "url"]


@pytest.fixture
def engine(tmp_path):
    """An engine around the film club, with the model bias."""
    from tests.support.service_engine import open_engine

    opened = open_engine(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def client(engine):
    """A client of the service around ``engine``."""
    from fastapi.testclient import TestClient

    from exchangeable.serve.app import create_app

    with TestClient(create_app(engine)) as opened:
        yield opened


@pytest.fixture
def pair(url):
    """Two engines on one database."""
    from tests.support.service_engine import open_shared

    engines = [open_shared(url) for _ in range(2)]
    yield engines
    for engine in engines:
        engine.close()
