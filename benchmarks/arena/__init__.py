"""The arena: tables x questions x methods, each run a process and a JSON file.

    EXCHANGEABLE_DATA=... python -m benchmarks.arena --setup
    EXCHANGEABLE_DATA=... python -m benchmarks.arena --quick
    EXCHANGEABLE_DATA=... python -m benchmarks.arena
    python -m benchmarks.arena --page

``tables`` loads a table as arrays, ``questions`` hides cells of it (a ``Problem``), ``methods``
lists who answers, ``runs`` starts each in a process with limits and keeps what came of it, ``page``
and ``pictures`` show all runs.
"""
