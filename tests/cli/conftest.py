import pytest

CSV = """user,film,rating
ann,Heat,5
ann,Alien,4
bob,Heat,2
bob,Big,1
cleo,Big,
cleo,Alien,3
bob,Alien,
dora,Heat,4
dora,Big,2
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with a small table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ratings.csv").write_text(CSV)
    return tmp_path
