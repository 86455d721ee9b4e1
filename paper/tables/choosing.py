"""What the paper's printed errors may be: chosen on validation cells, on test cells, of few cells.

    python -m paper.tables.choosing --device cuda --seeds 3

Only the first column is an error that a method has. The released code also prints the lowest error
on test cells of all epochs, and measures errors in conditional samples until 95 % of the test cells
were drawn, which leaves out those of the rarest members.
"""

from __future__ import annotations

from paper.lib import methods, problems, runs
from paper.lib.command import run_command
from paper.lib.tables import Column, Row, format_table, parse_arguments
from paper.lib.watched import watched_run

METRICS = {
    "rmse": "chosen on validation cells",
    "rmse_by_test": "chosen on test cells",
    "rmse_drawn": "the same as the first, the 95 % of the test cells that are drawn first",
    "rmse_sampled": "read in such samples",
}
TABLES = {"ml-100k": ("ML-100K", "u1"), "ml-1m": ("ML-1M", "0")}
ROWS = {
    "factorized-released": "factorized, as released (printed .920 and .860)",
    "factorized-text": "factorized, as in the text",
    "self-supervised-released": "self-supervised, as released (printed .910 and .863)",
}


def main() -> None:
    given = parse_arguments(__doc__ or "")
    for problem, (_, split) in TABLES.items():
        for method in [] if given.print else list(ROWS):
            for seed in range(given.seeds if problem == "ml-100k" else 1):
                place = runs.place_of(problem, split, method, seed, given.out)
                if (given.only and method not in given.only) or (
                    place.exists() and not given.again
                ):
                    continue
                table = problems.load(problem)
                made = methods.deep(method, table, seed, **given.changed)
                one, _ = watched_run(table, made, split, seed, given.device)
                runs.keep({**one, "method": method}, given.out)
    found = [one for one in runs.results(given.out) if "rmse_by_test" in one]
    for problem, (title, split) in TABLES.items():
        columns = [Column(text, problem, (split,), 4, metric) for metric, text in METRICS.items()]
        print()
        rows = [Row(text, [], method) for method, text in ROWS.items()]
        print(format_table(f"{title}, RMSE", columns, rows, found))


if __name__ == "__main__":
    run_command(main)
