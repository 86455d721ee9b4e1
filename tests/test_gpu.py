"""The same answers on a GPU as on the CPU. Skipped where there is none."""

import pytest
import torch

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
from exchangeable.testing import assert_queries_independent, assert_same, random_array

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def models(order):
    return [
        ResidualModel(ResidualConfig(2, 3, order, width=8, depth=3, heads=2)),
        ResidualModel(
            ResidualConfig(
                2, 3, order, width=8, depth=3, heads=2, rank=2, pooling=("max", "least_squares")
            )
        ),
        SelfSupervisedModel(SelfSupervisedConfig(2, 3, order, width=8, depth=4)),
        SelfSupervisedModel(SelfSupervisedConfig(2, 3, order, width=8, depth=4, literal=True)),
        FactorizedAutoencoder(FactorizedConfig(2, 3, order, encoder=(8, 4), decoder=(8,))),
    ]


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", range(5))
def test_answers_are_those_of_the_cpu(order, kind):
    model = models(order)[kind].double().eval()
    shape = (6, 5, 4)[:order]
    observed = random_array(shape, density=0.5, channels=2)
    queries = random_array(shape, density=0.5, seed=1).support
    expected = model(observed, queries)
    answers = model.cuda()(observed.to("cuda"), Support(queries.index.cuda(), shape))
    assert_same(answers.cpu(), expected)


def test_queries_are_independent_there_too():
    model = models(2)[0].double().eval().cuda()
    observed = random_array((6, 5), density=0.5, channels=2).to("cuda")
    assert_queries_independent(model, observed, Support(observed.support.index[:4], (6, 5)))


def test_memories_grow_there_too():
    model = models(3)[0].double().eval()
    old = random_array((4, 3, 2), density=0.5, channels=2)
    new = ExchangeableArray.of([(4, 0, 0), (4, 3, 1)], torch.ones(2, 2).double(), (5, 4, 2))
    queries = Support.of([(4, 3, 0), (0, 0, 0), (4, 1, 1)], (5, 4, 2))
    expected = model.read(model.extend(model.condition(old), new), queries)
    model.cuda()
    memory = model.extend(model.condition(old.to("cuda")), new.to("cuda"))
    answers = model.read(memory, Support(queries.index.cuda(), (5, 4, 2)))
    assert_same(answers.cpu(), expected)


def test_a_training_step_runs_with_a_generator_of_either_device():
    model = models(2)[0].cuda()
    observed = random_array((6, 5), density=0.5, channels=2, dtype=torch.float32).to("cuda")
    for device in ("cpu", "cuda"):
        generator = torch.Generator(device).manual_seed(0)
        model(observed, observed.support, generator=generator).square().mean().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_models_are_built_where_the_default_device_says():
    with torch.device("cuda"):
        model = ResidualModel(ResidualConfig.small(1, 1))
    assert {weight.device.type for weight in model.parameters()} == {"cuda"}


def test_mixed_devices_are_refused():
    model = models(2)[0].cuda()
    with pytest.raises(ValueError, match=r"values must be torch\.float32 on cuda"):
        model.condition(random_array((6, 5), channels=2, dtype=torch.float32))
