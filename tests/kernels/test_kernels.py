"""The Triton kernels compute what PyTorch does in float64, slowly and written out here.

They run on a GPU, or anywhere in Triton's interpreter: TRITON_INTERPRET=1. Skipped elsewhere.
"""

import importlib.util
import itertools
import os

import pytest
import torch
from torch.nn import functional

from exchangeable import kernels
from exchangeable.kernels import Runs, launch, pool_all, read, segment_max, segment_sum
from exchangeable.kernels import pooling as pool_module
from exchangeable.kernels import runs as runs_module

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = importlib.util.find_spec("triton") is not None
HOME = "cpu" if INTERPRETED else "cuda"
needs_triton = pytest.mark.skipif(
    not TRITON or not (INTERPRETED or torch.cuda.is_available()),
    reason="needs Triton, and a CUDA GPU or TRITON_INTERPRET=1 (and there numpy before 2.4)",
)
# The interpreter's own use of numpy, which became an error in numpy 2.4.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
KINDS = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def _bfloat16_products(monkeypatch):
    """Triton 3.6's interpreter multiplies the bits of bfloat16 matrices, not their numbers."""
    if not (TRITON and INTERPRETED):
        return
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    multiply = InterpreterBuilder.create_dot

    def widened(builder, a, b, *rest):
        if a.dtype == tl.bfloat16:
            a, b = (builder.cast_impl(one, tl.float32) for one in (a, b))
        return multiply(builder, a, b, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", widened)


class Case:
    """Cells with random values in groupings of skewed sizes, the same at every run."""

    def __init__(self, cells, groups, channels, kind=torch.float32, writing=1.0):
        self.draw = torch.Generator().manual_seed(0)
        self.kind, self.cells, self.channels = kind, cells, channels
        self.numbers = groups
        self.ids = [self.skewed(number) for number in groups]
        self.runs = [Runs.of(ids.to(HOME), n) for ids, n in zip(self.ids, groups, strict=True)]
        self.values = self.normal(cells, channels)
        self.writers = None
        if writing < 1:
            self.writers = torch.rand(cells, generator=self.draw) < writing

    def skewed(self, number):
        """Group 0 has many cells, and the last of several has none."""
        if number == 1:
            return torch.zeros(self.cells, dtype=torch.int64)
        place = torch.rand(self.cells, generator=self.draw) ** 3
        return (place * (number - 1)).long()

    def normal(self, *shape, kind=None):
        """Numbers that the type can hold, so that reference and kernel start from the same."""
        return torch.randn(shape, generator=self.draw).to(kind or self.kind)


def at_home(tensor):
    return None if tensor is None else tensor.detach().to(HOME)


def leaf(tensor):
    return at_home(tensor).requires_grad_()


def wide(tensor):
    return tensor.detach().double().requires_grad_()


def assert_near(found, expected, kind, name=""):
    found, expected = found.detach().double().cpu(), expected.detach()
    assert found.shape == expected.shape, name
    scale = expected.norm().clamp(min=1e-3)
    assert (found - expected).norm() / scale < TOLERANCE[kind], name


def assert_same_gradients(outputs, expected, inputs, references, draw, kind):
    """Outputs and references are near, and so are all gradients of a random mix of them."""
    mixes = [torch.randn(one.shape, generator=draw) for one in expected]
    for i, (out, reference) in enumerate(zip(outputs, expected, strict=True)):
        assert_near(out, reference, kind, f"output {i}")
    mixed = zip(outputs, mixes, strict=True)
    sum((out.float() * mix.to(HOME)).sum() for out, mix in mixed).backward()
    mixed = zip(expected, mixes, strict=True)
    sum((out * mix).sum() for out, mix in mixed).backward()
    for name, reference in references.items():
        assert inputs[name].grad.dtype == inputs[name].dtype, name
        assert_near(inputs[name].grad, reference.grad, kind, f"gradient of {name}")


# Runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_cells_of_a_mask_are_counted_by_group(is_sorted):
    draw = torch.Generator().manual_seed(0)
    ids = (torch.rand(3000, generator=draw) ** 3 * 40).long()  # none in the last two groups
    ids = ids.sort().values if is_sorted else ids
    chosen = torch.rand(3000, generator=draw) < 0.4
    runs = Runs.of(ids, 42)
    assert runs.is_sorted == is_sorted
    assert torch.equal(runs.count(chosen), ids[chosen].bincount(minlength=42))


def test_chunks_hold_every_cell_once_and_never_cells_of_two_groups(monkeypatch):
    monkeypatch.setattr(runs_module, "CELLS_PER_CHUNK", 4)
    ids = torch.randint(7, (100,)) * 2  # odd groups are empty
    runs = Runs.of(ids, 15)
    assert runs.permutation.sort().values.tolist() == list(range(100))
    starts = runs.chunk_starts.tolist()
    assert max(b - a for a, b in itertools.pairwise(starts)) <= 4
    for group in range(15):
        first, last = runs.group_chunks[group], runs.group_chunks[group + 1]
        cells = runs.permutation[starts[first] : starts[last]].long()
        assert cells.tolist() == (ids == group).nonzero().flatten().tolist()
    assert runs.max_chunks == runs.group_chunks.diff().max()


def test_a_group_of_any_size_has_only_so_many_chunks(monkeypatch):
    monkeypatch.setattr(runs_module, "CELLS_PER_CHUNK", 2)
    monkeypatch.setattr(runs_module, "MAX_CHUNKS_PER_GROUP", 8)
    runs = Runs.of(torch.zeros(1000, dtype=torch.int64), 1)
    assert runs.chunks == runs.max_chunks == 8
    assert runs.is_sorted


def test_runs_of_no_cells_have_no_chunks():
    runs = Runs.of(torch.zeros(0, dtype=torch.int64), 3)
    assert runs.count(torch.zeros(0, dtype=torch.bool)).tolist() == [0, 0, 0]
    assert (runs.chunks, runs.max_chunks, runs.group_chunks.tolist()) == (0, 0, [0, 0, 0, 0])


# Sums and maxima -------------------------------------------------------------------------


def sums(values, ids, number, writers):
    written = values if writers is None else values * writers[:, None]
    return values.new_zeros(number, values.shape[1]).index_add(0, ids, written)


@needs_triton
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writing", [1.0, 0.5])
@pytest.mark.parametrize(
    ("cells", "groups", "channels"),
    [(700, 5, 16), (300, 1, 5), (40, 60, 70), (3, 2, 256), (0, 3, 4)],
)
def test_sums_and_maxima_are_those_of_each_group(cells, groups, channels, writing, kind):
    case = Case(cells, [groups], channels, kind, writing)
    ours, reference = leaf(case.values), wide(case.values)
    (ids,), (runs,), writers = case.ids, case.runs, case.writers
    total = segment_sum(ours, runs, at_home(writers))
    assert total.dtype == torch.float32
    expected = sums(reference, ids, groups, writers)
    pair = {"values": ours}, {"values": reference}
    assert_same_gradients([total], [expected], *pair, case.draw, kind)

    written = slice(None) if writers is None else writers
    largest = torch.full((groups, channels), -torch.inf)
    cell = ids[written, None].expand(-1, channels)
    largest.scatter_reduce_(0, cell, case.values.float()[written], "amax")
    assert torch.equal(segment_max(ours, runs, at_home(writers)).cpu(), largest)


@needs_triton
def test_a_group_of_many_chunks_is_summed_whole(monkeypatch):
    monkeypatch.setattr(runs_module, "CELLS_PER_CHUNK", 16)
    case = Case(500, [1, 3], 128)  # more chunks than a block of so many channels holds
    for ids, runs, number in zip(case.ids, case.runs, case.numbers, strict=True):
        expected = sums(case.values.double(), ids, number, None)
        assert_near(segment_sum(at_home(case.values), runs), expected, torch.float32)


@needs_triton
def test_values_need_not_be_contiguous():
    case = Case(50, [4], 6)
    turned = leaf(case.values.T.contiguous())
    expected = sums(case.values.double(), case.ids[0], 4, None)
    assert_near(segment_sum(turned.T, case.runs[0]), expected, torch.float32)


# Attention -------------------------------------------------------------------------------


def attention(values, scores, ids, number, writers):
    """Group by group: total, peak, weight, weighted."""
    if writers is None:
        writers = torch.ones(len(values), dtype=torch.bool)
    heads = scores.shape[1]
    parts = [], [], [], []
    for group in range(number):
        cells = values[(ids == group) & writers]
        score = cells @ scores
        lowest = score.new_full((1, heads), -torch.inf)
        peak = torch.cat([lowest, score.detach()]).amax(dim=0)
        weight = (score - peak).exp()
        repeated = weight.repeat_interleave(values.shape[1] // heads, dim=1)
        found = cells.sum(dim=0), peak, weight.sum(dim=0), (repeated * cells).sum(dim=0)
        for part, one in zip(parts, found, strict=True):
            part.append(one)
    return [torch.stack(part) for part in parts]


def check_attention(case, heads, *, onward=True, used=(0, 2, 3)):
    """The kernels against ``attention``, for those parts of the pools that are ``used``."""
    kind = case.kind
    scores = [case.normal(case.channels, heads) / 2 for _ in case.numbers]
    named = {"values": case.values, **{f"scores {i}": one for i, one in enumerate(scores)}}
    ours = {name: leaf(one) for name, one in named.items()}
    theirs = {name: wide(one) for name, one in named.items()}
    values, pools = pool_all(
        ours["values"], list(ours.values())[1:], case.runs, at_home(case.writers)
    )
    outputs = [values] if onward else []
    expected = [theirs["values"] * 1] if onward else []
    for i, (pooled, ids) in enumerate(zip(pools, case.ids, strict=True)):
        weights = theirs[f"scores {i}"]
        found = attention(theirs["values"], weights, ids, case.numbers[i], case.writers)
        assert all(part.dtype == torch.float32 for part in pooled)
        assert torch.equal(pooled.peak.isfinite().cpu(), found[1].isfinite())
        finite = found[1].masked_fill(~found[1].isfinite(), 0.0)
        assert_near(pooled.peak.nan_to_num(neginf=0.0), finite, kind)
        outputs += [pooled[part] for part in used]
        expected += [found[part] for part in used]
    if not set(used) - {0}:
        theirs = {"values": theirs["values"]}
    assert_same_gradients(outputs, expected, ours, theirs, case.draw, kind)


@needs_triton
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writing", [1.0, 0.4])
@pytest.mark.parametrize(
    ("cells", "groups", "channels", "heads"),
    [
        (400, [1, 5, 9], 16, 2),
        (90, [4], 12, 3),  # no powers of two
        (40, [50, 1], 24, 1),
        (70, [3], 64, 16),  # one column more than a block of 16
        (30, [2], 256, 8),
        (0, [1, 3], 8, 2),
    ],
)
def test_attention_is_that_of_each_group(cells, groups, channels, heads, writing, kind):
    check_attention(Case(cells, groups, channels, kind, writing), heads)


@needs_triton
@pytest.mark.parametrize("most", [7, 4, 1])
def test_seven_groupings_as_of_an_array_of_order_three(monkeypatch, most):
    monkeypatch.setattr(pool_module, "MAX_GROUPINGS", most)  # fewer: several kernels
    check_attention(Case(120, [1, 4, 5, 3, 20, 30, 25], 8, writing=0.7), 2)


@needs_triton
def test_chunks_are_rescaled_to_the_peak_of_their_group(monkeypatch):
    monkeypatch.setattr(runs_module, "CELLS_PER_CHUNK", 16)
    monkeypatch.setattr(
        runs_module, "CHUNKS_PER_BUNDLE", 4
    )  # so that all cells are several of them
    case = Case(400, [1, 4], 128, writing=0.9)  # more chunks than one block holds
    # Peaks rise from chunk to chunk, to 40; in float32 larger ones are off by more than 1e-5.
    case.values *= torch.linspace(0.1, 2, 400)[:, None]
    check_attention(case, 2)


@needs_triton
def test_cells_that_only_read_may_have_any_score():
    case = Case(60, [1, 4], 8, writing=0.5)
    case.values[~case.writers] *= 1e3  # exp of their scores overflows
    check_attention(case, 2)


@needs_triton
@pytest.mark.parametrize("onward", [True, False])
@pytest.mark.parametrize("used", [(0,), (2,), (3,), (2, 3), (0, 2)])
def test_parts_that_nobody_uses_need_no_gradient(used, onward):
    check_attention(Case(60, [1, 4], 8), 2, used=used, onward=onward)


@needs_triton
def test_values_alone_have_their_own_gradient():
    case = Case(20, [3], 8)
    values = leaf(case.values)
    onward, _ = pool_all(values, [leaf(case.normal(8, 2))], case.runs)
    (onward * 3).sum().backward()
    assert (values.grad == 3).all()


@needs_triton
def test_groupings_with_other_numbers_of_heads_are_refused():
    case = Case(20, [3, 2], 8)
    with pytest.raises(ValueError, match="same number of heads"):
        pool_all(case.values, [case.normal(8, 2), case.normal(8, 4)], case.runs)


# Reading ---------------------------------------------------------------------------------


def reading(values, own, constant, tables, ids, extra, norm, activation, kept, residual):
    z = values @ own
    if constant is not None:
        z = z + constant
    for table, group in zip(tables, ids, strict=True):
        z = z + table[group]
    if extra is not None:
        z = z + extra
    if norm is not None:
        z = functional.layer_norm(z, z.shape[1:], *norm)
    if activation == "gated":
        half = z.shape[1] // 2
        y = z[:, :half] * functional.silu(z[:, half:])
    elif activation == "relu":
        y = z.relu()
    else:
        y = functional.leaky_relu(z) if activation == "leaky_relu" else z
    y = y if kept is None else y * kept
    return values + y if residual else y


def check_reading(
    case,
    outputs,
    activation,
    *,
    constant=True,
    extra=False,
    norm=False,
    kept=False,
    residual=False,
    weights=None,
):
    """The kernel against ``reading``, with weights of a type of their own."""
    shrunk = case.channels**-0.5
    named = {"values": case.values, "own": case.normal(case.channels, outputs) * shrunk}
    if constant:
        named["constant"] = case.normal(outputs)
    if extra:
        named["extra"] = case.normal(case.cells, outputs)
    if norm:
        named["gamma"], named["beta"] = case.normal(outputs), case.normal(outputs)
    for i, number in enumerate(case.numbers):
        named[f"table {i}"] = case.normal(number, outputs)
    if weights is not None:
        tables = {name for name in named if name.startswith("table")}
        widened = tables | {"own", "constant", "gamma", "beta"}
        named = {name: one.to(weights) if name in widened else one for name, one in named.items()}
    out = outputs // (2 if activation == "gated" else 1)
    factors = (torch.rand(out, generator=case.draw) < 0.7) / 0.7 if kept else None

    def compute(inputs, function, groupings, factors):
        tables = [inputs[f"table {i}"] for i in range(len(case.numbers))]
        norms = (inputs["gamma"], inputs["beta"], 1e-5) if norm else None
        return function(
            inputs["values"], inputs["own"], inputs.get("constant"), tables, groupings,
            inputs.get("extra"), norms, activation, factors, residual,
        )  # fmt: skip

    def ours(values, own, constant, tables, runs, extra, norms, activation, kept, residual):
        return read(
            values, own, constant, tables, runs, extra=extra, norm=norms,
            activation=activation, kept=kept, residual=residual,
        )  # fmt: skip

    inputs = {name: leaf(one) for name, one in named.items()}
    references = {name: wide(one) for name, one in named.items()}
    found = compute(inputs, ours, case.runs, at_home(factors))
    expected = compute(references, reading, case.ids, factors)
    assert found.dtype == case.kind
    assert_same_gradients([found], [expected], inputs, references, case.draw, case.kind)


@needs_triton
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("activation", ["identity", "relu", "leaky_relu", "gated"])
def test_reading_is_linear_norm_and_activation(activation, norm, kind):
    case = Case(150, [6, 4], 16, kind)
    outputs = 32 if activation == "gated" else 16
    check_reading(case, outputs, activation, norm=norm, kept=True, residual=True)


@needs_triton
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"constant": False},
        {"extra": True},
        {"norm": True},
        {"kept": True},
        {"residual": True},
        {"constant": False, "extra": True, "norm": True, "kept": True, "residual": True},
    ],
    ids=lambda options: "+".join(options) or "plain",
)
@pytest.mark.parametrize("activation", ["leaky_relu", "gated"])
def test_every_part_of_reading_can_be_left_out(options, activation):
    outputs = 40 if activation == "gated" else 20
    check_reading(Case(70, [5], 20), outputs, activation, **options)


@needs_triton
@pytest.mark.parametrize(
    ("cells", "groups", "channels", "outputs"),
    [
        (90, [], 3, 5),  # no table at all
        (60, [4, 1, 7], 5, 34),
        (60, [2, 3, 4, 5, 6, 7, 8], 8, 8),
        (20, [3], 256, 256),  # too wide for one program to hold the matrix
        (1, [2], 16, 16),
        (0, [2], 6, 4),
    ],
)
@pytest.mark.parametrize("activation", ["identity", "gated"])
@pytest.mark.parametrize("kind", KINDS)
def test_reading_of_any_size(cells, groups, channels, outputs, activation, kind):
    outputs += outputs % 2
    case = Case(cells, groups, channels, kind)
    residual = channels == outputs and activation != "gated"
    check_reading(case, outputs, activation, norm=True, residual=residual)


@needs_triton
def test_weights_may_be_wider_than_values():
    case = Case(80, [5, 3], 16, torch.bfloat16)
    check_reading(case, 16, "leaky_relu", norm=True, weights=torch.float32)


@needs_triton
def test_every_table_needs_its_runs():
    case = Case(5, [2], 4)
    with pytest.raises(ValueError, match="1 and 0 came"):
        read(case.values, case.normal(4, 4), None, [case.normal(2, 4)], [])


@needs_triton
def test_a_residual_needs_as_many_channels_out_as_in():
    case = Case(5, [2], 4)
    with pytest.raises(ValueError, match="are 2 and 4"):
        read(case.values, case.normal(4, 4), activation="gated", residual=True)


# Summaries -------------------------------------------------------------------------------


def summaries(count, total, weight, weighted, mean, attention, counts):
    rows = 0
    if mean is not None:
        rows = total / count.clamp(min=1) @ mean
    if attention is not None:
        by_head = weighted.unflatten(-1, (weight.shape[1], -1))
        rows = rows + (by_head / weight.clamp(min=1).unsqueeze(-1)).flatten(-2) @ attention
    if counts is not None:
        rows = rows + torch.cat([count.log1p() / 10, 1 / (1 + count)], dim=1) @ counts
    return rows


@needs_triton
@pytest.mark.parametrize(
    "parts",
    [("mean",), ("attention",), ("mean", "counts"), ("mean", "attention", "counts")],
    ids="+".join,
)
@pytest.mark.parametrize(
    ("groups", "channels", "outputs", "heads"),
    [(37, 24, 20, 3), (1, 64, 64, 8), (300, 64, 128, 4), (5, 3, 1, 1), (0, 8, 8, 2)],
)
def test_summaries_are_averages_times_weights(groups, channels, outputs, heads, parts):
    draw = torch.Generator().manual_seed(0)
    count = torch.randint(0, 5, (groups, 1), generator=draw).float()
    count[:1] = 1  # the one cell of a group weighs exactly 1

    def normal(*shape, needed=True):
        return torch.randn(shape, generator=draw) if needed else None

    mean, attention = "mean" in parts, "attention" in parts
    weight = 1 + (count - 1).clamp(min=0) * torch.rand(groups, heads, generator=draw)
    given = {
        "total": normal(groups, channels, needed=mean),
        "weight": weight * (count > 0) if attention else None,
        "weighted": normal(groups, channels, needed=attention),
        "mean": normal(channels, outputs, needed=mean),
        "attention": normal(channels, outputs, needed=attention),
        "counts": normal(2, outputs, needed="counts" in parts),
    }
    there = {name: one for name, one in given.items() if one is not None}
    inputs = {name: leaf(one) for name, one in there.items()}
    references = {name: wide(one) for name, one in there.items()}
    sums = kernels.Sums(count.to(HOME), *(inputs.get(n) for n in ("total", "weight", "weighted")))
    weights = kernels.Weights(*(inputs.get(n) for n in ("mean", "attention", "counts")))
    assert kernels.can_summarise(sums, weights)
    expected = summaries(count.double(), *(references.get(name) for name in given))
    found = kernels.summarise(sums, weights)
    assert_same_gradients([found], [expected], inputs, references, draw, torch.float32)


@needs_triton
def test_summaries_of_several_groupings_are_those_of_each():
    draw = torch.Generator().manual_seed(0)
    pairs = []
    for groups in (1, 70, 9):
        count = torch.randint(0, 5, (groups, 1), generator=draw).float()
        numbers = [torch.randn(shape, generator=draw) for shape in ((groups, 8), (8, 20), (2, 20))]
        total, mean, counts = (leaf(one) for one in numbers)
        pairs.append((kernels.Sums(count.to(HOME), total), kernels.Weights(mean, None, counts)))
    leaves = [one for sums, weights in pairs for one in (sums.total, weights.mean, weights.counts)]
    together = kernels.summarise_all(*zip(*pairs, strict=True))
    apart = [kernels.summarise(*pair) for pair in pairs]
    mixes = [torch.randn(one.shape, generator=draw).to(HOME) for one in apart]
    gradients = [torch.autograd.grad(rows, leaves, mixes) for rows in (together, apart)]
    for one, other in zip((*together, *gradients[0]), (*apart, *gradients[1]), strict=True):
        assert torch.equal(one, other)


@needs_triton
def test_wide_or_double_summaries_are_left_to_torch():
    count, total = torch.ones(3, 1).to(HOME), torch.ones(3, 256).to(HOME)
    wide_weights = kernels.Weights(torch.ones(256, 256).to(HOME))
    assert not kernels.can_summarise(kernels.Sums(count, total), wide_weights)
    narrow = kernels.Weights(torch.ones(256, 16).to(HOME))
    assert kernels.can_summarise(kernels.Sums(count, total), narrow)
    assert not kernels.can_summarise(kernels.Sums(count.double(), total.double()), narrow)
    assert not kernels.can_summarise(kernels.Sums(count), kernels.Weights(counts=narrow.mean))


# Use -------------------------------------------------------------------------------------


def test_float64_and_wide_arrays_are_left_to_torch():
    values = torch.zeros(3, 4)
    assert not kernels.supported(values.double())
    assert not kernels.supported(values, outputs=300)
    assert not kernels.supported(values, heads=launch.MAX_HEADS + 1)
    assert not kernels.supported(torch.zeros(3, 300))
    assert kernels.supported(values) == kernels.available(values) == (TRITON and INTERPRETED)
