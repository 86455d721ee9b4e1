"""Other libraries are tried with their own defaults first, and with what suits the problem."""

import importlib
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.arena.code import ROOT
from benchmarks.arena.methods import PEERS
from benchmarks.arena.questions import problem_of
from benchmarks.arena.tables import TINY


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / PEERS)
    monkeypatch.setitem(sys.modules, "lightgbm", SimpleNamespace(LGBMRegressor=None))
    return importlib.import_module


def tiny(table, question):
    return problem_of(question, TINY[table].load(), TINY[table], 0)


DEFAULTS = {
    "surprise-svd": {"n_factors": 100, "reg_all": 0.02, "lr_all": 0.005, "n_epochs": 20},
    "surprise-svd++": {"n_factors": 20, "lr_all": 0.005, "n_epochs": 20},
    "lenskit": {"embedding_size": 50, "regularization": 0.1},
    "knn-imputer": {"n_neighbors": 5, "weights": "uniform"},
    "iterative-imputer": {"max_iter": 10, "n_nearest_features": None},
    "lightgbm": {"num_leaves": 31, "learning_rate": 0.1, "n_estimators": 100},
}
"""Defaults of the libraries; SVD++ regularizes parts of itself by .02 and others by .015."""


def test_every_list_of_settings_starts_with_the_defaults_and_has_none_twice(peers):
    tried, problem = peers("arena_cells").PEERS, tiny("tiny", "cells")
    for name, peer in tried.items():
        grid = [tuple(sorted(s.items(), key=str)) for s in peer.grid(problem)]
        assert len(set(grid)) == len(grid) > 1, name
        assert DEFAULTS.get(name, {}).items() <= dict(grid[0]).items(), name


def test_probit_is_tried_where_values_have_few_levels_and_sets_where_there_are_two_axes(peers):
    machines = peers("arena_cells").machines

    def kinds(table):
        grid = machines(tiny(table, "cells"))
        return {name for s in grid for name in ("probit", "sets") if s.get(name)}

    assert kinds("tiny") == kinds("tiny-binary") == {"probit", "sets"}
    assert kinds("tiny-order-3") == set()
    many = replace(tiny("tiny", "cells"), levels=np.arange(100.0))
    assert not any("probit" in s for s in machines(many))


def test_trees_read_features_alone_of_members_without_cells(peers):
    problem = tiny("tiny", "features-0")
    cells, trees = peers("arena_cells"), peers("boosted_trees")
    assert cells.unseen(problem) == [0]
    assert {s["alone"] for s in cells.boosted(problem)} == {False, True}
    assert not any("alone" in s for s in cells.boosted(tiny("tiny", "cells")))
    models = [
        trees.BoostedTrees(problem.shape, problem.features, unseen, {"ids": True})
        for unseen in ([], [0])
    ]
    for model in models:
        model.mean = 3.0
        model.sums = model.sums_of(problem.index, problem.values)
    every, alone = (model.rows(problem.index) for model in models)
    described = problem.features[0].shape[1]
    assert every.shape[1] == 2 + 2 * 3 + described
    assert alone.shape[1] == 1 + 3 + described
    same_row = problem.index[:, 0] == problem.index[0, 0]
    assert len(set(models[1].folds(problem.index)[same_row])) == 1
    assert len(set(models[0].folds(problem.index)[same_row])) > 1


def test_trees_read_means_of_pairs_of_members_where_there_are_three_axes(peers):
    problem = tiny("tiny-order-3", "cells")
    model = peers("boosted_trees").BoostedTrees(problem.shape, {}, [], {"ids": False})
    assert model.groups == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    model.mean = 0.0
    model.sums = model.sums_of(problem.index, problem.values)
    first = problem.index[0]
    pair = (problem.index[:, [0, 2]] == first[[0, 2]]).all(axis=1)
    count, mean, _ = model.rows(problem.index[:1])[0, 12:15]
    assert count == pair.sum()
    assert mean == pytest.approx(problem.values[pair].sum() / (pair.sum() + 5))
