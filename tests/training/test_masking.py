"""Which cells a step sees and which of them it hides."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.training import QUICK, fresh, learn, task

from exchangeable.runtime.random import hashed_uniform
from exchangeable.testing import random_array
from exchangeable.training.config import TrainingConfig
from exchangeable.training.masking import draw_mask, make_sampler


@pytest.mark.parametrize("way", ["flat", "rows", "columns"])
def test_shares_hidden_differ_between_members_only_where_they_should(way):
    support = random_array((40, 50), density=1.0).support
    config = TrainingConfig(hide=way, hide_least=0.05, hide_most=0.95)
    mask = draw_mask(support, config, np.random.default_rng(3)).double()
    shares = torch.zeros(40, 50, dtype=torch.float64)
    shares[tuple(support.index.T)] = mask
    rows, columns = shares.mean(dim=1).std(), shares.mean(dim=0).std()
    noise = 0.5 / math.sqrt(40)
    assert (rows > 2 * noise) == (way == "rows")
    assert (columns > 2 * noise) == (way == "columns")


@pytest.mark.parametrize(("scale", "below_a_tenth"), [("even", 0.09), ("log", 0.42)])
def test_shares_are_drawn_evenly_or_so_that_nearly_empty_tables_come_up_often(scale, below_a_tenth):
    support = random_array((400, 50), density=1.0).support
    config = TrainingConfig(hide="rows", hide_least=0.05, hide_most=0.98, hide_scale=scale)
    mask = draw_mask(support, config, np.random.default_rng(3)).double()
    left = torch.zeros(400, 50, dtype=torch.float64)
    left[tuple(support.index.T)] = 1 - mask
    assert (left.mean(dim=1) < 0.1).double().mean() == pytest.approx(below_a_tenth, abs=0.06)


def test_what_is_hidden_is_told_by_a_hash_that_is_the_same_everywhere():
    def mixed(place, key):
        whole = 2**64 - 1
        x = (place * 0x9E3779B97F4A7C15 + key) & whole
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & whole
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & whole
        return ((x ^ (x >> 31)) & (2**24 - 1)) / 2**24

    for key in (0, 5, 2**63 - 1):
        found = hashed_uniform(50, key, torch.device("cpu")).tolist()
        assert found == [mixed(place, key) for place in range(50)]


def test_something_is_always_hidden():
    support = random_array((2, 1), density=0.5).support
    assert len(support) == 1
    config = TrainingConfig(hide_least=1e-9, hide_most=1e-9)
    assert draw_mask(support, config, np.random.default_rng(0)).tolist() == [True]


def test_a_batch_has_about_as_many_cells_as_asked():
    support = random_array((200, 150), density=0.2).support
    for batch in ("uniform", "rows-columns", "conditional", "neighbourhood"):
        sampler = make_sampler(support, TrainingConfig(batch=batch, batch_cells=1000))
        drawn = [len(sampler.draw(np.random.default_rng(seed))) for seed in range(5)]
        assert 500 < np.mean(drawn) < 2500, batch
    assert len(make_sampler(support, TrainingConfig(batch="full"))) == len(support)


def test_members_that_meet_in_no_cell_are_drawn_again():
    config = replace(QUICK, steps=5, batch="rows-columns", batch_cells=1)
    run = fresh(config)
    learn(run, task((40, 40)))
    assert run.step == 5
