"""Language models x questions: which answers were correct.

The files are arrays ``correct`` of 0 and 1, a row per model, without names of models or words of
questions, and without a record of who asked.
"""

from __future__ import annotations

import io

import numpy as np
import polars as pl

from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source
from exchangeable.errors import InputError
from exchangeable.values.scale import Scale


def _source(name: str, title: str, citation: str, page: str) -> Source:
    file = f"llm-scores/{'arc_challenge' if name == 'llm-arc' else name.removeprefix('llm-')}.npz"
    return Source(name, title, "for research", citation, page, urls={file: ""})


SOURCES = {
    source.name: source
    for source in (
        _source(
            "llm-arc",
            "Language models x questions of ARC, correct or not",
            "Questions: Peter Clark et al. 2018. Think you have Solved Question Answering? Try "
            "ARC, the AI2 Reasoning Challenge. arXiv:1803.05457.",
            "https://huggingface.co/datasets/allenai/ai2_arc",
        ),
        _source(
            "llm-ifeval",
            "Language models x instructions of IFEval, followed or not",
            "Instructions: Jeffrey Zhou et al. 2023. Instruction-Following Evaluation for Large "
            "Language Models. arXiv:2311.07911.",
            "https://huggingface.co/datasets/google/IFEval",
        ),
        _source(
            "llm-gsm",
            "Language models x questions of GSM, correct or not",
            "Questions: Karl Cobbe et al. 2021. Training Verifiers to Solve Math Word Problems. "
            "arXiv:2110.14168.",
            "https://huggingface.co/datasets/openai/gsm8k",
        ),
    )
}


def load_language_models(name: str) -> Dataset:
    """Load all answers of all models; models and questions are numbered."""
    source = SOURCES[name]
    (path,) = source.urls
    with np.load(io.BytesIO(source.read(path)), allow_pickle=False) as arrays:
        correct = arrays["correct"].astype(np.float64)
    if correct.ndim != 2 or not np.isin(correct, (0, 1)).all():
        raise InputError(f"{path}: a matrix of 0 and 1 is needed, but this is {correct.shape}")
    labels = {
        axis: pl.Series(np.arange(size))
        for axis, size in zip(("model", "question"), correct.shape, strict=True)
    }
    cells = np.argwhere(np.ones_like(correct, dtype=bool))
    scale = Scale("binary", (0.0, 1.0))
    table = Table.of_cells(labels, cells, correct.ravel(), scale=scale, value_name="correct")
    return Dataset(source, table)
