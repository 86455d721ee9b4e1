"""The paper's models are those of the text and of the released code."""

import pytest
import torch
from tests.support.models import weights

from exchangeable import (
    ExchangeableArray,
    ExchangeableLinear,
    FactorizedAutoencoder,
    FactorizedConfig,
    FactorLayer,
    SelfSupervisedConfig,
    SelfSupervisedModel,
    Support,
)
from exchangeable.models.paper import drop_elements
from exchangeable.testing import assert_equivariant, assert_same, random_array


def test_the_self_supervised_model_is_the_one_in_the_text():
    """Nine layers of 256 channels, leaky ReLU, dropout .5 after layers 1 to 7."""
    config = SelfSupervisedConfig.paper(levels=5)
    model = SelfSupervisedModel(config)
    assert len(model.layers) == 9
    assert [layer.out_channels for layer in model.layers] == [256] * 8 + [5]
    assert [block.dropout.share for block in list(model.layers)[:8]] == [0.5] * 7 + [0.0]
    assert {block.activation for block in list(model.layers)[:8]} == {"leaky_relu"}
    assert not any(block.residual for block in list(model.layers)[:8])
    assert isinstance(model.layers[8], ExchangeableLinear)
    assert config.literal
    # equation (4): four matrices and a bias per layer
    sizes = [(5, 256), *[(256, 256)] * 7, (256, 5)]
    assert weights(model) == sum(4 * k * o + o for k, o in sizes)


def test_the_released_self_supervised_model_has_skips_and_no_bias():
    model = SelfSupervisedModel(SelfSupervisedConfig.released(levels=5))
    blocks = list(model.layers)[:8]
    assert [block.residual for block in blocks] == [False] + [True] * 7
    assert {block.activation for block in blocks} == {"relu"}
    assert not any("bias" in name for name, _ in model.named_parameters())
    assert {block.dropout.share for block in blocks} == {0.0}
    assert model.element_dropout == set(range(7))


def test_the_factorized_model_is_the_one_in_the_text():
    """Encoder 220-220-100, the last without activation; decoder of five with two dropouts."""
    model = FactorizedAutoencoder(FactorizedConfig.paper(levels=5))
    layers = list(model.layers)
    assert [layer.out_channels for layer in layers[:3]] == [220, 220, 100]
    assert [block.activation for block in layers[:3]] == ["leaky_relu", "leaky_relu", "identity"]
    assert isinstance(layers[3], FactorLayer)
    assert not list(layers[3].parameters())
    assert layers[3].out_channels == 200
    assert [layer.out_channels for layer in layers[4:]] == [220] * 4 + [5]
    assert [block.dropout.share for block in layers[4:8]] == [0.0, 0.0, 0.5, 0.5]


def test_the_released_factorized_model_maps_each_side():
    model = FactorizedAutoencoder(FactorizedConfig.released(levels=5))
    assert [tuple(weight.shape) for weight in model.layers[3].maps] == [(100, 100)] * 2


def test_factors_of_a_table_it_never_saw_may_differ_in_length_by_axis():
    config = FactorizedConfig(
        1, 1, 3, encoder=(8, 6), decoder=(8,), factor_sizes=(5, 2, 3), maps=True
    )
    model = FactorizedAutoencoder(config).double().eval()
    table = random_array((4, 7, 2), density=0.5)
    assert [tuple(f.shape) for f in model.factors(table)] == [(4, 5), (7, 2), (2, 3)]
    renamed = [torch.randperm(size) for size in table.shape]
    for names, ours, theirs in zip(
        renamed, model.factors(table), model.factors(table.relabel(renamed)), strict=True
    ):
        assert_same(theirs[names], ours)


def test_answers_of_the_factorized_model_come_from_factors_and_pools_of_factors():
    """Two rows with the same factors get the same answers wherever they are asked."""
    model = FactorizedAutoencoder(FactorizedConfig(1, 1, encoder=(8, 4), decoder=(8,))).double()
    twins = ExchangeableArray.of([(0, 0), (1, 0), (2, 1)], [[2.0], [2.0], [1.0]], (3, 3))
    memory = model.eval().condition(twins.to(torch.float64))
    queries = Support.of([(0, 2), (1, 2), (2, 2)], (3, 3))
    first, second, third = model.read(memory, queries)
    assert_same(first, second)
    assert not torch.allclose(first, third)


def literal_models():
    return [
        SelfSupervisedModel(SelfSupervisedConfig(2, 2, width=8, depth=4, literal=True)),
        FactorizedAutoencoder(FactorizedConfig(2, 2, encoder=(8, 4), decoder=(8, 8), literal=True)),
    ]


@pytest.mark.parametrize("model", literal_models())
def test_only_in_the_literal_mode_an_answer_depends_on_what_else_is_asked(model):
    observed = random_array((4, 5), density=0.5, channels=2)
    few, many = Support.of([(0, 0)], (4, 5)), Support.of([(0, 0), (0, 1), (2, 0)], (4, 5))
    literal = model.double().eval()
    assert not torch.allclose(literal(observed, few)[0], literal(observed, many)[0])
    modern = type(model)(type(model.config)(**{**vars(model.config), "literal": False}))
    modern.load_state_dict(literal.state_dict())
    modern.double().eval()
    assert_same(modern(observed, few)[0], modern(observed, many)[0])


@pytest.mark.parametrize("model", literal_models())
def test_the_literal_mode_is_equivariant_and_refuses_to_condition(model):
    model.double().eval()
    asked = Support.of([(0, 0), (3, 4), (2, 1)], (4, 5))

    def complete(x):
        return x.with_values(model(x, x.support))

    assert_equivariant(complete, random_array((4, 5), density=0.5, channels=2))
    with pytest.raises(ValueError, match="literal=True pools over the queries too"):
        model.condition(random_array((4, 5), density=0.5, channels=2))
    assert model(random_array((4, 5), density=0.5, channels=2), asked).shape == (3, 2)


def test_the_literal_self_supervised_model_keeps_hidden_cells_as_zeros():
    """Section 3 of the appendix: mask by setting values to 0, then run the plain layers."""
    model = (
        SelfSupervisedModel(SelfSupervisedConfig(2, 2, width=8, depth=4, literal=True))
        .double()
        .eval()
    )
    everything = random_array((4, 5), density=0.6, channels=2)
    hidden = torch.arange(len(everything)) < 4
    masked = everything.with_values(everything.values * ~hidden[:, None])
    for layer in model.layers:
        masked = layer(masked)
    answers = model(everything.take(~hidden), everything.support.take(hidden))
    assert_same(answers, masked.values[hidden])


def test_the_literal_decoder_pools_over_observed_and_queried_cells():
    model = literal_models()[1].double().eval()
    observed = random_array((4, 5), density=0.5, channels=2)
    asked = Support.of([(0, 0), (3, 4)], (4, 5))
    rows, columns = model.factors(observed)
    known = {tuple(cell) for cell in observed.support.index.tolist()}
    union = sorted(known | {tuple(cell) for cell in asked.index.tolist()})
    n, m = torch.tensor(union).T
    x = ExchangeableArray.of(union, torch.cat([rows[n], columns[m]], dim=1), (4, 5))
    for layer in list(model.layers)[3:]:
        x = layer(x)
    expected = torch.stack([x.values[union.index(tuple(cell))] for cell in asked.index.tolist()])
    assert_same(model(observed, asked), expected)


def test_an_autoencoder_may_be_asked_for_what_it_was_shown():
    for model in literal_models():
        observed = random_array((4, 5), density=0.5, channels=2)
        assert model.double().eval()(observed, observed.support).shape == (len(observed), 2)


def test_features_reach_the_literal_form_and_the_factors():
    observed = random_array((4, 5), density=0.6, channels=2)
    queries = Support.of([(0, 0), (3, 4)], (4, 5))
    rows = torch.randn(4, 3).double()
    sizes = {"features": (3, 0), "literal": True}
    for model in (
        SelfSupervisedModel(SelfSupervisedConfig(2, 2, width=8, depth=3, **sizes)),
        FactorizedAutoencoder(FactorizedConfig(2, 2, encoder=(8, 4), decoder=(8,), **sizes)),
    ):
        model.double().eval()
        answers = model(observed, queries, (rows, None))
        assert not torch.allclose(model(observed, queries, (rows + 1, None)), answers)
    vectors = model.factors(observed, (rows, None))
    assert not torch.allclose(model.factors(observed, (rows + 1, None))[0], vectors[0])


@pytest.mark.parametrize("model", literal_models())
def test_the_generator_decides_what_the_literal_form_drops(model):
    model.double().train()
    observed = random_array((4, 5), density=0.6, channels=2)
    queries = Support.of([(0, 0), (3, 4)], (4, 5))

    def answers(seed):
        return model(observed, queries, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(answers(1), answers(1))
    assert not torch.allclose(answers(1), answers(2))


def elementwise_models():
    return [
        type(model)(type(model.config)(**{**vars(model.config), "elementwise": True}))
        for model in literal_models()
    ]


@pytest.mark.parametrize("model", elementwise_models())
def test_the_literal_form_may_drop_single_elements(model):
    model.double().train()
    observed = random_array((4, 5), density=0.6, channels=2)

    def answers(seed):
        return model(observed, observed.support, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(answers(1), answers(1))
    assert not torch.allclose(answers(1), answers(2))
    kept, x = model.draw_dropout(observed.values, torch.Generator().manual_seed(1)), observed
    for number, layer in enumerate(model.layers):
        x = layer(x)
        if number in model.element_dropout:
            x = x.with_values(drop_elements(x.values, 0.5, kept[number]))
    assert_same(answers(1), x.values)
    model.eval()
    assert torch.equal(answers(1), answers(2))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_elements_are_dropped_one_by_one_and_their_mean_stays(share):
    values, key = torch.ones(4000, 200), torch.tensor([0.3])
    dropped = drop_elements(values, share, key)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - share)])
    out = (dropped == 0).double()
    assert out.mean() == pytest.approx(share, abs=0.003)
    # Rows, channels and pairs of either vary no more than chance has them.
    noise = (share * (1 - share)) ** 0.5
    assert out.mean(dim=0).std() == pytest.approx(noise / 4000**0.5, rel=0.3)
    assert out.mean(dim=1).std() == pytest.approx(noise / 200**0.5, rel=0.1)
    for some in (out[:200], out.T):
        alike = torch.corrcoef(some).fill_diagonal_(0)
        assert alike.square().mean() ** 0.5 == pytest.approx(some.shape[1] ** -0.5, rel=0.1)
    assert torch.equal(drop_elements(values, share, key), dropped)
    other = drop_elements(values, share, torch.tensor([0.31])) == 0
    assert (other & (dropped == 0)).double().mean() == pytest.approx(share**2, abs=0.005)


@pytest.mark.parametrize("model", [*literal_models(), *elementwise_models()])
def test_the_literal_form_is_trained_in_mixed_precision_and_cells_keep_their_order(model):
    table = random_array((6, 5), density=0.8, channels=2, dtype=torch.float32)
    hide = torch.arange(len(table)) % 3 == 0
    seen, asked = table.take(~hide), table.support.take(hide)
    expected = model.eval()(seen, asked)
    assert_same(model.predict_hidden(table, hide), expected, rtol=1e-4)
    itself = Support(seen.support.index.clone(), seen.shape)
    assert_same(model(seen, seen.support), model(seen, itself), rtol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.train().predict_hidden(
            table, hide, generator=torch.Generator().manual_seed(0)
        )
        found = found + model.eval()(seen, asked)
    found.square().mean().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
