"""Runs the service as a process: address and token, models, uvicorn."""

from __future__ import annotations

import copy
import hashlib
import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import polars as pl
import uvicorn

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines import BASELINES
from exchangeable.completion import update
from exchangeable.completion.completer import Completer
from exchangeable.completion.fit import check_model
from exchangeable.data.table import Table
from exchangeable.errors import InputError, option
from exchangeable.predictors.literal import TrainedPredictor
from exchangeable.predictors.units import unwrapped
from exchangeable.runtime.folders import MANIFEST
from exchangeable.serve.access.origins import LOCAL_NAMES, Origins, machine_names
from exchangeable.serve.access.tokens import Tokens
from exchangeable.serve.app import create_app
from exchangeable.serve.connections import BACKLOG, Connection, Connections
from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import Response
from exchangeable.serve.limits import Limits
from exchangeable.serve.monitoring.telemetry import log_response
from exchangeable.serve.monitoring.traces import start_traces
from exchangeable.serve.refresher import MakeCompleter
from exchangeable.serve.tables.served import Tables
from exchangeable.training.recipes import RECIPES
from exchangeable.training.trained_model import SYNTHETIC, TRAINED_ON, TrainedModel

DRAIN_SECONDS = 8
"""Seconds that requests in progress have to end when the service stops."""
SWITCH_SECONDS = 0.0005
"""Seconds that a thread computes before the event loop may run: at Python's 5 ms, /health took 10
times as long under load."""
EXIT_SECONDS = 10
"""Seconds after which the process exits in any case: acknowledged changes are durable."""


@dataclass(frozen=True)
class Address:
    """Where the service listens, and who may use it."""

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | Tokens | None = None
    """A token for everything, or tokens with roles."""
    anyone: bool = False
    """Whether other machines may use the service without a token."""
    names: tuple[str, ...] = ()
    """Host names that requests may use, beside those of this machine."""

    def __post_init__(self) -> None:
        if not self._is_local and self.token is None and not self.anyone:
            raise InputError(
                f"at {self.host} anyone could read and change the table: give one with "
                f"{option('token')}, or choose {option('anyone', True)} to allow it"
            )

    @property
    def _is_local(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def origins(self) -> Origins:
        """Where requests may come from: any name with a token, which no page of others knows."""
        if self.token is not None:
            return Origins()
        named = frozenset(name.lower() for name in (self.host, *self.names))
        if self.anyone:
            return Origins(machine_names() | named, addresses=True)
        return Origins(LOCAL_NAMES | named, proxies=False)

    def url(self, port: int) -> str:
        """Where the service is, at the port that was bound."""
        host = self.host.strip("[]")
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def bind(self) -> socket.socket:
        """Bind a socket, before the table is read: a port in use is reported at once."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # asyncio sends small responses at once only if the protocol is set: else they wait 40 ms.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.host.strip("[]"), self.port))
        except (OSError, OverflowError) as error:
            bound.close()
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot listen at {self.host}:{self.port}: {reason}") from None
        return bound


@dataclass(frozen=True, eq=False)
class Factory:
    """Fits a completer at each refresh."""

    make: MakeCompleter
    options: Mapping[str, Any]
    """What completers depend on beside the table, as JSON."""

    def __call__(self, table: Table) -> Completer:
        return self.make(table)


def completer_factory(
    model: str,
    seed: int,
    device: str,
    features: Mapping[str, pl.DataFrame] | None = None,
    units: str | None = None,
) -> Factory:
    """Return what fits a completer at each refresh; it must not train.

    ``features`` are frames about members by axis, of which those with cells are used: a member
    that was deleted must not come back.
    """
    check_model(model)
    if "/" in model:
        TrainedModel.load(model)  # raise what is wrong with it before the table is stored
    if model in RECIPES:
        raise InputError(
            f"{model} would be trained anew at each refresh: train it, save it, and serve the "
            f"saved folder"
        )
    if features and model in BASELINES:
        raise InputError(f"features need a model that reads them, but {model} does not")

    def make(table: Table) -> Completer:
        frames = _of_members(features or {}, table)
        completer = Completer(model, seed=seed, device=device, units=units)
        return completer.fit_table(table, features=frames)

    rows = {axis: _digest(frame.write_csv().encode()) for axis, frame in (features or {}).items()}
    options = {"model": model, "seed": seed, "device": device, "units": units, "features": rows}
    return Factory(make, {**options, "weights": _digest_of(model) if "/" in model else None})


def _of_members(features: Mapping[str, pl.DataFrame], table: Table) -> dict[str, pl.DataFrame]:
    """Select the rows about members of the table; frames without any are left out."""
    frames = {}
    for axis, frame in features.items():
        codes = table.vocabularies[table.axes.index(axis)].encode(frame.to_series(0))
        frames[axis] = frame.filter(pl.Series(codes != UNKNOWN))
    return {axis: frame for axis, frame in frames.items() if len(frame)}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(folder: str | Path) -> str:
    """The digest of all that a saved folder holds."""
    return _digest((Path(folder) / MANIFEST).read_bytes())


def saved_completer_factory(completer: Completer, folder: str | Path | None = None) -> Factory:
    """Return what fits completers with the model and the features of a saved one.

    ``folder`` is where that was loaded from.
    """
    predictor = unwrapped(completer.predictor_)
    described = bool(completer.fitted_.features.axes)
    if not isinstance(predictor, TrainedPredictor) or (
        predictor.trained.facts.get(TRAINED_ON) == SYNTHETIC and not described
    ):
        units = completer.table_.units if completer.units is None else completer.units
        return completer_factory(
            str(completer.model), completer.seed, completer.device, units=units
        )

    def make(table: Table) -> Completer:
        refitted = copy.copy(completer)
        refitted.fitted_ = update.reread(completer.fitted_, table)
        return refitted

    saved = None if folder is None else _digest_of(folder)
    return Factory(make, {"saved": saved, "device": completer.device})


def serve(tables: Tables, address: Address, bound: socket.socket) -> None:
    """Serve until stopped, and then until the requests in progress have ended."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after its own shutdown
        make_server(tables, address, tables.uploads).run(sockets=[bound])


def make_server(tables: Engine | Tables, address: Address, limits: Limits) -> Server:
    """The server of the service around tables, which are closed when the server ends.

    ``limits`` are those of connections, and of a single engine.
    """
    traces = start_traces()

    def observe(response: Response) -> None:
        log_response(response)
        traces.record(response)

    app = create_app(
        tables,
        limits=limits,
        token=address.token,
        origins=address.origins,
        on_response=observe,
    )
    connections = Connections(limits, len(tables) if isinstance(tables, Tables) else 1)
    config = uvicorn.Config(
        app,
        http=cast(Any, partial(Connection, connections)),  # uvicorn only calls it
        ws="none",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    return Server(config, connections)


class Server(uvicorn.Server):
    """Exits in time, whatever is still computed."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self.connections = connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        timer = threading.Timer(EXIT_SECONDS, os._exit, (0,))
        timer.daemon = True
        timer.start()
