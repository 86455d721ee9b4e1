"""Peers on tables of positives: implicit and irspack, by recall@20 and NDCG@10.

    EXCHANGEABLE_DATA=... python benchmarks/peers/ranking_comparison.py --install --out out/p.json
    EXCHANGEABLE_DATA=... python benchmarks/peers/ranking_comparison.py --peers irspack-edlae

``--install`` puts each library into an environment of its own, at the versions of
requirements-ranking.txt. Of the positives of each user a fifth is held out for the test, with
seed 0. All items that the user does not have in training are ranked: none are sampled. The
settings of every peer are chosen on a fifth of the training pairs, as ranking_harness.py
describes, and fitted to all training pairs. Every peer and table is a process of its own. Seconds
are those of that last fit, from pairs in memory, and of the search; they are longer where other
programs use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

from positives import TABLES
from runs import HERE, Record, install, python_of

PINNED = HERE / "requirements-ranking.txt"
MODELS = {"implicit": ("als", "bpr"), "irspack": ("ials", "rp3beta", "dense-slim", "edlae")}
PEERS = {
    f"{library}-{model}": (library, model) for library, models in MODELS.items() for model in models
}
BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def measured(peer: str, table: str, options: argparse.Namespace) -> Record:
    """Run one peer on one table; returns its record, or why it ended."""
    library, model = PEERS[peer]
    python = python_of(environment(options.environments, library))
    if not python.exists():
        return {"failed": "not installed: --install does it"}
    script = str(HERE / f"{library}_ranking.py")
    command = [str(python), script, model, table, str(options.threads)]
    variables = os.environ | dict.fromkeys(BLAS, "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        return {"failed": last}
    return json.loads(done.stdout.splitlines()[-1])


def environment(folder: Path, library: str) -> Path:
    return folder / f"peers-{library}"


HEAD = f"{'table':>14}  {'peer':>18}  recall@20  NDCG@10  {'fit':>8}  {'search':>8}  settings"


def row(table: str, peer: str, record: Record) -> str:
    names = f"{table:>14}  {peer:>18}"
    if "failed" in record:
        return f"{names}  {record['failed']}"
    quality = f"{record['recall@20']:9.4f}  {record['ndcg@10']:7.4f}"
    seconds = f"{record['fit_s']:6.1f} s  {record['search_s']:6.0f} s"
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    return f"{names}  {quality}  {seconds}  {settings}"


def store(path: Path, table: str, peer: str, record: Record) -> None:
    """Put a record into a file of records by table and peer; others stay."""
    records = json.loads(path.read_text()) if path.exists() else {}
    records.setdefault(table, {})[peer] = record
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(records, indent=1))
    partial.rename(path)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--threads", type=int, default=1, help="of the libraries; BLAS has one")
    parser.add_argument("--install", action="store_true", help="install the peers first")
    parser.add_argument(
        "--environments", type=Path, default=Path("out"), help="folder of the environments"
    )
    parser.add_argument("--out", type=Path, help="JSON file of records by table and peer")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if "EXCHANGEABLE_DATA" not in os.environ:
        sys.exit("EXCHANGEABLE_DATA must name the folder that has ml-100k/u.data in it")
    if options.install:
        for library in dict.fromkeys(PEERS[peer][0] for peer in options.peers):
            packages = (library, "threadpoolctl")
            if why := install(environment(options.environments, library), packages, PINNED):
                sys.exit(f"{library} {why}")
    print(HEAD)
    records: dict[str, Record] = {table: {} for table in options.tables}
    for table, peer in product(options.tables, options.peers):
        record = records[table][peer] = measured(peer, table, options)
        print(row(table, peer, record), flush=True)
        if options.out is not None:
            store(options.out, table, peer, record)
    print(json.dumps(records))


if __name__ == "__main__":
    main()
