"""Observed cells write, queried cells read: conditioning, chunks, and members that come later."""

import math
from itertools import product

import pytest
import torch

from exchangeable import (
    ExchangeableArray,
    ExchangeableLinear,
    FactorizedAutoencoder,
    FactorizedConfig,
    MemoryModel,
    ResidualConfig,
    ResidualModel,
    SelfSupervisedConfig,
    SelfSupervisedModel,
    Support,
)
from exchangeable.arrays.groups import Groups
from exchangeable.models.stream_backward import tensors_in
from exchangeable.nn.layers import LayerReadout
from exchangeable.nn.pools import GroupReadout, Modules
from exchangeable.testing import (
    assert_queries_independent,
    assert_same,
    random_array,
    random_relabelling,
)

POOLINGS = ["mean", "sum", "max", "attention", "least_squares"]


def everywhere(shape):
    return Support.of(list(product(*map(range, shape))), shape)


def residual(order=2, pooling=("mean", "attention"), **options):
    config = ResidualConfig(
        2, 3, order, width=8, depth=3, pooling=pooling, heads=2, rank=2, **options
    )
    return ResidualModel(config).double().eval()


def models(order, features=()):
    factorized = FactorizedConfig(
        2, 3, order, encoder=(8, 4), decoder=(8, 8), features=features, dropout=0.5
    )
    return [
        residual(order, features=features),
        residual(order, ("max", "least_squares"), activation="gated", features=features),
        SelfSupervisedModel(SelfSupervisedConfig(2, 3, order, width=8, depth=4, features=features))
        .double()
        .eval(),
        FactorizedAutoencoder(factorized).double().eval(),
    ]


def tensors(kept):
    """All tensors inside nested tuples and dictionaries."""
    if isinstance(kept, torch.Tensor):
        return [kept]
    inner = kept.values() if isinstance(kept, dict) else kept or ()
    return [tensor for part in inner for tensor in tensors(part)]


def slow_answers(model, observed, queries):
    """A plain network: every layer pools the observed cells, each query follows on its own."""
    cells = observed.support.index.tolist()
    asked = queries.index.tolist()
    h, q = list(observed.values), [torch.zeros(observed.channels).double()] * len(asked)
    for number, block in enumerate(model.layers):
        last = number == len(model.layers) - 1
        layer = block if last else block.linear

        def step(cell, own, layer=layer, h=h, last=last):
            y = own @ layer.own + layer.bias
            for axes, term in zip(layer.axes, layer.terms, strict=True):
                agree = [
                    value
                    for other, value in zip(cells, h, strict=True)
                    if all(other[axis] == cell[axis] for axis in axes)
                ]
                if agree:
                    y = y + sum(agree) / len(agree) @ term.weights[0]
            return y if last else torch.where(y > 0, y, 0.01 * y)

        q = [step(cell, own) for cell, own in zip(asked, q, strict=True)]
        h = [step(cell, own) for cell, own in zip(cells, h, strict=True)]
    return torch.stack(q)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (3, 2, 3)])
def test_answers_are_those_of_a_network_written_out(shape):
    config = SelfSupervisedConfig(2, 3, len(shape), width=4, depth=3)
    model = SelfSupervisedModel(config).double().eval()
    observed = random_array(shape, density=0.4, channels=2)
    queries = everywhere(shape)
    assert_same(model(observed, queries), slow_answers(model, observed, queries))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_answers_depend_on_no_other_query_no_chunk_and_no_label(order):
    shape = (4, 3, 2, 2)[:order]
    queries = everywhere(shape).take(torch.randperm(math.prod(shape))[:8])
    for model in models(order):
        observed = random_array(shape, density=0.4, channels=2)
        assert_queries_independent(model, observed, queries)


def test_a_cell_may_be_asked_twice_and_may_be_one_that_was_observed():
    model, observed = residual(), random_array((4, 3), density=0.5, channels=2)
    seen = observed.support.index[0]
    answers = model(observed, Support(torch.stack([seen, seen]), (4, 3)))
    assert_same(answers[0], answers[1])


def test_no_queries_give_no_answers():
    model, observed = residual(), random_array((4, 3), density=0.5, channels=2)
    assert model(observed, Support.of([], (4, 3))).shape == (0, 3)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_rows_nobody_observed_and_empty_tables_get_finite_answers(pooling):
    model = residual(3, (pooling,))
    for observed in (
        ExchangeableArray.of([(0, 0, 0)], [[1.0, 2.0]], (2, 3, 2)).to(torch.float64),
        ExchangeableArray.of([], torch.zeros(0, 2).double(), (2, 3, 2)),
    ):
        answers = model(observed, everywhere((2, 3, 2)))
        assert answers.isfinite().all()


def test_a_pair_never_observed_reads_an_empty_group():
    """Order 3: (0, 1, *) was not observed, though 0 and 1 each were."""
    layer = ExchangeableLinear(1, 1, order=3, bias=False).double()
    for term in layer.terms:
        term.weights[0].data.zero_()
    layer.terms[layer.axes.index((0, 1))].weights[0].data.fill_(1.0)
    x = ExchangeableArray.of([(0, 0, 0), (0, 0, 1), (1, 1, 0)], [[2.0], [4.0], [9.0]], (2, 2, 2))
    x = x.to(torch.float64)
    asked = Support.of([(0, 0, 1), (1, 1, 1), (0, 1, 0), (1, 0, 0)], x.shape)
    cells = asked.indexed_by(x.support.group_index)
    readout = layer.readout(layer.write(x.values, x.support))
    y = layer.read(torch.zeros(4, 1).double(), cells, readout)
    assert y.flatten().tolist() == [3.0, 9.0, 0.0, 0.0]


class OneLayer(MemoryModel):
    def __init__(self, layer):
        super().__init__()
        self.layers = Modules([layer])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("shapes", [((3,), (5,)), ((3, 4), (5, 6)), ((3, 2, 2), (4, 2, 4))])
def test_with_one_layer_extending_is_conditioning_on_everything(pooling, shapes):
    """The first layer's pools are sums over input cells, so nothing is lost by adding later."""
    small, large = shapes
    layer = ExchangeableLinear(2, 3, order=len(small), pooling=[pooling], counts=True, rank=2)
    model = OneLayer(layer.double())
    everything = random_array(large, density=0.6, channels=2)
    index = everything.support.index
    known = (index < torch.tensor(small)).all(dim=1)
    old = ExchangeableArray(Support(index[known], small), everything.values[known])

    memory = model.extend(model.condition(old), everything.take(~known))

    assert memory.shape == large
    queries = everywhere(large)
    assert_same(model.read(memory, queries), model(everything, queries))


def slow_extension(model, old, new, queries, features=None):
    """What extending means, cell by cell: at every layer new cells join the old ones, whose
    own values stay as they were before the new ones came, and queries read both.
    ``features`` are those of all members.
    """
    h, fresh = model.input_channels(old.values), model.input_channels(new.values)
    q = torch.zeros(len(queries), h.shape[1]).double()
    cells = torch.cat([old.support.index, new.support.index])
    both = ExchangeableArray(Support(cells, new.shape), torch.cat([h, fresh]))
    alone = old.with_values(h)
    for number, layer in enumerate(model.layers):
        members = features if number == 0 else None
        mine = members and tuple(
            f if f is None else f[:size] for f, size in zip(members, old.shape, strict=True)
        )
        readout = layer.readout(layer.write(both.values, both.support), members)
        asked = queries.indexed_by(both.support.group_index)
        if q.shape[1] != layer.in_channels:  # the decoder's first layer ignores what comes in
            q = q.new_zeros(len(q), layer.in_channels)
        q = layer.read(q, asked, readout)
        fresh = layer.read(both.values, both.support, readout)[len(old) :]
        alone = layer(alone, mine)
        both = both.with_values(torch.cat([alone.values, fresh]))
    return q


def later(everything, small):
    """The cells among the first members of each axis, and the others."""
    known = (everything.support.index < torch.tensor(small)).all(dim=1)
    old = Support(everything.support.index[known], small)
    return ExchangeableArray(old, everything.values[known]), everything.take(~known)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_new_members_read_the_old_pools_with_their_own_cells_added(order, kind):
    small, large = (4, 3, 2, 2)[:order], (6, 5, 3, 2)[:order]
    model = models(order)[kind]
    old, new = later(random_array(large, density=0.5, channels=2, seed=order), small)
    queries = everywhere(large)

    memory = model.extend(model.condition(old), new)

    expected = slow_extension(model, old, new, queries)
    assert_same(model.read(memory, queries), expected)
    assert_same(model.read(memory, queries, chunk_size=3), expected)


@pytest.mark.parametrize("order", [2, 3])
def test_new_cells_of_known_members_are_added_the_same_way(order):
    shape = (4, 5, 3)[:order]
    model, everything = residual(order), random_array(shape, density=0.6, channels=2)
    first = torch.arange(len(everything)) < len(everything) // 2
    old, new = everything.take(first), everything.take(~first)
    memory = model.extend(model.condition(old), new)
    expected = slow_extension(model, old, new, everywhere(shape))
    assert_same(model.read(memory, everywhere(shape)), expected)


@pytest.mark.parametrize("order", [2, 3])
def test_with_one_layer_extending_twice_is_extending_once(order):
    sizes = [(2, 2, 2)[:order], (4, 3, 2)[:order], (5, 5, 3)[:order]]
    model = OneLayer(ExchangeableLinear(2, 3, order=order, pooling=["mean", "attention"]).double())
    middle, newest = later(random_array(sizes[2], density=0.7, channels=2), sizes[1])
    oldest, newer = later(middle, sizes[0])
    memory = model.extend(model.extend(model.condition(oldest), newer), newest)
    both = torch.cat([newer.support.index, newest.support.index])
    at_once = ExchangeableArray(Support(both, sizes[2]), torch.cat([newer.values, newest.values]))
    expected = model.extend(model.condition(oldest), at_once)
    queries = everywhere(sizes[2])
    assert_same(model.read(memory, queries), model.read(expected, queries))


def test_a_new_row_and_a_new_column_meet_in_what_each_got_from_its_own_cells():
    model = residual()
    old = random_array((4, 3), density=0.8, channels=2)
    values = torch.randn(4, 2).double()
    row = [(4, 0), (4, 2)]
    column = [(1, 3), (3, 3)]
    new = ExchangeableArray.of(row + column, values, (5, 4))
    cell = Support.of([(4, 3)], (5, 4))
    memory = model.extend(model.condition(old), new)
    answer = model.read(memory, cell)
    assert_same(answer, slow_extension(model, old, new, cell))
    for changed in range(4):  # every one of the new cells counts
        other = values.clone()
        other[changed] += 1
        again = model.extend(model.condition(old), new.with_values(other))
        assert not torch.allclose(model.read(again, cell), answer)


def test_extending_by_nothing_changes_nothing():
    model, old = residual(3), random_array((4, 3, 2), density=0.5, channels=2)
    memory = model.condition(old)
    nothing = ExchangeableArray.of([], torch.zeros(0, 2).double(), (6, 3, 3))
    queries = everywhere((4, 3, 2))
    assert_same(model.read(model.extend(memory, nothing), queries), model.read(memory, queries))


def test_extending_leaves_the_old_memory_as_it_was():
    model, old = residual(), random_array((4, 3), density=0.5, channels=2)
    memory, queries = model.condition(old), everywhere((4, 3))
    before = model.read(memory, queries)
    model.extend(memory, ExchangeableArray.of([(4, 0)], torch.ones(1, 2).double(), (5, 3)))
    assert torch.equal(model.read(memory, queries), before)


def test_numbering_new_members_otherwise_comes_to_the_same():
    """Relabelling the new rows relabels their answers."""
    model, old = residual(), random_array((4, 3), density=0.5, channels=2)
    new = random_array((2, 3), density=0.7, channels=2, seed=1)
    index = new.support.index + torch.tensor([4, 0])
    swapped = index.clone()
    swapped[:, 0] = 9 - swapped[:, 0]  # 4 <-> 5
    answers = []
    for cells, order in ((index, [4, 5]), (swapped, [5, 4])):
        memory = model.extend(
            model.condition(old), ExchangeableArray(Support(cells, (6, 3)), new.values)
        )
        asked = Support.of([(row, c) for row in order for c in range(3)], (6, 3))
        answers.append(model.read(memory, asked))
    assert_same(*answers)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_new_members_bring_their_features(kind):
    model = models(2, features=(3, 0))[kind]
    old, new = later(random_array((6, 4), density=0.7, channels=2), (5, 4))
    rows, queries = torch.randn(6, 3).double(), everywhere((6, 4))
    memory = model.condition(old, features=(rows[:5], None))
    longer = model.extend(memory, new, features=(rows[5:], None))
    expected = slow_extension(model, old, new, queries, features=(rows, None))
    assert_same(model.read(longer, queries), expected)
    assert_same(model.read(longer, queries, chunk_size=2), expected)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [2, 3])
def test_features_follow_their_members_wherever_they_are_renamed(kind, order):
    model, shape = models(order, features=(3, 0, 2)[:order])[kind], (5, 4, 3)[:order]
    observed, queries = random_array(shape, density=0.5, channels=2), everywhere(shape)
    features = (torch.randn(5, 3).double(), None, torch.randn(3, 2).double())[:order]
    answers = model(observed, queries, features)
    names = random_relabelling(shape)
    renamed = [None if f is None else f[n.argsort()] for f, n in zip(features, names, strict=True)]
    asked = torch.stack([n[c] for n, c in zip(names, queries.index.T, strict=True)], dim=1)
    assert_same(model(observed.relabel(names), Support(asked, shape), tuple(renamed)), answers)
    for axis in [axis for axis, f in enumerate(features) if f is not None]:
        other = tuple(f if i != axis else f + 1 for i, f in enumerate(features))
        assert not torch.allclose(model(observed, queries, other), answers)


def test_conditioning_streams_gradients_to_weights_and_values():
    model = residual().train()
    observed = random_array((4, 3), density=0.6, channels=2)
    values = observed.values.requires_grad_()
    memory = model.condition(observed.with_values(values), generator=torch.Generator())
    model.read(memory, everywhere((4, 3)), chunk_size=5).square().sum().backward()
    assert values.grad.abs().sum() > 0
    assert all(weight.grad is not None for weight in model.parameters())


def test_dropout_is_drawn_when_conditioning_and_shared_by_all_that_is_read():
    model = residual(dropout=0.5).train()
    observed = random_array((4, 3), density=0.6, channels=2)
    queries = everywhere((4, 3))
    memory = model.condition(observed, generator=torch.Generator().manual_seed(1))
    assert_same(model.read(memory, queries), model.read(memory, queries, chunk_size=2))
    again = model.condition(observed, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model.read(again, queries), model.read(memory, queries))
    other = model.condition(observed, generator=torch.Generator().manual_seed(2))
    assert not torch.allclose(model.read(other, queries), model.read(memory, queries))


def test_an_extended_memory_keeps_the_dropped_channels():
    model = residual(dropout=0.5).train()
    old, new = later(random_array((5, 3), density=0.8, channels=2), (4, 3))
    memory = model.condition(old, generator=torch.Generator().manual_seed(1))
    longer = model.extend(memory, new)
    masks = [pools.dropout_mask for pools in memory.pools[:-1]]
    assert all(mask is not None for mask in masks)
    for mask, pools in zip(masks, longer.pools[:-1], strict=True):
        assert torch.equal(mask, pools.dropout_mask)
    model.eval()
    assert not torch.allclose(
        model.read(longer, everywhere((5, 3))),
        model.read(model.extend(model.condition(old), new), everywhere((5, 3))),
    )


def test_a_memory_says_what_it_is_of():
    memory = residual().condition(random_array((4, 3), density=0.5, channels=2))
    assert repr(memory) == "Memory(4 x 3, pools of 4 layers)"


def test_a_memory_of_a_matrix_keeps_members_and_not_cells():
    """However many cells there are, what is kept is as large."""
    model = residual()

    def kept(density):
        memory = model.condition(random_array((20, 30), density=density, channels=2))
        return sum(part.numel() for part in tensors(memory.pools))

    assert kept(0.1) == kept(1.0)


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_new_member_reads_the_pools_of_others_as_they_are(kind, order, axis):
    model = [
        ResidualModel(ResidualConfig(2, 3, order, width=8, depth=3, heads=2)),
        ResidualModel(
            ResidualConfig(
                2, 3, order, width=8, depth=3, heads=2, rank=2, pooling=("max", "least_squares")
            )
        ),
        SelfSupervisedModel(SelfSupervisedConfig(2, 3, order, width=8, depth=3)),
        FactorizedAutoencoder(FactorizedConfig(2, 3, order, encoder=(8, 4), decoder=(8,))),
    ][kind]
    model = model.double().eval()
    shape = (6, 5, 4)[:order]
    memory = model.condition(random_array(shape, density=0.5, channels=2))
    alone = tuple(1 if a == axis else size for a, size in enumerate(shape))
    own = random_array(alone, density=0.6, channels=2, seed=3)
    asked = random_array(alone, density=0.8, seed=4).support

    before = [tensor.clone() for tensor in tensors_in((memory.pools, memory.readouts))]
    quick = model.for_new_members(memory, axis, own)
    found = model.read(quick, asked)

    assert_same(found, slow_new_member(model, memory, axis, own, asked))
    assert quick.shape == alone
    after = tensors_in((memory.pools, memory.readouts))
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    with pytest.raises(ValueError, match="cannot be extended"):
        model.extend(quick, own)


def slow_new_member(model, memory, axis, own, asked):
    """Layer by layer, cell by cell: its own axis from its own cells, all others as they were."""
    h, order = model.input_channels(own.values), own.order
    q = torch.zeros(len(asked), h.shape[1]).double()
    for number, layer in enumerate(model.layers):
        if q.shape[1] != layer.in_channels:
            q = q.new_zeros(len(q), layer.in_channels)
        alone = layer.readout(layer.write(h, own.support))
        known = memory.readouts[number]

        def rows_for(cells, axes, part, alone=alone, known=known):
            """What each cell reads on some axes, by looking its group up."""
            if axis in axes:
                groups = cells.indexed_by(own.support.group_index).groups(axes)
                return part(alone.on[axes])[groups.ids]
            numbered = Support(cells.index, memory.shape, memory.group_index)
            return part(known.on[axes])[numbered.groups(axes).ids]

        def read(values, cells, layer=layer, rows_for=rows_for, known=known):
            """One group per cell and axes, so that nothing has to be shared."""
            lonely = Support(cells.index, cells.shape)
            on = {}
            for axes in known.on:
                lonely._groups[axes] = Groups(torch.arange(len(cells)), len(cells))
                rows = known.on[axes].rows
                on[axes] = GroupReadout(
                    None if rows is None else rows_for(cells, axes, lambda s: s.rows),
                    tuple(
                        rows_for(cells, axes, lambda s, place=place: s.per_cell[place])
                        for place in range(len(known.on[axes].per_cell))
                    ),
                )
            outputs = []
            for place in range(len(cells)):  # one at a time: () has one group only
                one = Support(cells.index[place : place + 1], cells.shape)
                for axes in on:
                    one._groups[axes] = Groups(torch.zeros(1, dtype=torch.int64), 1)
                readout = {
                    axes: GroupReadout(
                        None if s.rows is None else s.rows[place : place + 1],
                        tuple(part[place : place + 1] for part in s.per_cell),
                    )
                    for axes, s in on.items()
                }
                outputs.append(layer.read(values[place : place + 1], one, LayerReadout(readout)))
            return torch.cat(outputs)

        q, h = read(q, asked), read(h, own.support)
    assert order == len(asked.shape)
    return q


def test_a_new_member_comes_with_features_and_in_an_array_of_its_own():
    model = ResidualModel(
        ResidualConfig(1, 1, width=8, depth=2, pooling=("mean",), features=(2, 0))
    )
    model = model.double().eval()
    known = torch.randn(4, 2, dtype=torch.float64)
    memory = model.condition(random_array((4, 3)), (known, None))
    own = random_array((1, 3), density=0.7)
    features = (torch.randn(1, 2, dtype=torch.float64), None)
    asked = Support.of([(0, 1)], (1, 3))
    quick = model.read(model.for_new_members(memory, 0, own, features), asked)
    others = (torch.zeros(1, 2, dtype=torch.float64), None)
    other = model.read(model.for_new_members(memory, 0, own, others), asked)
    assert not torch.allclose(quick, other)
    with pytest.raises(ValueError, match=r"shape \(4, 3\) on other axes"):
        model.for_new_members(memory, 0, random_array((1, 2)))


def test_a_new_member_with_a_pair_that_nobody_had_reads_an_empty_group():
    """Order 3: the pair (0, 0) of the other axes comes before all that are known."""
    config = ResidualConfig(1, 1, 3, width=8, depth=2, pooling=("mean",))
    model = ResidualModel(config).double().eval()
    known = ExchangeableArray.of(
        [(0, 1, 1), (1, 1, 2), (1, 2, 2)], [[1.0], [2.0], [3.0]], (2, 3, 3)
    )
    memory = model.condition(known.to(torch.float64))
    own = ExchangeableArray.of([(0, 0, 0), (0, 1, 1)], [[4.0], [5.0]], (1, 3, 3)).to(torch.float64)
    asked = Support.of([(0, 1, 2), (0, 2, 2), (0, 0, 0)], (1, 3, 3))
    quick = model.read(model.for_new_members(memory, 0, own), asked)
    assert_same(quick, slow_new_member(model, memory, 0, own, asked))
