"""Jointly exchangeable layers written out by loops over cells, from the fifteen maps."""

import torch


def fifteen(layer):
    """The weights of the maps as views, (K, O) each: x_ij, x_ji, R_i, R_j, C_i, C_j, D_i, D_j, T
    and t in every cell, then D_i, R_i, C_i, T and t on the diagonal.
    """
    total, trace, row, column, loop, pair = [term.weights[0].data for term in layer.terms]
    row, column, loop = (weight.chunk(3, dim=1) for weight in (row, column, loop))
    total, trace = (weight.chunk(2, dim=1) for weight in (total, trace))
    everywhere = [layer.own.data, pair, *row[:2], *column[:2], *loop[:2], total[0], trace[0]]
    return [*everywhere, loop[2], row[2], column[2], total[1], trace[1]]


def random_biases(layer, seed=0):
    """Give a layer biases that are not zero."""
    generator = torch.Generator().manual_seed(seed)
    for bias in (layer.bias, layer.diagonal_bias):
        if bias is not None:
            bias.data.uniform_(-1, 1, generator=generator)


def read_written_out(layer, pooled, values):
    """New values of the cells in ``values``, from their own and from pools of those in ``pooled``:
    mappings from (i, j) to channels.
    """
    zero = torch.zeros(layer.in_channels, dtype=torch.float64)

    def mean(some):
        return sum(some, zero) / max(len(some), 1)

    def row(n):
        return mean([v for cell, v in pooled.items() if cell[0] == n])

    def column(n):
        return mean([v for cell, v in pooled.items() if cell[1] == n])

    def diagonal(n):
        return pooled.get((n, n), zero)

    total, trace = mean(list(pooled.values())), mean([v for c, v in pooled.items() if c[0] == c[1]])
    answers = {}
    for (i, j), own in values.items():
        read = [own, pooled.get((j, i), zero), row(i), row(j), column(i), column(j)]
        read += [diagonal(i), diagonal(j), total, trace]
        if i == j:
            read += [diagonal(i), row(i), column(i), total, trace]
        y = sum(value @ weight for value, weight in zip(read, fifteen(layer), strict=False))
        answers[i, j] = y + layer.bias + (layer.diagonal_bias if i == j else 0)
    return answers


def cells_of(x):
    """The cells of an array as a mapping from (i, j) to channels."""
    return {tuple(c): v for c, v in zip(x.support.index.tolist(), x.values, strict=True)}
