"""Davis and KIBA: affinities of drugs to proteins, with the folds of DeepDTA."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.data.splits import Split, by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source
from exchangeable.values.scale import Scale

_FOLDS = (
    "Folds: Hakime Ozturk, Arzucan Ozgur and Elif Ozkirimli. 2018. DeepDTA: deep drug-target "
    "binding affinity prediction. Bioinformatics 34(17)."
)
_PAGE = "https://github.com/hkmztrk/DeepDTA"
_RAW = f"{_PAGE}/raw/master/data"


def _source(name: str, title: str, citation: str, files: list[str]) -> Source:
    urls = {f"{name}/{file}": f"{_RAW}/{name}/{file}" for file in files}
    return Source(name, title, "for research", f"{citation} {_FOLDS}", _PAGE, urls=urls)


_COMMON = [
    "folds/test_fold_setting1.txt",
    "folds/train_fold_setting1.txt",
    "ligands_can.txt",
    "proteins.txt",
]
_KD = "drug-target_interaction_affinities_Kd__Davis_et_al.2011v1.txt"
DAVIS = _source(
    "davis",
    "Davis: kinase inhibitors x kinases, -log10(Kd / 1e9)",
    "Mindy I. Davis et al. 2011. Comprehensive analysis of kinase inhibitor selectivity. "
    "Nature Biotechnology 29.",
    [*_COMMON, _KD, "drug-drug_similarities_2D.txt", "target-target_similarities_WS.txt"],
)
KIBA = _source(
    "kiba",
    "KIBA scores: drugs x proteins",
    "Jing Tang et al. 2014. Making sense of large-scale kinase inhibitor bioactivity data sets. "
    "Journal of Chemical Information and Modeling 54(3).",
    [*_COMMON, "kiba_binding_affinity_v2.txt", "kiba_target_sim.txt"],
)


def load_davis() -> Dataset:
    """Load 68 drugs x 442 proteins, all measured."""
    affinities = -np.log10(_matrix(DAVIS, f"davis/{_KD}") / 1e9)
    similarities = {
        0: _matrix(DAVIS, "davis/drug-drug_similarities_2D.txt"),
        1: _matrix(DAVIS, "davis/target-target_similarities_WS.txt"),
    }
    return _dataset(DAVIS, affinities, similarities)


def load_kiba() -> Dataset:
    """Load 2,111 drugs x 229 proteins, a quarter measured."""
    similarities = {1: _matrix(KIBA, "kiba/kiba_target_sim.txt")}
    return _dataset(KIBA, _matrix(KIBA, "kiba/kiba_binding_affinity_v2.txt"), similarities)


def _dataset(
    source: Source, affinities: NDArray[np.float64], similarities: dict[int, NDArray[np.float64]]
) -> Dataset:
    rows, columns = np.nonzero(~np.isnan(affinities))  # row-major, as the folds count them
    values = affinities[rows, columns]
    files = {"drug": "ligands_can.txt", "protein": "proteins.txt"}
    labels = {
        axis: pl.Series(list(json.loads(source.read(f"{source.name}/{file}"))))
        for axis, file in files.items()
    }
    cells = np.stack([rows, columns], axis=1)
    table = Table.of_cells(labels, cells, values, scale=Scale("real"), value_name="affinity")
    return Dataset(source, table, _folds(source, table), graphs=similarities)


def _folds(source: Source, table: Table) -> dict[str, Split]:
    """Make the splits of setting 1: each of five training folds is once for validation."""
    test = json.loads(source.read(f"{source.name}/folds/test_fold_setting1.txt"))
    training = json.loads(source.read(f"{source.name}/folds/train_fold_setting1.txt"))
    splits = {"test": by_position(table, test)}
    for number, fold in enumerate(training, start=1):
        rest = np.concatenate([f for f in training if f is not fold])
        splits[f"fold{number}"] = Split(
            train=np.sort(rest).astype(np.int64),
            validation=np.sort(np.asarray(fold, dtype=np.int64)),
            test=np.sort(np.asarray(test, dtype=np.int64)),
        )
    return splits


def _matrix(source: Source, path: str) -> NDArray[np.float64]:
    return np.loadtxt(source.read(path).decode().splitlines(), dtype=np.float64)
