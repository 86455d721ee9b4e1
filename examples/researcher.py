"""A researcher's notebook: a layer, its equivariance check, and a model read on another table."""

# %% [markdown]
# # A researcher's notebook
#
# A layer of your own, the check that it is equivariant, and a small model that is trained on one
# synthetic table and read on another, with other members and another size. Run it with `python
# examples/researcher.py`.

# %%
import torch
from torch import Tensor, nn

import exchangeable as ex

# %% [markdown]
# ## A layer
#
# A layer is an `nn.Module` that maps an array to an array on the same cells. This one combines a
# linear map of the pools with the distance of each cell from it.


# %%
class Contrast(nn.Module):
    """A linear map of a cell's pools, and the distance of the cell from it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = ex.ExchangeableLinear(channels, channels, order=2, counts=True)

    def forward(self, x: ex.ExchangeableArray) -> ex.ExchangeableArray:
        pooled = self.linear(x).values
        return ex.ExchangeableArray(x.support, torch.cat([pooled, (x.values - pooled).abs()], 1))


# %% [markdown]
# `assert_equivariant` relabels the members, shuffles the cells, and compares. A layer that reads a
# row number, or the storage order of cells, fails:

# %%
array = ex.testing.random_array((6, 5), density=0.5, channels=2)
ex.testing.assert_equivariant(Contrast(2).double(), array)


def leaky(x: ex.ExchangeableArray) -> ex.ExchangeableArray:
    return ex.ExchangeableArray(x.support, x.values * x.support.index[:, :1])


try:
    ex.testing.assert_equivariant(leaky, array)
except AssertionError:
    print("leaky reads row numbers: not equivariant")

# %% [markdown]
# ## A synthetic table
#
# A bias per row, a bias per column, and noise; a part of the cells is observed.


# %%
def draw_table(rows: int, columns: int, share: float, seed: int) -> ex.ExchangeableArray:
    """Draw a table from x[i, j] = a[i] + b[j] + noise, where the noise has deviation 0.5."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(rows, 1, generator=generator)
    b = torch.randn(1, columns, generator=generator)
    values = a + b + 0.5 * torch.randn(rows, columns, generator=generator)
    observed = torch.rand(rows, columns, generator=generator) < share
    return ex.ExchangeableArray.of(observed.nonzero(), values[observed][:, None], (rows, columns))


def split(table: ex.ExchangeableArray, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions of the cells to observe, and of those to predict."""
    hidden = torch.rand(len(table), generator=torch.Generator().manual_seed(seed)) < share
    return (~hidden).nonzero()[:, 0], hidden.nonzero()[:, 0]


# %% [markdown]
# ## Training
#
# Each step hides some cells, reads the others, and predicts the hidden ones.
# (`Completer("residual")` does this with validation, averaging, resuming and a prior; here is the
# bare idea.)

# %%
torch.set_num_threads(1)  # quicker for small tables
config = ex.ResidualConfig(1, 1, width=16, depth=2, pooling=("mean",), dropout=0.0)
model = ex.ResidualModel(config, seed=0)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
table = draw_table(50, 40, share=0.5, seed=1)

for step in range(60):
    seen, hidden = split(table, share=0.3, seed=step)
    queries = table.take(hidden)
    predictions = model(table.take(seen), queries.support)
    loss = (predictions - queries.values).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"last training loss {loss.item():.2f}")

# %% [markdown]
# ## Another table
#
# Other members, another size, no gradient step: condition the model on the observed cells, and
# read any others. The memory can be read many times, and extended by new members.

# %%
other = draw_table(40, 70, share=0.5, seed=2)
seen, hidden = split(other, share=0.2, seed=0)
queries = other.take(hidden)
model.eval()
with torch.no_grad():
    memory = model.condition(other.take(seen))
    predictions = model.read(memory, queries.support)
error = (predictions - queries.values).square().mean().sqrt().item()
spread = queries.values.std().item()
print(f"RMSE {error:.2f}; the values have standard deviation {spread:.2f}, their noise 0.50")
assert error < 0.6 * spread

# %% [markdown]
# Predictions do not depend on which other cells are queried:

# %%
double = model.double()
observed, few = other.take(seen), queries.support.take(torch.arange(5))
observed = ex.ExchangeableArray(observed.support, observed.values.double())
ex.testing.assert_queries_independent(double, observed, few)
