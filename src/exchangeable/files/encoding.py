"""Encodings of text: files in others than UTF-8 are decoded and encoded anew."""

from __future__ import annotations

import codecs
import re
from encodings.aliases import aliases

from exchangeable.errors import InputError, option
from exchangeable.files.source import Source, read_all, read_start
from exchangeable.runtime.phrases import did_you_mean

# The mark of UTF-32 starts with that of UTF-16, and is tried before.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def to_utf8(name: str, source: Source, encoding: str | None = None) -> Source:
    """Return text as UTF-8: decoded as asked, or as its byte-order mark says, or as it is."""
    if encoding is None:
        start = read_start(source)
        encoding = next((codec for mark, codec in _MARKS if start.startswith(mark)), None)
        if encoding is None:
            return source
    else:
        _check_encoding(name, encoding)
    content = read_all(source)
    try:
        return content.decode(encoding).encode()
    except UnicodeError as error:
        line = content[: getattr(error, "start", 0)].count(b"\n") + 1
        raise InputError(
            f"{name}: line {line}: text must be {encoding}, but this is not; leave the encoding "
            f"out for UTF-8, or choose another"
        ) from None


def decode(name: str, content: bytes) -> str:
    """Decode UTF-8, never with letters replaced."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(name, content, error.start) from None


def decode_start(name: str, start: bytes) -> str:
    """Decode the first bytes of a text, whose last character may be cut."""
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(start)
    except UnicodeDecodeError as error:
        raise _not_utf8(name, start, error.start) from None


def _not_utf8(name: str, content: bytes, position: int) -> InputError:
    line = content[:position].count(b"\n") + 1
    # Latin-1 has no letters there, and the encoding of Windows has curly quotes, dashes and the
    # euro.
    encoding = "cp1252" if re.search(rb"[\x80-\x9f]", content) else "latin-1"
    return InputError(
        f"{name}: line {line}: text must be UTF-8, but this is not; convert the file, or choose "
        f"{option('encoding', encoding)}, which reads most Western ones"
    )


def _check_encoding(name: str, encoding: str) -> None:
    try:
        "a".encode(encoding)
    except (LookupError, ValueError, TypeError):
        raise InputError(
            f"{name}: the encoding must be one that Python has, such as utf-8 or latin-1, but is "
            f"{encoding!r}{did_you_mean(str(encoding), [*aliases, *aliases.values()])}"
        ) from None
