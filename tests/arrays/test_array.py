"""Arrays keep what they are given, refuse what is wrong, and convert without loss."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from exchangeable import ExchangeableArray, Support
from exchangeable.arrays.groups import proper_subsets
from exchangeable.testing import random_array

SHAPES = [(5,), (4, 3), (3, 4, 2), (2, 3, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_dense_and_back(shape, density):
    array = random_array(shape, density=density, channels=2)
    observed = torch.zeros(shape, dtype=torch.bool)
    observed[tuple(array.support.index.T)] = True

    again = ExchangeableArray.from_dense(array.to_dense(), observed)

    assert len(again) == len(array)
    assert torch.equal(again.to_dense(fill=-7.0), array.to_dense(fill=-7.0))


@pytest.mark.parametrize("shape", SHAPES)
def test_torch_sparse_and_back(shape):
    array = random_array(shape, channels=3)
    sparse = array.to_torch_sparse()
    assert torch.equal(sparse.to_dense(), array.to_dense())
    assert torch.equal(ExchangeableArray.from_torch_sparse(sparse).to_dense(), array.to_dense())
    assert torch.equal(
        ExchangeableArray.from_torch_sparse(sparse.coalesce()).to_dense(), array.to_dense()
    )


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_torch_sparse_without_channels_and_in_rows():
    matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for sparse in (matrix.to_sparse_coo(), matrix.to_sparse_csr()):
        array = ExchangeableArray.from_torch_sparse(sparse)
        assert array.shape == (2, 2)
        assert array.values.tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize("shape", SHAPES)
def test_scipy_and_back(shape):
    array = random_array(shape)
    again = ExchangeableArray.from_scipy(array.to_scipy())
    assert torch.equal(again.to_dense(), array.to_dense())


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_matrix", "lil_matrix"])
def test_scipy_of_every_kind(kind):
    matrix = getattr(scipy.sparse, kind)(np.array([[0, 2, 0], [3, 0, 4]]))
    array = ExchangeableArray.from_scipy(matrix)
    assert array.to_dense().squeeze(-1).tolist() == [[0, 2, 0], [3, 0, 4]]


def test_a_stored_zero_is_an_observed_zero():
    matrix = scipy.sparse.coo_array(([0.0, 5.0], ([0, 1], [1, 0])), shape=(2, 2))
    assert len(ExchangeableArray.from_scipy(matrix)) == 2
    assert ExchangeableArray.from_scipy(matrix).to_scipy().nnz == 2


def test_one_channel_of_several_goes_to_scipy():
    array = ExchangeableArray.of([[0, 1]], [[3.0, 4.0]], (1, 2))
    assert array.to_scipy(channel=1).toarray().tolist() == [[0.0, 4.0]]
    with pytest.raises(ValueError, match=r"channel must be given, since there are 2"):
        array.to_scipy()


@pytest.mark.parametrize("shape", SHAPES)
def test_empty_arrays_and_single_cells_are_legal(shape):
    empty = ExchangeableArray.of([], [], shape)
    assert (len(empty), empty.channels, empty.shape) == (0, 1, shape)
    lonely = ExchangeableArray.of([[0] * len(shape)], [[1.5]], shape)
    assert lonely.to_dense().sum() == 1.5


def test_an_axis_may_have_no_members():
    nothing = ExchangeableArray.of([], [], (0, 3))
    assert nothing.to_dense().shape == (0, 3, 1)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64])
def test_indices_of_any_integer_type_become_int64(dtype):
    array = ExchangeableArray.of(np.array([[1, 2]], dtype), np.array([[3]]), (2, 3))
    assert array.support.index.dtype == torch.int64
    assert array.values.dtype == torch.get_default_dtype()


def test_values_keep_their_precision():
    assert ExchangeableArray.of([[0]], np.array([[0.1]]), (1,)).values.dtype == torch.float64


def test_repr_says_what_there_is():
    assert repr(random_array((10, 200), density=1.0)) == (
        "ExchangeableArray(10 x 200, 2,000 cells, 1 channel)"
    )
    assert repr(Support.of([(0, 0)], (1, 1_000))) == "Support(1 x 1,000, 1 cell)"


def test_take_by_position_and_by_mask():
    array = random_array((3, 3), density=1.0)
    first = array.take(torch.tensor([4, 2]))
    assert torch.equal(first.values, array.values[[4, 2]])
    mask = torch.zeros(9, dtype=torch.bool)
    mask[[2, 4]] = True
    assert torch.equal(array.take(mask).support.index, array.support.index[[2, 4]])
    with pytest.raises(ValueError, match="comes again at entry 1"):
        array.take(torch.tensor([4, 4]))


def test_relabel_moves_every_value_to_the_cell_of_its_new_names():
    array = random_array((2, 3), density=1.0)
    moved = array.relabel([torch.tensor([1, 0]), torch.tensor([2, 0, 1])])
    assert torch.equal(moved.to_dense()[1, 2], array.to_dense()[0, 0])
    assert torch.equal(moved.to_dense()[0, 0], array.to_dense()[1, 1])


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_are_the_cells_that_agree(shape):
    """For every subset: same group exactly where the coordinates on it are the same."""
    support = random_array(shape, density=0.6).support
    for axes in [*proper_subsets(len(shape)), tuple(range(len(shape)))]:
        ids, kept = support.groups(axes).ids, support.index[:, list(axes)]
        agree = (kept[:, None] == kept[None]).all(dim=-1)
        assert torch.equal(ids[:, None] == ids[None], agree)
        assert ids.max() < support.groups(axes).number


def test_a_group_per_member_even_without_cells():
    support = Support.of([(0, 2)], (4, 3))
    assert support.groups((0,)).number == 4
    assert support.groups((0,)).sizes.tolist() == [1, 0, 0, 0]


def test_pairs_are_as_many_as_occur_and_one_that_is_empty():
    support = Support.of([(0, 1, 0), (0, 1, 1), (2, 3, 0)], (1_000_000, 1_000_000, 5))
    pairs = support.groups((0, 1))
    assert pairs.number == 3
    assert sorted(pairs.sizes.tolist()) == [0, 1, 2]
    queries = Support.of([(2, 3, 4), (7, 7, 7 % 5)], support.shape)
    ids = queries.indexed_by(support.group_index).groups((0, 1)).ids
    assert ids[0] == pairs.ids[2]
    assert pairs.sizes[ids[1]] == 0


def test_find_says_where_a_cell_is_stored():
    support = Support.of([(1, 1), (0, 2), (0, 0)], (2, 3))
    assert support.find(torch.tensor([[0, 0], [1, 1], [1, 2]])).tolist() == [2, 0, 3]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_the_first_repeat_is_the_first_in_storage(cells):
    seen, expected = set(), None
    for position, cell in enumerate(cells):
        if cell in seen:
            expected = position
            break
        seen.add(cell)
    assert Support.of(cells, (4, 3)).first_repeat == expected


def test_arrays_with_more_cells_than_int64_can_number_are_legal():
    shape = (10**6,) * 4
    array = ExchangeableArray.of([(0, 1, 2, 3), (0, 1, 2, 4)], [[1.0], [2.0]], shape)
    assert array.support.groups((0, 1, 2)).number == 2


def test_arrays_cannot_be_reassigned():
    array = random_array((2, 2))
    with pytest.raises(AttributeError):
        array.values = array.values * 2
    with pytest.raises(AttributeError):
        array.support.shape = (3, 3)


def test_to_another_type_keeps_the_cells():
    array = random_array((3, 3)).to(torch.float32)
    assert array.values.dtype == torch.float32
    assert array.to("cpu").support.index.device.type == "cpu"


def test_an_array_stays_as_it_is_whatever_becomes_of_its_source():
    for kind in (np.array, torch.tensor):
        index, values = kind([[0, 0], [1, 2]]), kind([[1.0], [2.0]])
        array = ExchangeableArray.of(index, values, (2, 3))
        index[1], values[0] = 0, float("nan")
        assert array.support.index.tolist() == [[0, 0], [1, 2]]
        assert array.values.tolist() == [[1.0], [2.0]]


def test_numpy_arrays_may_be_read_only_or_reversed():
    index = np.array([[0, 0], [1, 2]])
    index.setflags(write=False)
    assert len(ExchangeableArray.of(index, np.array([[1.0], [2.0]])[::-1], (2, 3))) == 2


def test_dense_numbers_may_come_from_numpy_or_be_whole():
    array = ExchangeableArray.from_dense(np.arange(6).reshape(2, 3, 1))
    assert array.values.dtype == torch.get_default_dtype()
    assert len(ExchangeableArray.from_dense(np.ones((2, 3, 1)), np.eye(2, 3, dtype=bool))) == 2


def test_gradients_pass_through_torch_sparse():
    values = torch.tensor([2.0, 3.0], requires_grad=True)
    index = [[0, 1], [1, 0]]
    sparse = torch.sparse_coo_tensor(index, values, (2, 2), check_invariants=True)
    ExchangeableArray.from_torch_sparse(sparse).values.sum().backward()
    assert values.grad.tolist() == [1.0, 1.0]
