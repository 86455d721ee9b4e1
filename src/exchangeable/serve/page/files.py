"""The files of the page, read once, and the calls that return them."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Response

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE = {
    "" if file.name == "index.html" else f"page/{file.name}": (file.name, _MEDIA_TYPES[ending])
    for file in files(__package__).iterdir()
    if (ending := file.name.rpartition(".")[2]) in _MEDIA_TYPES
}
"""Files of the page and their media types, by path."""

page = APIRouter()


def _add(path: str, file: str, media_type: str) -> None:
    content = files(__package__).joinpath(file).read_bytes()

    async def respond() -> Response:
        return Response(content, media_type=media_type)

    page.add_api_route(f"/{path}", respond, include_in_schema=False)


for _path, (_file, _media_type) in PAGE.items():
    _add(_path, _file, _media_type)
