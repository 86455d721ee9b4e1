"""Every pooling equals a slow loop over its definition, in float64, on lists and grids of cells."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from exchangeable import Support
from exchangeable.arrays.grid import Grid
from exchangeable.arrays.groups import Groups, proper_subsets
from exchangeable.nn import pooling
from exchangeable.nn.pools import LeastSquaresPool
from exchangeable.testing import assert_same, random_array

SHAPES = [(5,), (4, 3), (3, 4, 2), (2, 3, 2, 2)]
PRIOR = torch.tensor([[0.7, 1.3], [2.0, 0.4]], dtype=torch.float64)  # (H, F)
NOISE = torch.tensor([1.7, 0.6], dtype=torch.float64)  # (H,)


def members(array, axes):
    """The groups written out: coordinates on ``axes`` -> positions of the cells, empty ones too."""
    found = {}
    if len(axes) <= 1:
        found = {key: [] for key in product(*(range(array.shape[axis]) for axis in axes))}
    for position, cell in enumerate(array.support.index.tolist()):
        found.setdefault(tuple(cell[axis] for axis in axes), []).append(position)
    return found


def slow_mean(x, rows):
    return sum((x[row] for row in rows), torch.zeros(x.shape[1], dtype=x.dtype)) / max(len(rows), 1)


def slow_max(x, rows):
    if not rows:
        return torch.zeros(x.shape[1], dtype=x.dtype)
    return torch.stack([max(x[row, k] for row in rows) for k in range(x.shape[1])])


def slow_attention(x, scores, rows):
    """Head h of two takes its half of the four channels."""
    out = torch.zeros(4, dtype=x.dtype)
    for channel in range(4) if rows else ():
        weights = torch.softmax(torch.stack([scores[row, channel // 2] for row in rows]), dim=0)
        for weight, row in zip(weights, rows, strict=True):
            out[channel] += weight * x[row, channel]
    return out


def slow_ridge(features, targets, rows, head):
    """Normal equations of one group and head, by an explicit inverse."""
    precision = torch.diag(PRIOR[head])
    right = torch.zeros(2, dtype=torch.float64)
    for row in rows:
        f = features[row, head]
        precision = precision + NOISE[head] * torch.outer(f, f)
        right = right + NOISE[head] * targets[row, head] * f
    covariance = torch.linalg.inv(precision)
    return covariance @ right, covariance


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
def test_every_pooling_equals_its_definition(shape, density):
    x = random_array(shape, density=density, channels=4)
    scores = random_array(shape, density=density, channels=2, seed=0).values * 3
    features = torch.stack([x.values[:, :2], x.values[:, 2:]], dim=1)  # (E, H, F)
    for axes in proper_subsets(len(shape)):
        groups = x.support.groups(axes)
        mean = pooling.pool_mean(x.values, groups)
        total = pooling.pool_sum(x.values, groups)
        most = pooling.pool_max(x.values, groups)
        attended = pooling.pool_attention(x.values, scores, groups)
        solution, covariance = pooling.pool_least_squares(features, scores, groups, PRIOR, NOISE)
        for key, rows in members(x, axes).items():
            at = groups.ids[rows[0]] if rows else sum(key)
            assert groups.sizes[at] == len(rows)
            assert_same(mean[at], slow_mean(x.values, rows))
            assert_same(total[at], slow_mean(x.values, rows) * len(rows))
            assert_same(most[at], slow_max(x.values, rows))
            assert_same(attended[at], slow_attention(x.values, scores, rows))
            for head in (0, 1):
                w, cov = slow_ridge(features, scores, rows, head)
                assert_same(solution[at, head], w, 1e-9)
                assert_same(covariance[at, head], cov, 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_grid_pools_as_the_list_of_all_its_cells(shape):
    x = random_array(shape, density=1.0, channels=4)
    scores, dense = x.values[:, :2] * 2, x.to_dense()
    grid, order = Grid(shape, dense.device), tuple(x.support.index.T)
    for axes in proper_subsets(len(shape)):
        listed, slices = x.support.groups(axes), grid.groups(axes)
        for pool in (pooling.pool_mean, pooling.pool_sum, pooling.pool_max):
            full = pool(dense, slices).expand(*shape, 4)[order]
            assert_same(full, pooling.unpool(pool(x.values, listed), listed))
        full = pooling.pool_attention(dense, dense[..., :2] * 2, slices).expand(*shape, 4)[order]
        expected = pooling.pool_attention(x.values, scores, listed)
        assert_same(full, pooling.unpool(expected, listed))


def test_an_empty_group_gives_zero_and_least_squares_gives_the_prior():
    groups = Support.of([(0, 0)], (2, 3)).groups((0,))
    one = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    for pool in (pooling.pool_mean, pooling.pool_sum, pooling.pool_max):
        assert pool(one, groups).tolist() == [[2.0, -3.0], [0.0, 0.0]]
    assert pooling.pool_attention(one, one, groups).tolist() == [[2.0, -3.0], [0.0, 0.0]]
    features = one.reshape(1, 1, 2).expand(1, 2, 2)
    solution, covariance = pooling.pool_least_squares(features, one, groups, PRIOR, NOISE)
    assert torch.equal(solution[1], torch.zeros(2, 2, dtype=torch.float64))
    assert_same(covariance[1], torch.diag_embed(1 / PRIOR))


def test_the_max_of_negative_values_is_negative():
    groups = Support.of([(0,), (1,)], (2,)).groups(())
    assert pooling.pool_max(torch.tensor([[-2.0], [-5.0]]), groups).item() == -2.0


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_attention_survives_huge_scores(size):
    groups = Support.of([(0,), (1,)], (2,)).groups(())
    values = torch.tensor([[1.0], [3.0]], requires_grad=True)
    scores = torch.tensor([[size], [size + 1]], requires_grad=True)
    pooled = pooling.pool_attention(values, scores, groups)
    pooled.sum().backward()
    assert pooled.item() == pytest.approx(1 + 2 / (1 + torch.e**-1))
    assert values.grad.isfinite().all()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("cells", [0, 1, 2, 100_000])
def test_least_squares_is_stable_for_tiny_and_large_groups_in_float32(cells):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(cells, 1, 8, generator=generator)
    truth = torch.arange(8.0)
    targets = (features @ truth).reshape(cells, 1)
    groups = Support.of([(n,) for n in range(cells)], (max(cells, 1),)).groups(())
    solution, covariance = pooling.pool_least_squares(
        features, targets, groups, torch.ones(1, 8), torch.ones(1)
    )
    assert solution.isfinite().all()
    assert (torch.linalg.eigvalsh(covariance) > 0).all()
    if cells == 100_000:
        torch.testing.assert_close(solution[0, 0], truth, rtol=0.01, atol=0.01)


def test_a_cell_reads_the_regression_and_its_uncertainty():
    features = torch.tensor([[[1.0, 2.0]]])
    solution, covariance = torch.tensor([[[3.0, 4.0]]]), torch.tensor([[[[2.0, 0.5], [0.5, 1.0]]]])
    assert pooling.read_least_squares(features, solution, covariance).tolist() == [[11.0, 8.0]]


@settings(max_examples=60)
@given(
    cut=st.floats(0, 1),
    density=st.floats(0, 1),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 10**6),
)
def test_states_of_two_parts_merge_to_the_state_of_the_whole(cut, density, shape, seed):
    x = random_array(shape, density=density, channels=4, seed=seed)
    scores = x.values[:, 2:] * 5
    features = x.values.reshape(-1, 2, 2)
    first = torch.arange(len(x)) < cut * len(x)
    parts = [x.support.take(first), x.support.take(~first)]
    for axes in proper_subsets(len(shape)):
        whole = x.support.groups(axes)
        one, other = (p.indexed_by(x.support.group_index).groups(axes) for p in parts)

        def merged(write, align, *inputs, one=one, other=other):
            part = write(*(i[first] for i in inputs), one)
            return pooling.merge(part, write(*(i[~first] for i in inputs), other), align)

        sums = merged(pooling.write_sum, None, x.values)
        assert_same(pooling.read_mean(sums), pooling.pool_mean(x.values, whole))
        most = merged(pooling.write_max, pooling.align_max, x.values)
        assert_same(pooling.read_max(most), pooling.pool_max(x.values, whole))
        attended = merged(pooling.write_attention, pooling.align_attention, x.values, scores)
        assert_same(
            pooling.read_attention(attended), pooling.pool_attention(x.values, scores, whole)
        )
        normal = merged(pooling.write_least_squares, None, features, scores)
        expected = pooling.pool_least_squares(features, scores, whole, PRIOR, NOISE)
        for ours, theirs in zip(
            pooling.solve_least_squares(normal, PRIOR, NOISE), expected, strict=True
        ):
            assert_same(ours, theirs)
        for state in (sums, most, attended, normal):
            assert torch.equal(state[-1].squeeze(-1).long(), whole.sizes)


@pytest.mark.parametrize("axes", [(), (0,), (0, 1)])
def test_gradients_of_every_pooling_are_right(axes):
    x = random_array((3, 3, 2), density=0.4, channels=4)
    groups = x.support.groups(axes)
    values = x.values.requires_grad_()
    scores = (x.values.detach()[:, :2] * 2).requires_grad_()
    for pool in (pooling.pool_mean, pooling.pool_sum, pooling.pool_max):
        assert gradcheck(lambda v, pool=pool: pool(v, groups), values)
    assert gradcheck(lambda v, s: pooling.pool_attention(v, s, groups), (values, scores))
    features = x.values.detach().reshape(-1, 2, 2).requires_grad_()
    inputs = (features, scores, PRIOR.clone().requires_grad_(), NOISE.clone().requires_grad_())
    assert gradcheck(lambda f, t, p, n: pooling.pool_least_squares(f, t, groups, p, n), inputs)


@pytest.mark.parametrize("number", [1, 3])
def test_means_of_millions_of_cells_are_right_in_float32(number):
    """Adding one cell after the other gave 3.5682 for a million times 3.6."""
    cells = 2_000_000
    groups = Groups(torch.arange(cells) % number, number)
    mean = pooling.pool_mean(torch.full((cells, 1), 3.6), groups)
    torch.testing.assert_close(mean, torch.full((number, 1), 3.6), rtol=1e-4, atol=0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e4, 1e6])
@pytest.mark.parametrize("log_prior", [-40.0, 0.0, 40.0])
def test_least_squares_survives_any_scale_of_features_in_float32(scale, log_prior):
    """Groups of one or two cells have grams of rank one or two, which rounding makes indefinite."""
    for seed in range(20):
        x = random_array((5, 6), density=0.3, channels=2, seed=seed, dtype=torch.float32)
        pool = LeastSquaresPool(2, heads=1, rank=4, generator=torch.Generator().manual_seed(seed))
        pool.log_prior.data.fill_(log_prior)
        for axes in proper_subsets(2):
            state = pool.write(x.values * scale, x.support.groups(axes))
            assert pool.summarise(state).isfinite().all()


def test_the_least_squares_module_is_the_function_with_its_learned_parts():
    x = random_array((4, 5), density=0.5, channels=3)
    pool = LeastSquaresPool(3, heads=2, rank=2, generator=torch.Generator().manual_seed(0)).double()
    pool.log_prior.data, pool.log_noise.data = PRIOR.log(), NOISE.log()
    groups = x.support.groups((0,))
    features = (x.values @ pool.features).reshape(-1, 2, 2)
    solution, covariance = pooling.pool_least_squares(
        features, x.values @ pool.targets, groups, PRIOR, NOISE
    )
    expected = pooling.read_least_squares(features, solution[groups.ids], covariance[groups.ids])
    summary = pooling.unpool(pool.summarise(pool.write(x.values, groups)), groups)
    assert_same(pool.read(summary, x.values), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_and_counted_in_float32(dtype):
    groups = Groups(torch.zeros(100_000, dtype=torch.int64), 1)
    ones = torch.ones(100_000, 2, dtype=dtype)
    mean = pooling.pool_mean(ones, groups)
    assert (mean.dtype, mean.tolist()) == (dtype, [[1.0, 1.0]])
    assert pooling.write_sum(ones, groups)[-1].item() == 100_000
    assert pooling.pool_attention(ones, ones, groups).tolist() == [[1.0, 1.0]]
