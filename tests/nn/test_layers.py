"""The layers do what the paper's equations say, sparse and dense, with whatever surrounds them."""

from itertools import product

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from exchangeable import (
    ChannelDropout,
    ExchangeableArray,
    ExchangeableBlock,
    ExchangeableLinear,
    FactorLayer,
    Support,
)
from exchangeable.testing import assert_equivariant, assert_same, random_array

POOLINGS = ["mean", "sum", "max", "attention", "least_squares"]


def linear(channels=2, out=3, *, order=2, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    layer = ExchangeableLinear(channels, out, order=order, generator=generator, **options).double()
    if layer.bias is not None:
        layer.bias.data.uniform_(-1, 1, generator=generator)
    return layer


def test_the_matrix_layer_is_equation_four_written_out():
    """Equation (4) with the sparse means of section 2.2, by loops over observed cells."""
    layer, x = linear(2, 3), random_array((4, 5), density=0.5, channels=2)
    cells = x.support.index.tolist()
    whole, row, column = (term.weights[0] for term in layer.terms)
    for e, (n, m) in enumerate(cells):
        same_row = [x.values[f] for f, cell in enumerate(cells) if cell[0] == n]
        same_column = [x.values[f] for f, cell in enumerate(cells) if cell[1] == m]
        expected = (
            x.values[e] @ layer.own
            + sum(same_column) / len(same_column) @ column
            + sum(same_row) / len(same_row) @ row
            + sum(x.values) / len(x) @ whole
            + layer.bias
        )
        assert_same(layer(x).values[e], expected)


def test_the_order_three_layer_pools_every_pair_of_axes():
    layer, x = linear(1, 1, order=3), random_array((3, 2, 3), density=0.6)
    subsets = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    cells = x.support.index.tolist()
    for e, cell in enumerate(cells):
        expected = x.values[e] @ layer.own + layer.bias
        for term, axes in zip(layer.terms, subsets, strict=True):
            agree = [
                x.values[f]
                for f, other in enumerate(cells)
                if all(cell[axis] == other[axis] for axis in axes)
            ]
            expected = expected + sum(agree) / len(agree) @ term.weights[0]
        assert_same(layer(x).values[e], expected)


def test_order_one_is_the_deep_sets_layer():
    """Zaheer et al. (2017): y = lambda x + gamma mean(x) 1, here with channels."""
    layer, x = linear(3, 2, order=1), torch.randn(7, 3, dtype=torch.float64)
    deep_set = x @ layer.own + x.mean(dim=0) @ layer.terms[0].weights[0] + layer.bias
    assert_same(layer(x), deep_set)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 2, 4), (2, 3, 2, 2)])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("counts", [False, True])
def test_dense_equals_sparse_on_a_full_array(shape, pooling, counts):
    options = {"pooling": [pooling], "counts": counts, "heads": 2, "rank": 2}
    layer = linear(4, 3, order=len(shape), **options)
    x = random_array(shape, density=1.0, channels=4)
    assert_same(layer(x.to_dense()), layer(x).to_dense())


def test_the_dense_form_builds_no_index(monkeypatch):
    def refuse(*args):
        raise AssertionError("an index was built")

    monkeypatch.setattr(Support, "__post_init__", refuse)
    assert linear()(torch.randn(4, 3, 2, dtype=torch.float64)).shape == (4, 3, 3)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_layer_with_one_pooling_differs_from_one_with_another(pooling):
    x = random_array((4, 5), density=0.5, channels=2)
    outputs = [linear(pooling=[other])(x).values for other in POOLINGS if other != pooling]
    mine = linear(pooling=[pooling])(x).values
    assert all(not torch.allclose(mine, other) for other in outputs)


def test_several_poolings_add_up():
    """Two poolings in one layer give the sum of what each gives, beyond the shared parts."""
    x, both = random_array((4, 5), density=0.5, channels=2), linear(pooling=["mean", "max"])
    y = x.values @ both.own + both.bias
    for name, position in (("mean", 0), ("max", 1)):
        alone = linear(pooling=[name])
        for mine, theirs in zip(alone.terms, both.terms, strict=True):
            mine.weights[0].data = theirs.weights[position].data
        alone.own.data, alone.bias.data = torch.zeros_like(both.own), torch.zeros_like(both.bias)
        y = y + alone(x).values
    assert_same(both(x).values, y)


def test_counts_tell_a_mean_of_one_from_a_mean_of_many():
    one = ExchangeableArray.of([(0, 0)], [[2.0]], (1, 5)).to(torch.float64)
    many = ExchangeableArray.of([(0, c) for c in range(5)], [[2.0]] * 5, (1, 5)).to(torch.float64)
    plain, counting = linear(1, 3), linear(1, 3, counts=True)
    assert_same(plain(one).values[0], plain(many).values[0])
    assert not torch.allclose(counting(one).values[0], counting(many).values[0])


def test_count_channels_are_log_and_reciprocal():
    layer, x = linear(1, 1, counts=True), random_array((3, 4), density=0.5)
    without = linear(1, 1)
    without.own.data, without.bias.data = layer.own.data, layer.bias.data
    for mine, theirs in zip(without.terms, layer.terms, strict=True):
        mine.weights[0].data = theirs.weights[0].data
    cells = x.support.index.tolist()
    for e, (n, m) in enumerate(cells):
        sizes = [len(cells), sum(c[0] == n for c in cells), sum(c[1] == m for c in cells)]
        extra = sum(
            torch.log1p(torch.tensor(float(size))) / 10 * term.weights[1][0]
            + term.weights[1][1] / (1 + size)
            for size, term in zip(sizes, layer.terms, strict=True)
        )
        assert_same(layer(x).values[e], without(x).values[e] + extra, 1e-7)


def test_features_give_the_own_term_of_broadcasting_them():
    """The paper broadcasts row and column features as channels; their own term is ours."""
    layer, x = linear(2, 3, features=(4, 5)), random_array((3, 6), density=0.5, channels=2)
    rows, columns = torch.randn(3, 4).double(), torch.randn(6, 5).double()
    n, m = x.support.index.T
    broadcast = torch.cat([rows[n], columns[m]], dim=1)
    plain = linear(2, 3)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "features" not in k})
    expected = plain(x).values + broadcast @ torch.cat(list(layer.features))
    assert_same(layer(x, features=(rows, columns)).values, expected)


def test_features_of_one_axis_only_and_on_a_grid():
    layer, x = linear(2, 3, features=(0, 5)), random_array((3, 6), density=1.0, channels=2)
    columns = torch.randn(6, 5).double()
    sparse = layer(x, features=(None, columns)).to_dense()
    assert_same(layer(x.to_dense(), features=(None, columns)), sparse)
    assert_same(
        sparse - layer(x, features=(None, columns * 0)).to_dense(),
        (columns @ layer.features[1]).expand(3, 6, 3),
    )


def test_features_are_never_copied_to_every_cell(monkeypatch):
    """Only the product features @ W, out_channels wide, may be spread."""
    spread, widths = torch.Tensor.index_select, []

    def watch(tensor, dim, index):
        widths.append(tensor.shape[-1])
        return spread(tensor, dim, index)

    layer, x = linear(2, 3, features=(50, 0)), random_array((5, 6), density=1.0, channels=2)
    monkeypatch.setattr(torch.Tensor, "index_select", watch)
    layer(x, features=(torch.randn(5, 50).double(), None))
    assert widths
    assert max(widths) == 3


def test_equivariance_notices_a_layer_that_reads_member_numbers():
    x = random_array((4, 5), density=0.5)

    def leaky(array):
        return array.with_values(array.values + array.support.index[:, :1])

    with pytest.raises(AssertionError):
        assert_equivariant(leaky, x)


def test_equivariance_notices_a_layer_that_reads_storage_order():
    def leaky(array):
        return array.with_values(array.values.cumsum(dim=0))

    with pytest.raises(AssertionError):
        assert_equivariant(leaky, random_array((4, 5), density=0.5))


def test_channel_dropout_drops_whole_channels_and_keeps_the_mean():
    dropout, x = ChannelDropout(0.5), torch.ones(200, 400)
    generator = torch.Generator().manual_seed(0)
    y = dropout(x, generator)
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert (y.std(dim=0) == 0).all()  # a channel is dropped everywhere or nowhere
    assert y.mean().item() == pytest.approx(1.0, abs=0.1)
    assert not torch.equal(y, dropout(x, generator))
    array = random_array((4, 4), channels=400, dtype=torch.float32)
    dropped = dropout(array, torch.Generator().manual_seed(1)).values == 0
    assert (dropped.all(dim=0) == dropped.any(dim=0)).all()
    assert 0.3 < dropped[0].float().mean() < 0.7


def test_channel_dropout_does_nothing_in_evaluation():
    dropout, x = ChannelDropout(0.5).eval(), random_array((3, 3), channels=8)
    assert dropout(x) is x


def test_dropout_takes_the_same_channels_from_observed_and_queried_cells():
    block = ExchangeableBlock(linear(2, 64), dropout=0.5)
    x = random_array((4, 5), density=0.5, channels=2)
    pools = block.write(x.values, x.support, torch.Generator().manual_seed(3))
    observed = block.read(x.values, x.support, block.readout(pools)) == 0
    asked = Support.of([(0, 0), (3, 4)], (4, 5)).indexed_by(x.support.group_index)
    queried = block.read(torch.zeros(2, 2).double(), asked, block.readout(pools)) == 0
    assert torch.equal(observed.all(dim=0), queried.all(dim=0))
    assert 10 < observed.all(dim=0).sum() < 54


@pytest.mark.parametrize("activation", ["identity", "relu", "leaky_relu"])
def test_a_block_is_residual_norm_activation_in_that_order(activation):
    block = ExchangeableBlock(linear(3, 3), activation=activation, norm=True, residual=True)
    block = block.double()
    x = random_array((4, 5), density=0.5, channels=3)
    inner = block.linear(x).values
    centred = inner - inner.mean(dim=1, keepdim=True)
    normal = centred / (centred.pow(2).mean(dim=1, keepdim=True) + 1e-5).sqrt()
    slope = {"identity": 1.0, "relu": 0.0, "leaky_relu": 0.01}[activation]
    assert_same(block(x).values, x.values + normal.clamp(min=0) + slope * normal.clamp(max=0))


def test_a_gated_block_multiplies_its_halves():
    block = ExchangeableBlock(linear(3, 6), activation="gated")
    x = random_array((4, 5), density=0.5, channels=3)
    value, gate = block.linear(x).values.split(3, dim=1)
    assert_same(block(x).values, value * gate * gate.sigmoid())
    assert block.out_channels == 3


def test_factors_are_means_of_rows_and_of_columns():
    layer = FactorLayer(2, (2, 2), maps=False)
    x = random_array((3, 4), density=0.6, channels=2)
    rows, columns = layer.factors(layer.write(x.values, x.support))
    for axis, factors in enumerate((rows, columns)):
        for member in range(x.shape[axis]):
            mine = [
                v for v, cell in zip(x.values, x.support.index, strict=True) if cell[axis] == member
            ]
            expected = sum(mine) / len(mine) if mine else torch.zeros(2).double()
            assert_same(factors[member], expected)
    n, m = x.support.index.T
    assert_same(layer(x).values, torch.cat([rows[n], columns[m]], dim=1))
    full = random_array((3, 4), density=1.0, channels=2)
    assert_same(layer(full.to_dense()), layer(full).to_dense())


def weights_of(module):
    names = [name for name, _ in module.named_parameters()]
    return names, [weight.detach().clone().requires_grad_() for weight in module.parameters()]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dense", [False, True])
def test_gradients_of_every_layer_are_right(pooling, dense):
    options = {"pooling": [pooling], "counts": True, "features": (2, 0), "heads": 2, "rank": 2}
    layer = linear(4, 2, **options)
    block = ExchangeableBlock(layer, norm=True, activation="leaky_relu").double()
    x = random_array((3, 2), density=1.0 if dense else 0.7, channels=4)
    members = torch.randn(3, 2).double().requires_grad_()
    names, weights = weights_of(block)

    def run(values, members, *weights):
        array = values if dense else x.with_values(values)
        named = dict(zip(names, weights, strict=True))
        y = functional_call(block, named, (array,), {"features": (members, None)})
        return y if dense else y.values

    start = (x.to_dense() if dense else x.values).detach().requires_grad_()
    assert gradcheck(run, (start, members, *weights))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("asked", [1, 40])
def test_gradients_of_reading_are_right_for_few_readers_and_for_many(pooling, asked):
    """Order 3, a gated residual block; with one reader only its own groups are summarised."""
    layer = linear(2, 4, order=3, pooling=[pooling], counts=True, rank=2)
    block = ExchangeableBlock(layer, activation="gated", residual=True).double()
    x = random_array((3, 2, 2), density=0.5, channels=2)
    everywhere = list(product(range(3), range(2), range(2)))
    cells = Support.of((everywhere * 4)[:asked], x.shape).indexed_by(x.support.group_index)
    names, weights = weights_of(block)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, values, query):
            return self.block.read(
                query, cells, self.block.readout(self.block.write(values, x.support))
            )

    def run(values, query, *weights):
        named = {f"block.{name}": weight for name, weight in zip(names, weights, strict=True)}
        return functional_call(Both(), named, (values, query))

    start = x.values.detach().requires_grad_()
    query = torch.randn(asked, 2).double().requires_grad_()
    assert gradcheck(run, (start, query, *weights))


def test_gradients_of_factors_are_right():
    layer = FactorLayer(2, (3, 1), maps=True, generator=torch.Generator().manual_seed(0)).double()
    x = random_array((3, 3), density=0.5, channels=2)
    assert gradcheck(lambda v: layer(x.with_values(v)).values, x.values.requires_grad_())


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(1)
    one = linear(pooling=["attention", "least_squares"], seed=5)
    torch.manual_seed(2)
    other = linear(pooling=["attention", "least_squares"], seed=5)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_there_is_a_weight_matrix_for_every_subset_and_a_bias(order):
    layer = ExchangeableLinear(3, 5, order=order)
    assert sum(weight.numel() for weight in layer.parameters()) == 2**order * 15 + 5


def test_rows_without_cells_give_finite_answers_for_every_pooling():
    x = ExchangeableArray.of([(0, 0)], [[2.0, 1.0]], (2, 3)).to(torch.float64)
    everywhere = Support.of(list(product(range(2), range(3))), (2, 3))
    for pooling in POOLINGS:
        layer = linear(pooling=[pooling], counts=True)
        pools = layer.readout(layer.write(x.values, x.support))
        cells = everywhere.indexed_by(x.support.group_index)
        y = layer.read(torch.zeros(6, 2).double(), cells, pools)
        assert y.isfinite().all()


def test_layers_are_built_on_the_default_device_from_a_generator_of_any():
    with torch.device("meta"):
        layer = ExchangeableLinear(1, 2, order=2, generator=torch.Generator())
    assert {weight.device.type for weight in layer.parameters()} == {"meta"}
