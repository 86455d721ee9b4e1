"""Well-known titles of columns, in lower case, by what such a column holds."""

from __future__ import annotations

VALUE_NAMES = {
    "rating",
    "ratings",
    "value",
    "score",
    "stars",
    "answer",
    "response",
    "count",
    "plays",
    "affinity",
    "measurement",
    "target",
    "y",
}
POSSIBLE_VALUE_NAMES = {"weight"}
"""Titles of values where no other column holds numbers: a weight may be that of a row."""
TIME_NAMES = {
    "timestamp",
    "day",
    "month",
    "year",
    "time",
    "date",
    "datetime",
    "ts",
    "unixtime",
    "created_at",
}
MEMBER_NAMES = {
    "user",
    "userid",
    "user_id",
    "item",
    "itemid",
    "item_id",
    "movie",
    "movieid",
    "movie_id",
    "film",
    "filmid",
    "film_id",
    "artist",
    "artistid",
    "artist_id",
    "tag",
    "tagid",
    "tag_id",
    "drug",
    "drugid",
    "drug_id",
    "protein",
    "proteinid",
    "protein_id",
    "book",
    "bookid",
    "book_id",
    "product",
    "productid",
    "product_id",
    "row",
    "column",
    "customer",
    "customer_id",
    "query",
    "document",
    "student",
    "question",
    "member",
}
GUESSED_TIME_NAMES = TIME_NAMES - {"day", "month", "year"}
"""Names of columns that are taken for the times of cells; a year may be that of a film."""
KNOWN_NAMES = VALUE_NAMES | POSSIBLE_VALUE_NAMES | TIME_NAMES | MEMBER_NAMES
