"""The models are those of the paper and ours, for any order, and no weight knows a table's size."""

import pytest
import torch
from tests.support.models import weights

from exchangeable import (
    ExchangeableArray,
    FactorizedAutoencoder,
    FactorizedConfig,
    ResidualConfig,
    ResidualModel,
    SelfSupervisedConfig,
    SelfSupervisedModel,
    Support,
)
from exchangeable.testing import random_array


@pytest.mark.parametrize(
    "model",
    [
        SelfSupervisedModel(SelfSupervisedConfig(1, 1, width=8, depth=4)),
        FactorizedAutoencoder(FactorizedConfig(1, 1, encoder=(8, 4), decoder=(8,))),
        ResidualModel(ResidualConfig.small(1, 1)),
        ResidualModel(ResidualConfig.base(1, 1)),
    ],
)
def test_one_set_of_weights_serves_5_by_5_and_50000_by_20000(model):
    before = weights(model.eval())
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    for shape in [(5, 5), (50_000, 20_000)]:
        corner = (shape[0] - 1, shape[1] - 1)
        table = ExchangeableArray.of([(0, 0), (1, 2), corner], [[1.0], [2.0], [3.0]], shape)
        with torch.no_grad():
            answer = model(table, Support.of([(1, 0), corner], shape))
        assert answer.isfinite().all()
    assert weights(model) == before
    assert {name: weight.shape for name, weight in model.state_dict().items()} == shapes


def test_an_observed_zero_is_not_a_question():
    """Ours marks observed cells, so a 0 that was seen differs from a cell asked about."""
    model = ResidualModel(ResidualConfig(1, 1, width=8, depth=2, heads=2)).double().eval()
    table = random_array((3, 3), density=0.5)
    zero = table.with_values(table.values * 0)
    layer = model.layers[0]
    pools = layer.readout(layer.write(model.input_channels(zero.values), zero.support))
    seen = layer.read(model.input_channels(zero.values), zero.support, pools)
    asked = layer.read(torch.zeros(len(zero), 2).double(), zero.support, pools)
    assert not torch.allclose(seen, asked)


def test_the_seed_alone_decides_the_weights():
    config = ResidualConfig.base(1, 1)
    torch.manual_seed(1)
    one = ResidualModel(config, seed=3)
    torch.manual_seed(2)
    other = ResidualModel(config, seed=3)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(
        ResidualModel(config, seed=4).layers[0].linear.own, one.layers[0].linear.own
    )


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", ["self-supervised", "factorized", "residual", "least squares"])
def test_every_model_learns_a_small_table(order, kind):
    """Hidden cells of an additive table: twenty steps halve the error of a fresh model."""
    model = {
        "self-supervised": lambda: SelfSupervisedModel(
            SelfSupervisedConfig(1, 1, order, width=16, depth=3, dropout=0.0, residual=True)
        ),
        "factorized": lambda: FactorizedAutoencoder(
            FactorizedConfig(1, 1, order, encoder=(16, 8), decoder=(16,), dropout=0.0)
        ),
        "residual": lambda: ResidualModel(
            ResidualConfig(1, 1, order, width=16, depth=2, heads=2, dropout=0.0)
        ),
        "least squares": lambda: ResidualModel(
            ResidualConfig(
                1, 1, order, width=16, depth=2, pooling=("least_squares",), heads=2, dropout=0.0
            )
        ),
    }[kind]()
    shape = (30, 20, 5)[:order] if order < 3 else (10, 8, 5)
    table = random_array(shape, density=0.6, dtype=torch.float32)
    signal = 2.0 + sum(
        torch.randn(size)[column] for size, column in zip(shape, table.support.index.T, strict=True)
    )
    table = table.with_values(signal[:, None])
    hidden = torch.arange(len(table)) % 4 == 0
    seen, asked = table.take(~hidden), table.take(hidden)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        loss = (model(seen, asked.support) - asked.values).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_models_run_in_half_precision():
    for pooling in (("mean", "attention"), ("max", "least_squares")):
        config = ResidualConfig(1, 1, width=8, depth=2, heads=2, rank=2, pooling=pooling)
        exact = ResidualModel(config).eval()
        half = ResidualModel(config).eval().bfloat16()
        observed = random_array((6, 5), density=0.6, dtype=torch.float32)
        expected = exact(observed, observed.support)
        answers = half(observed.to(torch.bfloat16), observed.support)
        assert answers.dtype == torch.bfloat16
        torch.testing.assert_close(answers.float(), expected, rtol=0.1, atol=0.1)
