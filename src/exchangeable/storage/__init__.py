"""Tables in databases: durable cells in SQLite or PostgreSQL, with a version for each change.

``Store`` reads and writes the cells of a table; ``Facts`` is what is stored beside them. The
service (``serve``) is one user of these.
"""
