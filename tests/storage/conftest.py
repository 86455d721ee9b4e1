from tests.support.databases import server, url

__all__ = ["server", "url"]
