"""Jointly exchangeable matrices: fifteen maps, sparse and dense, and what they contain."""

import pytest
import torch
from tests.support.joint import cells_of, fifteen, random_biases, read_written_out
from torch.autograd import gradcheck
from torch.func import functional_call

from exchangeable import (
    ExchangeableArray,
    ExchangeableBlock,
    FactorLayer,
    JointlyExchangeableLinear,
    Support,
)
from exchangeable.testing import assert_equivariant, assert_same, random_array


def joint(channels=2, out=3, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    layer = JointlyExchangeableLinear(channels, out, generator=generator, **options).double()
    random_biases(layer)
    return layer


@pytest.mark.parametrize("density", [0.3, 0.7, 1.0])
def test_the_layer_is_its_fifteen_maps_written_out(density):
    layer, x = joint(), random_array((5, 5), density=density, channels=2)
    cells = cells_of(x)
    expected = read_written_out(layer, cells, cells)
    assert_same(layer(x).values, torch.stack(list(expected.values())))


@pytest.mark.parametrize("tying", ["joint", "paper"])
def test_dense_equals_sparse_on_a_full_matrix(tying):
    layer, x = joint(tying=tying), random_array((5, 5), density=1.0, channels=2)
    assert_same(layer(x.to_dense()), layer(x).to_dense())


@pytest.mark.parametrize("tying", ["joint", "paper"])
@pytest.mark.parametrize("density", [0.2, 0.6, 1.0])
def test_relabelling_both_axes_alike_commutes(tying, density):
    x = random_array((6, 6), density=density, channels=2)
    assert_equivariant(joint(tying=tying), x, joint=True)


def test_relabelling_only_rows_does_not_commute():
    x = random_array((6, 6), density=1.0, channels=2)
    with pytest.raises(AssertionError):
        assert_equivariant(joint(), x)


def test_the_papers_tying_is_the_separate_layer_with_equal_row_and_column_weights():
    layer, x = joint(tying="paper"), torch.randn(4, 4, 2).double()
    own, (whole, line) = layer.own, [term.weights[0] for term in layer.terms]
    expected = x @ own + x.mean((0, 1)) @ whole + layer.bias
    expected = expected + x.mean(1, keepdim=True) @ line + x.mean(0, keepdim=True) @ line
    assert_same(layer(x), expected)


def test_the_papers_tying_maps_a_transposed_matrix_to_the_transposed_answer():
    layer, x = joint(tying="paper"), torch.randn(4, 4, 2).double()
    assert_same(layer(x.transpose(0, 1)), layer(x).transpose(0, 1))


def test_two_layers_on_the_edges_of_a_graph_contain_graph_convolution():
    """Y = D^-1 (A + I) X Theta: average the neighbours' features, the node's own included.

    Cells are the edges and self-loops, and a node's features lie in its loop. The first
    layer lets edge (i, j) read the features of j; the second lets loop (i, i) read the
    mean of its row, which is over its neighbours.
    """
    nodes, size = 7, 3
    adjacency = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(0)) < 0.4
    adjacency = (adjacency | adjacency.T) & ~torch.eye(nodes, dtype=torch.bool)
    features = torch.randn(nodes, size).double()
    theta = torch.randn(size, 2).double()
    edges = (adjacency | torch.eye(nodes, dtype=torch.bool)).nonzero()
    loops = edges[:, 0] == edges[:, 1]
    graph = ExchangeableArray(
        Support(edges, (nodes, nodes)), torch.where(loops[:, None], features[edges[:, 0]], 0.0)
    )
    send, gather = (JointlyExchangeableLinear(size, o, bias=False).double() for o in (size, 2))
    send.zero_weights()
    fifteen(send)[7].copy_(torch.eye(size))  # D_j: what the loop of j holds
    gather.zero_weights()
    fifteen(gather)[11].copy_(theta)  # R_i, on the diagonal only

    out = gather(send(graph))

    with_loops = adjacency.double() + torch.eye(nodes)
    expected = with_loops / with_loops.sum(dim=1, keepdim=True) @ features @ theta
    assert_same(out.values[loops], expected)
    assert (out.values[~loops] == 0).all()


def test_a_queried_cell_reads_what_was_observed_in_its_mirror_image():
    layer = JointlyExchangeableLinear(1, 1, bias=False).double()
    layer.zero_weights()
    fifteen(layer)[1].fill_(1.0)
    x = ExchangeableArray.of([(0, 1), (2, 2)], [[5.0], [7.0]], (3, 3)).to(torch.float64)
    cells = x.support.joint
    asked = Support.of([(1, 0), (0, 1), (2, 2), (2, 0)], (3, 3)).indexed_by(cells.group_index)
    y = layer.read(torch.zeros(4, 1).double(), asked, layer.readout(layer.write(x.values, cells)))
    assert y.flatten().tolist() == [5.0, 0.0, 7.0, 0.0]


@pytest.mark.parametrize("tying", ["joint", "paper"])
@pytest.mark.parametrize("dense", [False, True])
def test_gradients_are_right(tying, dense):
    layer, x = joint(tying=tying), random_array((4, 4), density=1.0 if dense else 0.5, channels=2)

    names = [name for name, _ in layer.named_parameters()]

    def run(values, *weights):
        array = values if dense else x.with_values(values)
        y = functional_call(layer, dict(zip(names, weights, strict=True)), (array,))
        return y if dense else y.values

    start = (x.to_dense() if dense else x.values).requires_grad_()
    weights = [w.detach().clone().requires_grad_() for w in layer.parameters()]
    assert gradcheck(run, (start, *weights))


def test_no_cells_at_all_give_an_empty_answer():
    assert joint()(ExchangeableArray.of([], torch.zeros(0, 2).double(), (3, 3))).values.shape == (
        0,
        3,
    )


def test_a_set_without_members_gives_an_empty_matrix():
    assert joint()(torch.zeros(0, 0, 2).double()).shape == (0, 0, 3)
    assert len(joint()(ExchangeableArray.of([], torch.zeros(0, 2).double(), (0, 0)))) == 0


def test_a_joint_layer_may_stand_in_a_block():
    block = ExchangeableBlock(joint(2, 2), norm=True, residual=True, dropout=0.5).double()
    x = random_array((5, 5), density=0.5, channels=2)
    assert_equivariant(block.eval(), x, joint=True)
    dense = random_array((5, 5), density=1.0, channels=2).to_dense()
    names = torch.randperm(5)
    assert_same(block(dense[names][:, names]), block(dense)[names][:, names])


def test_poolings_beside_the_mean_and_counts_are_equivariant_too():
    layer = joint(4, 4, pooling=("mean", "sum", "max", "attention"), counts=True, heads=2)
    for density in (0.1, 0.6):
        assert_equivariant(layer, random_array((6, 6), density=density, channels=4), joint=True)


def test_a_layer_reads_whether_the_mirrored_cell_was_observed():
    layer = joint(1, 1, counts=True)
    layer.zero_weights()
    layer.terms[-1].weights[1].data.fill_(1.0)  # of the pair's count
    layer.bias.data.zero_()
    layer.diagonal_bias.data.zero_()
    x = ExchangeableArray.of([(0, 1), (1, 0), (0, 2)], [[0.0], [0.0], [5.0]], (3, 3))
    y = layer(x.to(torch.float64)).values.flatten()
    assert y[0] == y[1] != y[2]


def test_least_squares_is_no_pooling_of_a_joint_layer():
    with pytest.raises(ValueError, match="'least_squares' is among its poolings"):
        JointlyExchangeableLinear(2, 2, pooling=("mean", "least_squares"))


@pytest.mark.parametrize("maps", [False, True])
def test_a_member_of_a_joint_table_has_factors_of_its_row_and_its_column(maps):
    x = ExchangeableArray.of([(0, 1), (0, 2), (2, 1)], [[1.0, 2.0], [3.0, 4.0], [6.0, 0.0]], (4, 4))
    layer = FactorLayer(2, (2, 2), maps=maps, joint=True)
    rows = torch.tensor([[2.0, 3.0], [0.0, 0.0], [6.0, 0.0], [0.0, 0.0]])
    columns = torch.tensor([[0.0, 0.0], [3.5, 1.0], [3.0, 4.0], [0.0, 0.0]])
    expected = [torch.tensor([[2.0, 3.0], [3.5, 1.0], [4.5, 2.0], [0.0, 0.0]])] * 2
    if maps:
        expected = [torch.cat([rows, columns], dim=1) @ weight for weight in layer.maps]
    for ours, wanted in zip(layer.factors(layer.write(x.values, x.support)), expected, strict=True):
        assert_same(ours, wanted, rtol=1e-6)
