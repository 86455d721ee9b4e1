"""Compare models on hidden cells, and report on a completed table.

``comparison`` fits models to the same cells and scores them on the same hidden ones, ``ranking``
does so for lists of positives, ``report``
writes an HTML page about a completion, ``plots`` draws with matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.evaluation.comparison import Evaluation as Evaluation
    from exchangeable.evaluation.comparison import Outcome as Outcome
    from exchangeable.evaluation.comparison import evaluate as evaluate
    from exchangeable.evaluation.comparison import judge as judge
    from exchangeable.evaluation.ranking import RankingEvaluation as RankingEvaluation
    from exchangeable.evaluation.ranking import RankingOutcome as RankingOutcome
    from exchangeable.evaluation.ranking import evaluate_ranking as evaluate_ranking
    from exchangeable.evaluation.ranking import judge_ranking as judge_ranking

_NAMES = {
    "comparison": ("Evaluation", "Outcome", "evaluate", "judge"),
    "ranking": ("RankingEvaluation", "RankingOutcome", "evaluate_ranking", "judge_ranking"),
}

__all__ = [name for names in _NAMES.values() for name in names]
__getattr__, __dir__ = attach(__name__, _NAMES)
