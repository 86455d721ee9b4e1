"""Random cases of every layer, pooling and model: equivariant, and queries independent.

750 cases in all, orders 1 to 4, in float64, with the cells shuffled.
"""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exchangeable import (
    ExchangeableBlock,
    ExchangeableLinear,
    FactorizedAutoencoder,
    FactorizedConfig,
    FactorLayer,
    JointlyExchangeableLinear,
    ResidualConfig,
    ResidualModel,
    SelfSupervisedConfig,
    SelfSupervisedModel,
    Support,
)
from exchangeable.testing import (
    assert_equivariant,
    assert_queries_independent,
    assert_same,
    random_array,
    random_relabelling,
)

SEEDS = st.integers(0, 2**31)
POOLINGS = st.lists(
    st.sampled_from(["mean", "sum", "max", "attention", "least_squares"]),
    min_size=1,
    max_size=3,
    unique=True,
)
ACTIVATIONS = st.sampled_from(["identity", "relu", "leaky_relu", "gated"])


@st.composite
def shapes(draw):
    order = draw(st.integers(1, 4))
    largest = {1: 12, 2: 7, 3: 4, 4: 3}[order]
    return tuple(draw(st.integers(1, largest)) for _ in range(order))


@st.composite
def layers(draw, order):
    """Any layer that keeps arrays of this order, with four channels in."""
    generator = torch.Generator().manual_seed(draw(SEEDS))
    if draw(st.integers(0, 5)) == 0:
        sizes = [draw(st.integers(1, 3)) for _ in range(order)]
        return FactorLayer(4, sizes, maps=True, generator=generator).double()
    activation = draw(ACTIVATIONS)
    linear = ExchangeableLinear(
        4,
        8 if activation == "gated" else 4,
        order=order,
        pooling=draw(POOLINGS),
        counts=draw(st.booleans()),
        heads=draw(st.sampled_from([1, 2, 4])),
        rank=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
        generator=generator,
    )
    if draw(st.booleans()):
        return linear.double()
    norm, residual = draw(st.booleans()), draw(st.booleans())
    return ExchangeableBlock(linear, activation=activation, norm=norm, residual=residual).double()


@settings(max_examples=200)
@given(st.data(), shapes(), st.floats(0, 1), SEEDS)
def test_every_layer_is_equivariant_on_observed_cells(data, shape, density, seed):
    layer = data.draw(layers(len(shape)))
    x = random_array(shape, density=density, channels=4, seed=seed)
    assert_equivariant(layer, x, seed=seed)


@settings(max_examples=150)
@given(st.data(), shapes(), SEEDS)
def test_every_layer_is_equivariant_on_grids_and_equals_its_sparse_form(data, shape, seed):
    layer = data.draw(layers(len(shape)))
    x = random_array(shape, density=1.0, channels=4, seed=seed)
    dense = x.to_dense()
    moved = dense
    for axis, names in enumerate(random_relabelling(shape, seed=seed)):
        moved = moved.index_select(axis, names)
    answer = layer(dense)
    for axis, names in enumerate(random_relabelling(shape, seed=seed)):
        answer = answer.index_select(axis, names)
    assert_same(layer(moved), answer)
    assert_same(layer(dense), layer(x).to_dense())


@settings(max_examples=50)
@given(
    size=st.integers(1, 8),
    density=st.floats(0, 1),
    tying=st.sampled_from(["joint", "paper"]),
    seed=SEEDS,
)
def test_joint_layers_are_equivariant_to_joint_relabelling(size, density, tying, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = JointlyExchangeableLinear(3, 2, tying=tying, generator=generator).double()
    x = random_array((size, size), density=density, channels=3, seed=seed)
    assert_equivariant(layer, x, joint=True, seed=seed)


@st.composite
def models(draw, order):
    seed, kind = draw(SEEDS), draw(st.integers(0, 2))
    if kind == 0:
        config = SelfSupervisedConfig(
            3,
            2,
            order,
            width=6,
            depth=draw(st.integers(2, 5)),
            activation=draw(st.sampled_from(["relu", "leaky_relu"])),
            residual=draw(st.booleans()),
            bias=draw(st.booleans()),
        )
        return SelfSupervisedModel(config, seed).double().eval()
    if kind == 1:
        sizes = tuple(draw(st.integers(1, 5)) for _ in range(order))
        config = FactorizedConfig(
            3, 2, order, encoder=(6, 4), decoder=(6,), factor_sizes=sizes, maps=True
        )
        return FactorizedAutoencoder(config, seed).double().eval()
    config = ResidualConfig(
        3,
        2,
        order,
        width=8,
        depth=draw(st.integers(1, 4)),
        pooling=tuple(draw(POOLINGS)),
        heads=draw(st.sampled_from([1, 2, 4])),
        rank=draw(st.integers(1, 3)),
        counts=draw(st.booleans()),
        activation=draw(st.sampled_from(["leaky_relu", "gated"])),
    )
    return ResidualModel(config, seed).double().eval()


@settings(max_examples=200)
@given(st.data(), shapes(), st.floats(0, 1), SEEDS)
def test_answers_of_every_model_ignore_other_queries_chunks_and_labels(data, shape, density, seed):
    model = data.draw(models(len(shape)))
    observed = random_array(shape, density=density, channels=3, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    asked = torch.stack([torch.randint(size, (4,), generator=generator) for size in shape], dim=1)
    assert_queries_independent(model, observed, Support(asked, shape), seed=seed)


@settings(max_examples=50)
@given(st.data(), shapes(), st.floats(0.1, 1), SEEDS)
def test_models_are_equivariant_as_maps_of_arrays(data, shape, density, seed):
    model = data.draw(models(len(shape)))

    def complete(x):
        return x.with_values(model(x, x.support))

    assert_equivariant(complete, random_array(shape, density=density, channels=3, seed=seed))


@settings(max_examples=50)
@given(st.integers(1, 6), st.sampled_from(["joint", "paper"]), SEEDS)
def test_dense_joint_layers_are_equivariant_and_equal_their_sparse_form(size, tying, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = JointlyExchangeableLinear(3, 2, tying=tying, generator=generator).double()
    x = random_array((size, size), density=1.0, channels=3, seed=seed)
    dense, names = x.to_dense(), random_relabelling((size,), seed=seed)[0]
    assert_same(layer(dense[names][:, names]), layer(dense)[names][:, names])
    assert_same(layer(dense), layer(x).to_dense())


@settings(max_examples=50)
@given(shapes(), st.floats(0, 1), st.booleans(), SEEDS)
def test_the_literal_mode_is_equivariant(shape, density, factorized, seed):
    if factorized:
        config = FactorizedConfig(3, 2, len(shape), encoder=(6, 4), decoder=(6,), literal=True)
        model = FactorizedAutoencoder(config, seed).double().eval()
    else:
        config = SelfSupervisedConfig(3, 2, len(shape), width=6, depth=3, literal=True)
        model = SelfSupervisedModel(config, seed).double().eval()
    observed = random_array(shape, density=density, channels=3, seed=seed)
    asked = random_array(shape, density=0.5, seed=seed + 1).support
    names = random_relabelling(shape, seed=seed)
    renamed = torch.stack([n[c] for n, c in zip(names, asked.index.T, strict=True)], dim=1)
    assert_same(model(observed.relabel(names), Support(renamed, shape)), model(observed, asked))
