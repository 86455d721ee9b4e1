"""Tables with labels: read and convert them, split them, describe them, label results again.

``Table`` is the centre: ``build`` makes it from files and frames, and
``vocabulary`` turns labels into codes. Nothing here needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.data import splits as splits
    from exchangeable.data.features import MemberFeatures as MemberFeatures
    from exchangeable.data.options import TableOptions as TableOptions
    from exchangeable.data.splits import Split as Split
    from exchangeable.data.summary import describe as describe
    from exchangeable.data.table import Table as Table
    from exchangeable.data.vocabulary import Vocabulary as Vocabulary

__getattr__, __dir__ = attach(
    __name__,
    {
        "features": ("MemberFeatures",),
        "options": ("TableOptions",),
        "splits": ("Split",),
        "summary": ("describe",),
        "table": ("Table",),
        "vocabulary": ("Vocabulary",),
    },
    ("splits",),
)
