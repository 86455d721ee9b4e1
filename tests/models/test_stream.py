"""Cells in parts, in memory, in a file or computed again: answers and gradients of all at once."""

import pytest
import torch

from exchangeable import ExchangeableArray, Support
from exchangeable.errors import Failed
from exchangeable.models.configs import FactorizedConfig, ResidualConfig, SelfSupervisedConfig
from exchangeable.models.paper import FactorizedAutoencoder, SelfSupervisedModel
from exchangeable.models.residual import ResidualModel
from exchangeable.models.stream import Plan
from exchangeable.testing import assert_same, random_array

KEEPS = ("memory", "scratch", "recompute")
POOLINGS = ("mean", "sum", "max", "attention", "least_squares")


def model_of(pooling, order=2, features=(), dropout=0.0):
    config = ResidualConfig(
        2,
        3,
        order,
        width=8,
        depth=3,
        pooling=pooling,
        heads=2,
        rank=2,
        features=features,
        dropout=dropout,
    )
    return ResidualModel(config, seed=1).double()


def hidden_of(x, seed=0):
    mask = torch.rand(len(x), generator=torch.Generator().manual_seed(seed)) < 0.4
    mask[0] = True
    return mask


def gradients(model, outputs):
    weights = torch.linspace(-1, 1, outputs.numel(), dtype=torch.float64).reshape(outputs.shape)
    loss = (outputs * weights).sum() + outputs.square().sum()
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [torch.zeros(1) if g is None else g for g in found]


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("pooling", [*POOLINGS, "mixed"])
@pytest.mark.parametrize("order", [2, 3])
def test_conditioning_in_parts_is_conditioning_at_once(order, pooling, keep, tmp_path):
    model = model_of(("mean", "attention", "max") if pooling == "mixed" else (pooling,), order)
    model = model.eval()
    x = random_array((6, 5, 4)[:order], density=0.6, channels=2)
    queries = random_array(x.shape, density=1.0).support
    with torch.no_grad():
        whole = model.condition(x, plan=Plan(chunk_cells=len(x)))
        expected = model.read(whole, queries)
        for together in (1, 7, len(x) - 1):
            memory = model.condition(x, plan=Plan(together, keep, tmp_path))
            assert_same(model.read(memory, queries), expected)
            grown = model.extend(memory, x.take(torch.zeros(len(x), dtype=torch.bool)))
            assert_same(model.read(grown, queries), expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("pooling", [*POOLINGS, "mixed"])
@pytest.mark.parametrize("order", [2, 3])
def test_gradients_in_parts_are_those_of_all_cells(order, pooling, keep, tmp_path):
    model = model_of(("mean", "attention", "max") if pooling == "mixed" else (pooling,), order)
    x = random_array((6, 5, 4)[:order], density=0.7, channels=2)
    hide = hidden_of(x)
    expected = model.predict_hidden(x, hide)
    wanted = gradients(model, expected)
    for together in (5, 1000):
        outputs = model.predict_hidden(x, hide, plan=Plan(together, keep, tmp_path))
        assert_same(outputs, expected)
        for ours, theirs in zip(gradients(model, outputs), wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_ties_of_the_largest_share_the_gradient_across_parts():
    model = model_of(("max",))
    x = random_array((4, 3), density=1.0, channels=2)
    x = ExchangeableArray(x.support, (x.values > 0).double())  # every maximum is a tie
    hide = hidden_of(x)
    wanted = gradients(model, model.predict_hidden(x, hide))
    ours = gradients(model, model.predict_hidden(x, hide, plan=Plan(chunk_cells=2)))
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_rebuilding_is_answering_the_hidden_cells_given_the_others(pooling, order):
    model = model_of((pooling,), order)
    x = random_array((7, 5, 4)[:order], density=0.8, channels=2)
    hide = hidden_of(x)
    expected = model(x.take(~hide), x.support.take(hide))
    outputs = model.predict_hidden(x, hide)
    assert_same(outputs, expected)
    for ours, theirs in zip(gradients(model, outputs), gradients(model, expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("kind", ["self-supervised", "factorized"])
def test_the_models_of_the_paper_rebuild_too(kind, literal):
    if kind == "factorized":
        config = FactorizedConfig(2, 3, encoder=(8, 4), decoder=(8,), dropout=0.0, literal=literal)
        model = FactorizedAutoencoder(config).double()
    else:
        config = SelfSupervisedConfig(2, 3, width=8, depth=3, dropout=0.0, literal=literal)
        model = SelfSupervisedModel(config).double()
    x = random_array((6, 5), density=0.8, channels=2)
    hide = hidden_of(x)
    expected = model(x.take(~hide), x.support.take(hide))
    assert_same(model.predict_hidden(x, hide), expected)
    if not literal:
        parted = model.predict_hidden(x, hide, plan=Plan(chunk_cells=4))
        assert_same(parted, expected)
        for one, other in zip(gradients(model, parted), gradients(model, expected), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_features_and_dropped_channels_pass_through_parts():
    model = model_of(("mean", "attention"), features=(3, 0), dropout=0.4)
    x = random_array((6, 5), density=0.8, channels=2)
    hide = hidden_of(x)
    members = torch.randn(6, 3, generator=torch.Generator().manual_seed(2)).double()

    def rebuilt(plan):
        generator = torch.Generator().manual_seed(5)
        return model.predict_hidden(x, hide, (members, None), generator, plan=plan)

    expected = rebuilt(None)
    outputs = rebuilt(Plan(chunk_cells=4))
    assert_same(outputs, expected)
    for one, other in zip(gradients(model, outputs), gradients(model, expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_values_are_encoded_some_at_a_time():
    model, seen = model_of(("mean",)).eval(), []

    def encode(values):
        seen.append(len(values))
        return torch.cat([values, values.square()], dim=1)

    x = random_array((6, 5), density=1.0, channels=1)
    both = ExchangeableArray(x.support, encode(x.values))
    queries = Support.of([(0, 1), (5, 4)], (6, 5))
    with torch.no_grad():
        expected = model.read(model.condition(both), queries)
        seen.clear()
        memory = model.condition(x, encode=encode, plan=Plan(chunk_cells=8))
    assert max(seen) == 8
    assert_same(model.read(memory, queries), expected)


def test_parts_meet_few_groups_where_cells_are_in_order():
    x = random_array((100, 3), density=1.0)
    order = (x.support.index[:, 0] * 3 + x.support.index[:, 1]).argsort()
    cells = x.support.take(order)
    groups = cells.part(30, 60).groups((0,))
    assert (groups.start, groups.number) == (10, 10)
    assert cells.part(30, 60) is cells.part(30, 60)  # sorted once


def test_cells_that_only_read_do_not_count():
    x = random_array((4, 3), density=1.0)
    writers = torch.rand(12, generator=torch.Generator().manual_seed(0)) < 0.5
    groups = x.support.with_writers(writers).groups((0,))
    expected = x.support.take(writers).groups((0,))
    assert torch.equal(groups.sizes, expected.sizes)
    assert torch.equal(groups.permutation.sort().values, writers.nonzero().squeeze(1))
    with pytest.raises(ValueError, match="writers must be a mask of shape"):
        x.support.with_writers(torch.ones(3, dtype=torch.bool))


def test_a_memory_with_gradients_is_not_made_in_parts():
    x = random_array((4, 3), density=1.0, channels=2)
    with pytest.raises(ValueError, match=r"torch\.no_grad\(\), or train with predict_hidden"):
        model_of(("mean",)).condition(x, plan=Plan(chunk_cells=2))


def test_weights_that_are_frozen_have_no_gradient():
    model = model_of(("mean",))
    frozen = model.layers[1].linear.own.requires_grad_(False)
    x = random_array((6, 5), density=0.8, channels=2)
    plan = Plan(chunk_cells=4, keep_pools=False)
    model.predict_hidden(x, hidden_of(x), plan=plan).sum().backward()
    assert frozen.grad is None
    assert model.layers[0].linear.own.grad is not None


def test_a_full_disk_is_one_line(monkeypatch, tmp_path):
    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    x = random_array((6, 5), density=0.8, channels=2)
    with pytest.raises(Failed, match=r"no room for the scratch file .*No space left"):
        model_of(("mean",)).predict_hidden(x, hidden_of(x), plan=Plan(4, "scratch", tmp_path))
