"""A table behind HTTP: predictions, recommendations and changes, with a page to try them on.

``app`` assembles the service; ``routes`` holds one function per call and ``schemas`` its bodies. An
``Engine`` predicts from a ``Snapshot``, which a ``Refresher`` keeps in step with the ``Store`` of
the room ``storage``. The ``Guard`` admits requests, ``Connections`` closes idle ones, and
``sandbox`` reads uploaded files in processes of their own.
"""
