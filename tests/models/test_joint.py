"""Models of tables whose axes are one set: from the mathematics, and in parts as at once."""

import pytest
import torch
from tests.support.joint import cells_of, random_biases, read_written_out
from torch.nn.functional import leaky_relu

from exchangeable import ExchangeableArray, Support
from exchangeable.models.configs import (
    FactorizedConfig,
    ResidualConfig,
    SelfSupervisedConfig,
    build,
)
from exchangeable.models.rewrite import rewrite
from exchangeable.models.stream import Plan
from exchangeable.nn.joint import JointlyExchangeableLinear
from exchangeable.testing import assert_queries_independent, assert_same, random_array

CONFIGS = {
    "residual": ResidualConfig(
        2,
        3,
        joint=True,
        width=8,
        depth=3,
        pooling=("mean", "attention", "max"),
        heads=2,
        dropout=0.0,
    ),
    "self-supervised": SelfSupervisedConfig(2, 3, joint=True, width=6, depth=3, dropout=0.0),
    "factorized": FactorizedConfig(
        2, 3, joint=True, encoder=(6, 4), factor_sizes=(3, 5), maps=True, decoder=(6,), dropout=0.0
    ),
    "factorized without maps": FactorizedConfig(
        2, 3, joint=True, encoder=(6, 4), decoder=(6,), dropout=0.0
    ),
}


def model_of(kind, **changed):
    model = build(CONFIGS[kind] if not changed else changed["config"], seed=1).double().eval()
    for module in model.modules():
        if isinstance(module, JointlyExchangeableLinear):
            random_biases(module)
    return model


def all_cells(size):
    return random_array((size, size), density=1.0, seed=9).support


def plain_network(depth, seed=1):
    """A self-supervised model, which is nothing but layers and leaky ReLU."""
    config = SelfSupervisedConfig(2, 3, joint=True, width=4, depth=depth, dropout=0.0)
    return model_of("self-supervised", config=config)


def predict_written_out(model, observed, queries):
    """All layers by loops: observed cells write and read, queried ones only read."""
    values = {cell: torch.zeros(2, dtype=torch.float64) for cell in queries}
    for level, layer in enumerate(model.layers):
        linear = getattr(layer, "linear", layer)
        values = read_written_out(linear, observed, values)
        observed = read_written_out(linear, observed, observed)
        if level < len(model.layers) - 1:
            values, observed = (
                {cell: leaky_relu(v) for cell, v in each.items()} for each in (values, observed)
            )
    return torch.stack([values[cell] for cell in queries])


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_a_model_is_its_layers_written_out(size, density):
    model, x = plain_network(3), random_array((size, size), density=density, channels=2)
    queries = all_cells(size)
    cells = [tuple(cell) for cell in queries.index.tolist()]
    assert_same(model(x, queries), predict_written_out(model, cells_of(x), cells))


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("density", [0.1, 0.6])
def test_members_may_be_renamed_on_both_axes_alike_and_queries_do_not_matter(kind, density):
    x = random_array((6, 6), density=density, channels=2)
    assert_queries_independent(model_of(kind), x, all_cells(6), joint=True)


@pytest.mark.parametrize("kind", CONFIGS)
def test_renaming_the_axes_apart_changes_the_answers(kind):
    x = random_array((6, 6), density=0.6, channels=2)
    with pytest.raises(AssertionError):
        assert_queries_independent(model_of(kind), x, all_cells(6))


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("storage", ["memory", "scratch", "recompute"])
def test_reading_in_parts_is_reading_at_once(kind, storage, tmp_path):
    model, x = model_of(kind), random_array((7, 7), density=0.5, channels=2)
    with torch.no_grad():
        expected = model(x, all_cells(7))
        for together in (1, 6, len(x) - 1):
            memory = model.condition(x, plan=Plan(together, storage, tmp_path))
            assert_same(model.read(memory, all_cells(7)), expected)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("storage", ["memory", "recompute"])
def test_hidden_cells_are_predicted_as_queries_and_gradients_are_those_in_parts(kind, storage):
    model, x = model_of(kind), random_array((6, 6), density=0.8, channels=2)
    hidden = torch.rand(len(x), generator=torch.Generator().manual_seed(0)) < 0.4
    weights = list(model.parameters())

    def gradients(outputs):
        found = torch.autograd.grad(outputs.square().sum(), weights, allow_unused=True)
        return [torch.zeros(1) if g is None else g for g in found]

    expected = model(x.take(~hidden), x.support.take(hidden))
    at_once = model.predict_hidden(x, hidden)
    in_parts = model.predict_hidden(x, hidden, plan=Plan(5, storage))
    assert_same(at_once, expected)
    assert_same(in_parts, expected)
    wanted = gradients(expected)
    for outputs in (at_once, in_parts):
        for one, other in zip(gradients(outputs), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def split_by_member(x, new):
    """The cells of old members among themselves, and all others."""
    is_new = torch.isin(x.support.index, torch.tensor(new)).any(dim=1)
    return x.take(~is_new), x.take(is_new)


@pytest.mark.parametrize("kind", ["residual", "self-supervised"])
def test_with_one_layer_extending_is_conditioning_anew(kind):
    """One layer's pools are of the cells' values alone, so that nothing is left out."""
    if kind == "residual":
        config = ResidualConfig(2, 3, joint=True, width=4, depth=1, pooling=("mean", "max"))
        model = model_of(kind, config=config)
        model.layers = model.layers[:1]
    else:
        model = model_of(kind, config=SelfSupervisedConfig(2, 3, joint=True, width=4, depth=2))
        model.layers = model.layers[:1]
    x = random_array((6, 6), density=0.6, channels=2)
    old, new = split_by_member(x, [4, 5])
    small = ExchangeableArray(Support(old.support.index, (4, 4)), old.values)
    with torch.no_grad():
        grown = model.extend(model.condition(small), new)
        assert grown.shape == (6, 6)
        assert_same(model.read(grown, all_cells(6)), model(x, all_cells(6)))


@pytest.mark.parametrize("added", ["members", "one cell"])
def test_new_cells_read_the_pools_of_before_with_their_own_values_added(added):
    """Two layers: the old cells' hidden values stay; new cells read pools with all in them.

    One new cell alone still reads the row and the column of both of its members, and the
    mirrored cell, which was there before.
    """
    model, x = plain_network(2), random_array((6, 6), density=0.6, channels=2)
    old, new = split_by_member(x, [4, 5])
    small = ExchangeableArray(Support(old.support.index, (4, 4)), old.values)
    if added == "one cell":
        cells = cells_of(x)
        is_new = torch.zeros(len(x), dtype=torch.bool)
        is_new[next(n for n, (i, j) in enumerate(cells) if i != j and (j, i) in cells)] = True
        old, new = x.take(~is_new), x.take(is_new)
        small = old
    first, last = model.layers[0].linear, model.layers[1]

    before = read_written_out(first, cells_of(old), cells_of(old))
    after = read_written_out(first, cells_of(x), cells_of(new))
    hidden = {cell: leaky_relu(v) for cell, v in (before | after).items()}
    asked = {tuple(cell): torch.zeros(2).double() for cell in all_cells(6).index.tolist()}
    queries = {c: leaky_relu(v) for c, v in read_written_out(first, cells_of(x), asked).items()}
    expected = read_written_out(last, hidden, queries)

    with torch.no_grad():
        grown = model.extend(model.condition(small), new)
        assert_same(model.read(grown, all_cells(6)), torch.stack(list(expected.values())))


@pytest.mark.parametrize("kind", CONFIGS)
def test_changed_values_of_all_members_are_those_of_a_model_that_read_them(kind):
    """Where every member has a changed cell, only the pools of all cells are those of before."""
    model, x = model_of(kind), random_array((5, 5), density=0.8, channels=2)
    for layer in model.layers:
        for grouping, term in getattr(getattr(layer, "linear", layer), "terms_of", {}).items():
            if model.condition(x).group_index.number(grouping) == 1:
                for weight in term.weights:
                    weight.data.zero_()
    other = x.with_values(x.values.flip(0))
    with torch.no_grad():
        memory = rewrite(model, model.condition(x), other, x.support.index)
        assert_same(model.read(memory, all_cells(5)), model(other, all_cells(5)))


def test_members_without_changed_cells_keep_their_pools():
    model = model_of("residual")
    x = ExchangeableArray.of(
        [(0, 1), (1, 0), (2, 3), (3, 3)], torch.arange(8.0).reshape(4, 2).double(), (4, 4)
    )
    changed = x.support.index[:1]
    values = x.values.clone()
    values[0] += 1
    mine = torch.tensor([True, True, False, False])
    with torch.no_grad():
        before = model.condition(x)
        after = rewrite(model, before, x.with_values(values).take(mine), changed)
        far, near = Support.of([(2, 3), (3, 2)], (4, 4)), Support.of([(1, 0), (0, 0)], (4, 4))
        assert_same(model.read(after, far), model.read(before, far))
        assert not torch.allclose(model.read(after, near), model.read(before, near))


def test_literal_forms_are_equivariant():
    for config in (
        SelfSupervisedConfig(2, 3, joint=True, width=4, depth=3, literal=True),
        FactorizedConfig(2, 3, joint=True, encoder=(4, 4), decoder=(4,), literal=True),
    ):
        model, x = model_of("", config=config), random_array((5, 5), density=0.5, channels=2)
        names, asked = torch.randperm(5), all_cells(5)
        renamed = Support(names[asked.index], (5, 5))
        assert_same(model(x.relabel([names, names]), renamed), model(x, asked))


def test_features_of_members_follow_them():
    config = ResidualConfig(2, 3, joint=True, width=4, depth=2, pooling=("mean",), features=(3, 3))
    model, x = model_of("", config=config), random_array((5, 5), density=0.5, channels=2)
    names, asked, f = torch.randperm(5), all_cells(5), torch.randn(5, 3).double()
    moved = torch.empty_like(f).index_copy(0, names, f)
    renamed = Support(names[asked.index], (5, 5))
    answers = model(x.relabel([names, names]), renamed, (moved, moved))
    assert_same(answers, model(x, asked, (f, f)))


def test_what_a_joint_model_needs_is_said():
    with pytest.raises(ValueError, match="have two axes, but order is 3"):
        ResidualConfig(1, 1, order=3, joint=True)
    model = model_of("self-supervised")
    with pytest.raises(ValueError, match="as many rows as columns, but this one has shape"):
        model.condition(random_array((4, 5), channels=2))
    x = random_array((4, 4), channels=2)
    with pytest.raises(ValueError, match="are on both axes"):
        model.for_new_members(model.condition(x), 0, x)
