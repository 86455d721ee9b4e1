"""The same answers on a GPU as on the CPU. Skipped where there is none."""

from dataclasses import replace

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
    TrainedModel,
    TrainingConfig,
)
from exchangeable.arrays.groups import Groups
from exchangeable.errors import Failed
from exchangeable.models.configs import build
from exchangeable.models.stream import Plan
from exchangeable.nn.pooling import unpool
from exchangeable.prior.prior import Prior
from exchangeable.runtime.interruption import Interrupted, explain_out_of_memory
from exchangeable.runtime.random import hashed_uniform
from exchangeable.testing import assert_queries_independent, assert_same, random_array
from exchangeable.training import memory_plan
from exchangeable.training.execution import Execution
from exchangeable.training.loop import train
from exchangeable.training.masking import ExampleSource
from exchangeable.training.run import Run
from exchangeable.training.task import Task
from exchangeable.training.train_model import train_model
from exchangeable.training.validation import validation_rmse
from exchangeable.values.codecs import OneHot, ValueStats
from exchangeable.values.scale import Scale

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


@pytest.mark.parametrize("shape", [(4, 30), (30, 6, 3)])
def test_the_prior_of_a_dense_table_is_that_of_the_cpu(shape):
    table = random_array(shape, density=0.9)
    reference = ValueStats.of(table.values.squeeze(1).numpy(), Scale("real"))
    expected = Prior.of(table, reference, 2)(table.support.index)
    found = Prior.of(table.to("cuda"), reference, 2)(table.support.index.cuda())
    assert_same(found.cpu(), expected, 1e-4)


def test_products_over_three_axes_are_those_of_the_cpu():
    shape, generator = (16, 14, 12), torch.Generator().manual_seed(0)
    vectors = [torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in shape]
    index = torch.rand(shape, generator=generator).lt(0.7).nonzero()
    exact = torch.stack([v[index[:, axis]] for axis, v in enumerate(vectors)]).prod(dim=0)
    noise = torch.randn(len(index), dtype=torch.float64, generator=generator)
    values = exact.sum(dim=1) + 0.2 * noise
    table = ExchangeableArray.unchecked(Support(index, shape), values[:, None])
    reference = ValueStats.of(values.numpy(), Scale("real"))
    expected = Prior.of(table, reference, 8, widest=64)
    found = Prior.of(table.to("cuda"), reference, 8, widest=64)
    assert found.fitted.fine.layout == expected.fitted.fine.layout
    assert expected.fitted.fine.layout.products
    assert_same(found(index.cuda()).cpu(), expected(index), 1e-3)


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


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("factorized", [False, True])
def test_the_literal_models_are_trained_as_on_a_cpu(factorized, elementwise):
    sizes = {"dropout": 0.3, "literal": True, "elementwise": elementwise}
    config = SelfSupervisedConfig(5, 5, width=16, depth=4, **sizes)
    if factorized:
        config = FactorizedConfig(5, 5, encoder=(16, 8), decoder=(16, 16), **sizes)
    training = TrainingConfig(
        steps=12, hide="nothing" if factorized else "flat", evaluate_every=4, seed=3
    )
    ends = []
    for device in ("cpu", "cuda"):
        run = Run.start(build(config, 0).to(device), training)
        learn(run, rating_task((60, 50)), precision="float32")
        ends.append([look["validation_rmse"] for look in run.history])
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)
    run = Run.start(build(config, 0).cuda(), training)
    learn(run, rating_task((60, 50)))  # in bfloat16
    assert run.history[-1]["validation_rmse"] == pytest.approx(ends[0][-1], rel=0.05)


def test_mixed_devices_are_refused():
    model = models(2)[0].cuda()
    with pytest.raises(ValueError, match=r"values must be torch\.float32 on cuda"):
        model.condition(random_array((6, 5), channels=2, dtype=torch.float32))


def learn(run, data, **execution):
    train(run, ExampleSource(run, OneHot(5), data), Execution(**execution))


def rating_task(shape=(200, 150)):
    noise = random_array(shape, density=0.4)
    row = torch.randn(shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    values = 3 + row[noise.support.index[:, 0], None] + 0.3 * noise.values
    table = ExchangeableArray(noise.support, values.round().clamp(1, 5))
    kept = torch.arange(len(table)) % 5 == 0
    shown = table.take(~kept)
    scale = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))
    return Task(shown, table.take(kept), ValueStats.of(shown.values.squeeze(1).numpy(), scale))


def test_the_gradient_of_a_row_that_many_read_is_whole_in_bfloat16():
    pooled = torch.ones(2, 4, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    ids = torch.zeros(50_000, dtype=torch.int64, device="cuda")
    unpool(pooled, Groups(ids, 2)).float().sum().backward()
    assert pooled.grad[0].tolist() == pytest.approx([50_000.0] * 4, rel=0.01)


def test_training_in_bfloat16_gets_where_float32_gets_and_loads_on_a_cpu(tmp_path):
    config = TrainingConfig(steps=150, evaluate_every=25, learning_rate=1e-2)
    model = ResidualConfig(5, 5, width=16, depth=3, pooling=("mean", "attention"), heads=4)
    ends = {}
    for precision in ("float32", "bfloat16"):
        trained = train_model(
            model,
            OneHot(5),
            rating_task(),
            config,
            name=precision,
            facts={},
            execution=Execution(
                torch.device("cuda"), precision=precision, folder=tmp_path / precision
            ),
        )
        ends[precision] = trained.facts["validation RMSE"]
    assert ends["float32"] < 0.5
    assert ends["bfloat16"] == pytest.approx(ends["float32"], rel=0.05)
    loaded = TrainedModel.load(tmp_path / "float32")
    assert loaded.model.device.type == "cpu"
    on_cpu = validation_rmse(loaded.model, OneHot(5), rating_task())
    assert on_cpu == pytest.approx(ends["float32"], rel=1e-3)


@pytest.mark.parametrize("pooling", [("mean",), ("mean", "attention"), ("mean", "least_squares")])
def test_a_step_takes_about_the_memory_that_was_estimated(pooling):
    task = rating_task((1500, 1000))
    cuda = task.to(torch.device("cuda"))
    model = ResidualModel(ResidualConfig(5, 5, width=64, depth=6, pooling=pooling)).cuda()
    expected = memory_plan.step_memory(model, OneHot(5), cuda, len(task.observed))
    config = TrainingConfig(steps=2, evaluate_every=100)
    run = Run.start(model, config)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    learn(run, replace(task, validation=task.validation.take(torch.arange(10))))
    taken = torch.cuda.max_memory_allocated() - before
    print(f"{pooling}: estimated {expected >> 20} MB, taken {taken >> 20} MB")
    assert 0.4 < expected / taken < 2.5


@pytest.mark.parametrize("activation", ["leaky_relu", "gated"])
@pytest.mark.parametrize("pooling", [("mean",), ("mean", "attention"), ("mean", "max"), ("sum",)])
@pytest.mark.parametrize("order", [2, 3])
def test_kernels_give_what_float64_on_a_cpu_gives(order, pooling, activation):
    """All of a model, forward and backward, hidden cells included, in float32 and bfloat16."""
    config = ResidualConfig(
        3, 2, order, width=32, depth=3, pooling=pooling, heads=4, activation=activation
    )
    model = ResidualModel(config, seed=2).double().eval()
    x = random_array((40, 30, 6)[:order], density=0.4, channels=3)
    hide = torch.rand(len(x), generator=torch.Generator().manual_seed(0)) < 0.3
    expected = model.predict_hidden(x, hide)
    expected.square().sum().backward()
    slopes = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    for narrow, most in ((False, 1e-4), (True, 4e-2)):
        ours = ResidualModel(config, seed=2).cuda().eval()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=narrow):
            outputs = ours.predict_hidden(x.to(torch.float32).to("cuda"), hide.cuda())
        outputs.double().square().sum().backward()
        found = torch.cat([p.grad.flatten() for p in ours.parameters() if p.grad is not None])
        for one, other in ((outputs, expected), (found, slopes)):
            error = (one.double().cpu() - other).norm() / other.norm()
            assert error < most, (narrow, float(error))


def test_the_factorized_model_and_a_new_member_go_through_kernels_too():
    config = FactorizedConfig(1, 2, encoder=(16, 8), decoder=(16,), dropout=0.0)
    x = random_array((40, 30), density=0.4)
    asked = random_array((40, 30), density=0.2, seed=2).support
    for made in (FactorizedAutoencoder(config), ResidualModel(ResidualConfig.base(1, 2))):
        slow = made.double().eval()
        expected = slow(x, asked)
        own = random_array((1, 30), density=0.5, seed=3)
        alone = Support.of([(0, n) for n in range(30)], (1, 30))
        strange = slow.read(slow.for_new_members(slow.condition(x), 0, own), alone)
        fast = made.float().cuda()
        with torch.no_grad():
            memory = fast.condition(x.to(torch.float32).to("cuda"))
            found = fast.read(memory, Support(asked.index.cuda(), x.shape))
            mine = fast.for_new_members(memory, 0, own.to(torch.float32).to("cuda"))
            new = fast.read(mine, Support(alone.index.cuda(), (1, 30)))
        for one, other in ((found, expected), (new, strange)):
            assert (one.double().cpu() - other).norm() / other.norm() < 1e-4


def test_captured_steps_are_those_of_plain_training():
    config = TrainingConfig(steps=20, evaluate_every=10, seed=3)
    shape = ResidualConfig(5, 5, width=16, depth=3, heads=4, dropout=0.2)
    ends = []
    for on in (True, False):
        run = Run.start(ResidualModel(shape).cuda(), config)
        plan = None if on else Plan(chunk_cells=10**9)
        learn(run, rating_task(), precision="float32", plan=plan)
        ends.append([look["validation_rmse"] for look in run.history])
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


@pytest.mark.parametrize("prior", [0, 2])
@pytest.mark.parametrize("hide", ["flat", "rows"])
def test_a_captured_run_has_the_losses_and_weights_of_a_plain_one(hide, prior):
    config = TrainingConfig(steps=8, evaluate_every=1, seed=3, hide=hide, views=2)
    shape = ResidualConfig(5, 5, width=16, depth=3, heads=4, dropout=0.2, prior=prior)
    ends = []
    for plan in (None, Plan(chunk_cells=10**9)):
        run = Run.start(ResidualModel(shape).cuda(), config)
        learn(run, rating_task(), precision="float32", plan=plan)
        weights = [flat(run.model), flat(run.averaged)]
        ends.append((torch.tensor([look["loss"] for look in run.history]), *weights))
    for captured, plain in zip(*ends, strict=True):
        assert (captured - plain).norm() / plain.norm() < 1e-3


def test_a_captured_run_that_was_stopped_ends_as_one_that_was_not():
    config = TrainingConfig(steps=6, evaluate_every=2, seed=3)
    shape = ResidualConfig(5, 5, width=16, depth=3, heads=4, dropout=0.2)
    whole, stopped, resumed = (Run.start(ResidualModel(shape).cuda(), config) for _ in range(3))
    learn(whole, rating_task())
    with pytest.raises(Interrupted, match="after step 1 of 6"):
        learn(stopped, rating_task(), seconds=0)
    resumed.restore(*stopped.state())
    learn(resumed, rating_task())
    for one, other in ((whole.model, resumed.model), (whole.averaged, resumed.averaged)):
        assert torch.equal(flat(one), flat(other))


def test_a_captured_run_that_diverges_ends_and_keeps_its_best_weights():
    config = TrainingConfig(steps=50, evaluate_every=1, learning_rate=1e30, warm_up=0.0)
    run = Run.start(ResidualModel(ResidualConfig(5, 5, width=16, depth=3, heads=4)).cuda(), config)
    with pytest.raises(Failed, match="no longer finite"):
        learn(run, rating_task())
    assert flat(run.best).isfinite().all()


def flat(model):
    return torch.cat([weight.detach().flatten().cpu() for weight in model.parameters()])


def test_members_are_counted_as_on_a_cpu():
    ids = (torch.rand(5000) ** 3 * 300).long()
    writers = torch.rand(5000) < 0.5
    for order in (ids, ids.sort().values):
        expected = Groups(order, 301).with_writers(writers).sizes
        found = Groups(order.cuda(), 301).with_writers(writers.cuda()).sizes
        assert torch.equal(found.cpu(), expected)


def test_the_same_cells_are_hidden_as_on_a_cpu():
    places = [hashed_uniform(1000, 3, torch.device(home)).cpu() for home in ("cpu", "cuda")]
    assert torch.equal(*places)


@pytest.mark.parametrize("keep", ["memory", "scratch", "recompute"])
def test_parts_on_a_gpu_are_the_whole(keep):
    model = ResidualModel(ResidualConfig(1, 2, width=16, depth=3, heads=4)).cuda().eval()
    x = random_array((60, 50), density=0.5, dtype=torch.float32).to("cuda")
    queries = random_array((60, 50), density=0.1, seed=4).support
    asked = Support(queries.index.cuda(), (60, 50))
    with torch.no_grad():
        whole = model.read(model.condition(x), asked)
        parted = model.read(model.condition(x, plan=Plan(chunk_cells=100, activations=keep)), asked)
    torch.testing.assert_close(parted, whole, rtol=1e-4, atol=1e-5)


def test_out_of_memory_on_a_gpu_is_one_line():
    with pytest.raises(Failed, match="out of memory"), explain_out_of_memory():
        torch.empty(2**45, device="cuda")
