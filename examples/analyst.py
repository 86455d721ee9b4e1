"""An analyst's notebook: from a CSV to predictions, a report and a new user."""

# %% [markdown]
# # An analyst's notebook
#
# From a CSV to predictions, a report and a new user, on 1,500 ratings of the film club, which is
# simulated. Run it with `python examples/analyst.py`, or cell by cell in an editor that knows the
# percent format.

# %%
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl

import exchangeable as ex

out = Path("out/analyst")
out.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The table
#
# Any CSV with a column per axis and a column of values will do. Here we write one in which a tenth
# of the ratings are empty. These are to be filled in.

# %%
club = ex.datasets.load("film-club").table
ratings = pl.DataFrame(club.frame(club.index, rating=club.values)).head(1500)
empty = pl.Series(np.random.default_rng(0).random(len(ratings)) < 0.1)
incomplete = ratings.with_columns(rating=pl.when(empty).then(None).otherwise("rating"))
incomplete.write_csv(out / "ratings.csv")

table = ex.Table.read(out / "ratings.csv")
print(*table.found, sep="\n")  # which columns were recognised, how many cells, which scale

# %% [markdown]
# ## Predictions and a report, by the command
#
# The command fills in the empty values, with 80 % intervals, and writes a page for others: the
# table, the errors on hidden cells, the least certain predictions. In a shell: `exchangeable
# complete out/analyst/ratings.csv --report out/analyst/report.html`.

# %%
command = ["complete", str(out / "ratings.csv"), "--report", str(out / "report.html"), "--force"]
subprocess.run([sys.executable, "-m", "exchangeable", *command], check=True)
print(pl.read_csv(out / "ratings.completed.csv").filter(empty).head())

# %% [markdown]
# ## The same in Python
#
# `ex.complete(frame)` does what the command does. `Completer` is the estimator behind it, for any
# number of questions. We know the true ratings here, so we can count how good its predictions are.
# Without the truth, `Completer().notes_` says how large the error was on cells that the model hid
# from itself.

# %%
completer = ex.Completer("pretrained").fit(incomplete.drop_nulls())
queries, truth = ratings.filter(empty).drop("rating"), ratings.filter(empty)["rating"]
error = ex.metrics.rmse(truth, completer.predict(queries))
covered = ex.metrics.coverage(truth, completer.predict_interval(queries))
constant = ex.metrics.rmse(truth, np.full(len(truth), incomplete["rating"].mean()))
print(f"RMSE {error:.3f} (a constant: {constant:.3f}); {covered:.0%} within the 80 % intervals")

# %% [markdown]
# ## Recommendations, and a new user
#
# Zelda is not in the table. Three ratings are enough to recommend something, without a gradient
# step. `update` keeps her ratings.

# %%
print(completer.recommend("Ada Abt", n=3))
liked = {"Alien": 5, "The Thing": 5, "Notting Hill": 1}
print(completer.recommend("Zelda", n=3, ratings=liked))

completer.update([("Zelda", film) for film in liked], list(liked.values()))
print(completer.predict([("Zelda", "Halloween"), ("Zelda", "Pretty Woman")]))

# %% [markdown]
# ## Keep it

# %%
completer.save(out / "club")  # ex.Completer.load("out/analyst/club") reads it again
