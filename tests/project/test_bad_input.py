"""What is wrong is refused in one line that says what was needed and what came."""

import numpy as np
import pytest
import scipy.sparse
import torch

from exchangeable import (
    ChannelDropout,
    ExchangeableArray,
    ExchangeableBlock,
    ExchangeableLinear,
    FactorizedAutoencoder,
    FactorizedConfig,
    FactorLayer,
    JointlyExchangeableLinear,
    ResidualConfig,
    ResidualModel,
    SelfSupervisedConfig,
    Support,
)
from exchangeable.arrays.grid import Grid
from exchangeable.testing import assert_same, random_array

CELLS, VALUES, SHAPE = [(0, 0), (1, 2)], [[1.0], [2.0]], (2, 3)


def array(cells=CELLS, values=VALUES, shape=SHAPE):
    return ExchangeableArray.of(cells, values, shape)


def model(**options):
    return ResidualModel(ResidualConfig(1, 1, width=8, depth=2, heads=2, **options)).eval()


def layer(**options):
    return ExchangeableLinear(1, 2, order=2, **options)


def memory():
    return model().condition(array())


def uncoalesced():
    return torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3), check_invariants=True)


BAD = {
    "an index of three columns for two axes": (
        lambda: array([(0, 0, 0)], [[1.0]]),
        r"index must have shape \(E, 2\), .* but has shape \(1, 3\)",
    ),
    "a flat index": (lambda: array([0, 1]), r"index must have shape .* but has shape \(2,\)"),
    "a fractional index": (lambda: array([(0.0, 1.5)]), "must hold integers, .* torch.float32"),
    "a boolean index": (lambda: array([(True, False)]), "must hold integers, but holds torch.bool"),
    "int32 behind the converter's back": (
        lambda: Support(torch.zeros(1, 2, dtype=torch.int32), (2, 3)),
        "index must be torch.int64, but is torch.int32",
    ),
    "a negative index": (
        lambda: array([(0, 0), (-1, 2)]),
        "axis 0 must be at least 0 and below 2, but entry 1 holds -1",
    ),
    "an index past the end": (
        lambda: array([(0, 0), (1, 3)]),
        "axis 1 must be at least 0 and below 3, but entry 1 holds 3",
    ),
    "a cell of an axis without members": (
        lambda: array([(0, 0)], [[1.0]], (0, 3)),
        "axis 0 must be at least 0 and below 0, but entry 0 holds 0",
    ),
    "a cell that comes twice": (
        lambda: array([(0, 1), (0, 0), (0, 1), (0, 0)], [[1.0]] * 4),
        r"every cell may come once, but \(0, 1\) comes again at entry 2",
    ),
    "twice in a scipy matrix": (
        lambda: ExchangeableArray.from_scipy(
            scipy.sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 3))
        ),
        r"\(0, 1\) comes again at entry 1",
    ),
    "twice in a torch sparse tensor": (
        lambda: ExchangeableArray.from_torch_sparse(uncoalesced()),
        r"\(0, 1\) comes again at entry 1",
    ),
    "not a number": (
        lambda: array(values=[[1.0], [float("nan")]]),
        r"values must be finite, but entry 1, cell \(1, 2\), holds \[nan\]",
    ),
    "infinity": (
        lambda: array(values=[[float("-inf")], [1.0]]),
        r"values must be finite, but entry 0, cell \(0, 0\), holds \[-inf\]",
    ),
    "not a number in other values": (
        lambda: array().with_values(torch.tensor([[1.0], [float("nan")]])),
        "values must be finite, but entry 1",
    ),
    "not a number in a dense array": (
        lambda: ExchangeableArray.from_dense(torch.full((2, 2, 1), float("nan"))),
        r"values must be finite, but entry 0, cell \(0, 0\)",
    ),
    "fewer values than cells": (
        lambda: array(values=[[1.0]]),
        r"values must have shape \(E, K\) with E=2, .* but have shape \(1, 1\)",
    ),
    "values without channels": (
        lambda: array(values=[1.0, 2.0]),
        r"values must have shape .* but have shape \(2,\)",
    ),
    "other values of another length": (
        lambda: array().with_values(torch.zeros(3, 1)),
        r"with E=2, .* but have shape \(3, 1\)",
    ),
    "whole numbers as values": (
        lambda: ExchangeableArray(Support.of(CELLS, SHAPE), torch.ones(2, 1, dtype=torch.int64)),
        "must be floating-point numbers, but are torch.int64",
    ),
    "complex values": (
        lambda: array(values=np.array([[1j], [2j]])),
        "must be floating-point numbers, but are torch.complex128",
    ),
    "values on another device": (
        lambda: ExchangeableArray(Support.of(CELLS, SHAPE), torch.zeros(2, 1, device="meta")),
        "must be on one device, but are on meta and cpu",
    ),
    "a negative size": (lambda: array(shape=(2, -3)), r"size of 0 or more .* is \(2, -3\)"),
    "a fractional size": (lambda: array(shape=(2.5, 3)), r"but is \(2.5, 3\)"),
    "no axes": (lambda: Support.of([], ()), r"but is \(\)"),
    "a dense array without axes": (
        lambda: ExchangeableArray.from_dense(torch.zeros(3)),
        r"dense must have shape \(N_1, ..., N_D, K\), but has shape \(3,\)",
    ),
    "a mask of numbers": (
        lambda: ExchangeableArray.from_dense(torch.zeros(2, 2, 1), torch.ones(2, 2)),
        r"observed must be a mask of shape \(2, 2\), but is torch.float32",
    ),
    "a mask of another shape": (
        lambda: ExchangeableArray.from_dense(torch.zeros(2, 2, 1), torch.ones(2, 3).bool()),
        r"observed must be a mask of shape \(2, 2\), but is torch.bool of shape \(2, 3\)",
    ),
    "two dense dimensions": (
        lambda: ExchangeableArray.from_torch_sparse(torch.ones(2, 2, 2).to_sparse(1)),
        "may have one dense dimension, but has 2",
    ),
    "groups on an axis that is not there": (
        lambda: Support.of(CELLS, SHAPE).groups((0, 2)),
        r"lie between 0 and 1, but are \(0, 2\)",
    ),
    "groups on axes in disorder": (
        lambda: Grid((2, 3), torch.device("cpu")).groups((1, 0)),
        r"axes must ascend .* but are \(1, 0\)",
    ),
    "more pairs than can be numbered": (
        lambda: Support.of([(0, 0, 0)], (2**32, 2**32, 1)).groups((0, 1)),
        r"must make fewer than 2\^63 combinations, but make 1.8e\+19",
    ),
    "values as words": (
        lambda: array(values=np.array([["a"], ["b"]])),
        "values must hold numbers, but holds <U1",
    ),
    "values as objects": (
        lambda: array(values=np.array([[None], [1]])),
        "values must hold numbers, but holds object",
    ),
    "ragged values": (
        lambda: array(values=[[1.0], [2.0, 3.0]]),
        "values must be a tensor, or numbers in lists of equal length, but is a list",
    ),
    "nothing as an index": (lambda: array(cells=None), "index must be a tensor, .* is a NoneType"),
    "an index beyond 64 bits": (
        lambda: array(np.array([[0, 2**63 + 1]], dtype=np.uint64), [[1.0]]),
        "index must fit in 64 bits with a sign, but holds 9223372036854775809",
    ),
    "an index of no columns": (
        lambda: array(np.zeros((5, 0), int), np.zeros((5, 1))),
        r"must have shape \(E, 2\), .* but has shape \(5, 0\)",
    ),
    "a dense array called scipy sparse": (
        lambda: ExchangeableArray.from_scipy(np.eye(2)),
        "must be a scipy sparse array, but is a numpy.ndarray",
    ),
    "a dense tensor called sparse": (
        lambda: ExchangeableArray.from_torch_sparse(torch.eye(2)),
        "must be a torch sparse tensor, but is a torch.Tensor",
    ),
    "too narrow a type": (
        lambda: array(values=[[1e6], [1.0]]).to(torch.float16),
        r"values must be finite, but entry 0, cell \(0, 0\), holds \[inf\]",
    ),
    "values turned into whole numbers": (
        lambda: array().to(torch.int64),
        "must be floating-point numbers, but are torch.int64",
    ),
    "a mask of too few cells": (
        lambda: array().take(torch.tensor([True])),
        r"positions \(int64\) or a mask \(bool\) of 2 cells, but are torch.bool of shape \(1,\)",
    ),
    "positions in a list": (lambda: array().take([0]), "of 2 cells, but are a list"),
    "a position past the end": (
        lambda: array().take(torch.tensor([0, 2])),
        "positions must be at least 0 and below 2, but one is 2",
    ),
    "a negative position": (
        lambda: array().take(torch.tensor([-1])),
        "positions must be at least 0 and below 2, but one is -1",
    ),
    "a relabelling that merges members": (
        lambda: array().relabel([torch.tensor([0, 0]), torch.arange(3)]),
        r"takes a permutation of 2 members, but tensor\(\[0, 0\]\) came",
    ),
    "a relabelling of too few members": (
        lambda: array().relabel([torch.arange(2), torch.arange(2)]),
        "takes a permutation of 3 members",
    ),
    "a relabelling of too few axes": (
        lambda: array().relabel([torch.arange(2)]),
        "a permutation for each of 2 axes, but 1 came",
    ),
    "not a number in a plain tensor": (
        lambda: layer()(torch.full((2, 3, 1), float("nan"))),
        r"values must be finite, but cell \(0, 0\) holds \[nan\]",
    ),
    "features as one tensor": (
        lambda: layer(features=(3, 0))(array(), features=torch.zeros(2, 3)),
        r"features must have shapes \[\(2, 3\), None\]",
    ),
    "a negative number of features": (
        lambda: layer(features=(-1, 0)),
        r"a number for each of the 2 axes, but are \(-1, 0\)",
    ),
    "gated units of an odd width": (
        lambda: ExchangeableBlock(ExchangeableLinear(1, 5, order=2), activation="gated"),
        "take channels in pairs, but 5 came",
    ),
    "single elements dropped in another form": (
        lambda: FactorizedConfig(1, 1, elementwise=True),
        "single elements are dropped with literal=True only",
    ),
    "gated units in a model of the paper": (
        lambda: SelfSupervisedConfig(1, 1, activation="gated"),
        "plain activations, but activation is 'gated'",
    ),
    "a joint layer without channels": (
        lambda: JointlyExchangeableLinear(0, 2),
        "must be 1 or more, .*in_channels=0",
    ),
    "features for a joint layer": (
        lambda: JointlyExchangeableLinear(1, 1)(
            random_array((3, 3), dtype=torch.float32), features=(torch.zeros(3, 1), None)
        ),
        "features must have shapes",
    ),
    "a share of more than all": (
        lambda: SelfSupervisedConfig(1, 1, dropout=7),
        r"dropout must be in \[0, 1\), but is 7",
    ),
    "a width that is no whole number": (
        lambda: ResidualConfig(1, 1, width=8.5),
        "width must be a whole number, but is 8.5",
    ),
    "a negative width": (
        lambda: ResidualConfig(1, 1, width=-8),
        "width must be a whole number of 1 or more, but is -8",
    ),
    "factors of no length": (
        lambda: FactorizedConfig(1, 1, factor_sizes=(0, 5), maps=True),
        "factor_sizes must be a whole number of 1 or more, but is 0",
    ),
    "a layer of no factors": (
        lambda: FactorLayer(4, (), maps=True),
        r"must be 1 or more, but are 4 and \(\)",
    ),
    "a memory of another model": (
        lambda: ResidualModel(ResidualConfig.small(1, 1)).read(
            memory(), Support.of([(0, 0)], (2, 3))
        ),
        "from a model of 5 layers as this one, but holds the pools of 3",
    ),
    "literal queries of another table": (
        lambda: FactorizedAutoencoder(FactorizedConfig.paper(1))(
            array(), Support.of([(5, 0)], (6, 3))
        ),
        r"shape \(2, 3\) .* but are of one of shape \(6, 3\)",
    ),
    "an impossible density": (
        lambda: random_array((2, 2), density=2.0),
        "density must be between 0 and 1, but is 2.0",
    ),
    "an array of another order": (
        lambda: layer()(random_array((2, 3, 2), dtype=torch.float32)),
        r"for arrays of order 2, but this one has shape \(2, 3, 2\)",
    ),
    "a tensor of another order": (
        lambda: layer()(torch.zeros(2, 3, 2, 1)),
        r"for arrays of order 2, but this one has shape \(2, 3, 2\)",
    ),
    "other channels": (
        lambda: layer()(random_array((2, 3), channels=4, dtype=torch.float32)),
        "takes 1 channels, but the array has 4",
    ),
    "another precision": (
        lambda: layer()(random_array((2, 3))),
        "values must be torch.float32 on cpu .* but are torch.float64 on cpu",
    ),
    "another device": (
        lambda: layer().to("meta")(array()),
        "values must be torch.float32 on meta .* but are torch.float32 on cpu",
    ),
    "a layer of order 0": (
        lambda: ExchangeableLinear(1, 1, order=0),
        "must be 1 or more, but are order=0",
    ),
    "a layer without channels": (
        lambda: ExchangeableLinear(0, 1, order=2),
        "must be 1 or more, .*in_channels=0",
    ),
    "an unknown pooling": (
        lambda: layer(pooling=["median"]),
        "pooling must be one of mean, sum, max, attention, least_squares, but is 'median'",
    ),
    "a pooling that is a word": (lambda: layer(pooling="mean"), "tuple of .* but is 'mean'"),
    "no pooling": (lambda: layer(pooling=[]), r"one name or more, but is \[\]"),
    "heads that do not divide": (
        lambda: ExchangeableLinear(6, 2, order=2, pooling=["attention"], heads=4),
        "heads must divide the 6 channels, but are 4",
    ),
    "a regression on nothing": (
        lambda: layer(pooling=["least_squares"], rank=0),
        "heads and rank must be 1 or more, but are 1 and 0",
    ),
    "features for too few axes": (
        lambda: layer(features=(3,)),
        r"a number for each of the 2 axes, but are \(3,\)",
    ),
    "features that were not announced": (
        lambda: layer()(array(), features=(torch.zeros(2, 3), None)),
        r"must have shapes \[None, None\], .* but have \[\(2, 3\), None\]",
    ),
    "features that did not come": (
        lambda: layer(features=(3, 0))(array()),
        r"must have shapes \[\(2, 3\), None\], .* but have \[None, None\]",
    ),
    "features of too few members": (
        lambda: layer(features=(3, 0))(array(), features=(torch.zeros(1, 3), None)),
        r"must have shapes \[\(2, 3\), None\], .* but have \[\(1, 3\), None\]",
    ),
    "features of another precision": (
        lambda: layer(features=(3, 0))(array(), features=(torch.zeros(2, 3).double(), None)),
        "features of axis 0 must be torch.float32 on cpu .* but are torch.float64",
    ),
    "features that are not numbers": (
        lambda: layer(features=(1, 0))(
            array(), features=(torch.tensor([[0.0], [float("nan")]]), None)
        ),
        r"features must be finite, but member 1 of axis 0 has \[nan\]",
    ),
    "dropping everything": (lambda: ChannelDropout(1.0), r"must be in \[0, 1\), but is 1.0"),
    "a residual between other widths": (
        lambda: ExchangeableBlock(layer(), residual=True),
        "as many channels out as in, but they are 2 and 1",
    ),
    "an unknown activation": (
        lambda: ExchangeableBlock(layer(), activation="tanh"),
        "must be one of identity, relu, leaky_relu, gated, but is 'tanh'",
    ),
    "a joint layer on a rectangle": (
        lambda: JointlyExchangeableLinear(1, 1)(array()),
        r"as many rows as columns, but this one has shape \(2, 3\)",
    ),
    "an unknown tying": (
        lambda: JointlyExchangeableLinear(1, 1, tying="none"),
        "tying must be one of joint, paper, but is 'none'",
    ),
    "factor sizes without maps": (
        lambda: FactorLayer(4, (4, 2), maps=False),
        r"has the 4 channels that are pooled, but sizes are \(4, 2\)",
    ),
    "factor sizes for too few axes": (
        lambda: FactorizedAutoencoder(FactorizedConfig(1, 1, factor_sizes=(4,), maps=True)),
        r"one length for each of 2 axes, but are \(4,\)",
    ),
    "an encoder without layers": (
        lambda: FactorizedConfig(1, 1, encoder=()),
        r"must have a layer or more, but are \(\)",
    ),
    "a self-supervised model of one layer": (
        lambda: SelfSupervisedConfig(1, 1, depth=1),
        "depth must be 2 or more, but is 1",
    ),
    "a residual model of none": (
        lambda: ResidualConfig(1, 1, depth=0),
        "depth must be a whole number of 1 or more, but is 0",
    ),
    "a model's wrong channels": (
        lambda: model().condition(array(values=[[1.0, 2.0]] * 2)),
        "takes 1 channels, but the array has 2",
    ),
    "queries of another order": (
        lambda: model().read(memory(), Support.of([(0,)], (2,))),
        r"cells of the table of shape \(2, 3\) .* but are of one of shape \(2,\)",
    ),
    "queries of members never added": (
        lambda: model().read(memory(), Support.of([(5, 0)], (6, 3))),
        r"shape \(2, 3\) .* but are of one of shape \(6, 3\); extend the memory",
    ),
    "queries on another device": (
        lambda: model().to("meta").read(memory(), Support.of([(0, 0)], (2, 3))),
        "queries must be on meta, as the model is, but are on cpu",
    ),
    "chunks of nothing": (
        lambda: model().read(memory(), Support.of([(0, 0)], (2, 3)), chunk_size=0),
        "chunk_size must be 1 or more, but is 0",
    ),
    "a memory extended by a smaller array": (
        lambda: model().extend(memory(), array([(0, 0)], [[1.0]], (1, 3))),
        r"at least as large .* \(2, 3\), but come in one of shape \(1, 3\)",
    ),
    "a memory extended by another order": (
        lambda: model().extend(memory(), array([(0,)], [[1.0]], (5,))),
        r"\(2, 3\), but come in one of shape \(5,\)",
    ),
    "new members without the features that others have": (
        lambda: model(features=(2, 0)).extend(
            model(features=(2, 0)).condition(array(), (torch.zeros(2, 2), None)),
            array([(2, 0)], [[1.0]], (3, 3)),
        ),
        r"must have shapes \[\(3, 2\), None\], .* but have \[\(2, 2\), None\]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(case):
    wrong, message = BAD[case]
    with pytest.raises(ValueError, match=message) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_queries_in_a_list_are_refused():
    with pytest.raises(TypeError, match="queries must be a Support, but are a list"):
        model().read(memory(), [(0, 0)])


def test_infinite_answers_are_not_the_same():
    with pytest.raises(AssertionError, match="values must be finite"):
        assert_same(torch.tensor([torch.inf, 1.0]), torch.tensor([torch.inf, 2.0]))
