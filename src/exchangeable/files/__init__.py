"""Files as bytes: open and unpack them, decode them, detect their layout, parse their columns.

``source`` opens a file, ``encoding`` makes it UTF-8, ``text`` detects how its lines are laid out
and ``text_parser`` parses them. ``typed`` reads files that have types of their own: Parquet, Excel
and JSON. Nothing here knows about tables.
"""
