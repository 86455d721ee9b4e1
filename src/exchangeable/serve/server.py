"""From a table to a service that listens: the database, who answers, who may ask."""

from __future__ import annotations

import copy
import ipaddress
import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from exchangeable.completion import update
from exchangeable.completion.completer import Completer
from exchangeable.completion.fit import check_model
from exchangeable.completion.predictors import ModelPredictor
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.serve.app import create_app
from exchangeable.serve.engine import Engine, Make
from exchangeable.serve.guard import Limits
from exchangeable.training.trained_model import SYNTHETIC, TRAINED_ON

LEAST_TOKEN = 16
"""Characters: fewer could be guessed."""
DRAINED = 8
"""Seconds that calls under way have to end when the service is to stop."""
ENDED = 10
"""Seconds after which it ends in any case: what was acknowledged is durable."""
CONNECTIONS = 1000
"""At a time."""

log = logging.getLogger("exchangeable.serve")


@dataclass(frozen=True)
class Address:
    """Where the service listens, and to whom."""

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    anyone: bool = False
    """Whether it may be reached from elsewhere without a token."""

    def __post_init__(self) -> None:
        if not self._here and self.token is None and not self.anyone:
            raise InputError(
                f"at {self.host} anyone could read and change the table: a token is needed "
                f"(--token-file), or --anyone"
            )

    @property
    def _here(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names that calls may use, where nothing else keeps strangers out."""
        if self.token is not None or self.anyone:
            return None
        return frozenset({"localhost", "127.0.0.1", "[::1]", self.host})

    def bound(self) -> socket.socket:
        """Found out first of all, before anything is read."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # By its protocol asyncio knows that answers are to go out at once: else 40 ms are waited.
        taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((self.host.strip("[]"), self.port))
        except (OSError, OverflowError) as error:
            taken.close()
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{self.host}:{self.port} cannot be listened at: {reason}") from None
        return taken


def token_in(path: Path) -> str:
    """The token in a file, without the line feed at its end."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not plain text"
        raise InputError(f"{path}: the token cannot be read ({reason})") from None
    if len(token) < LEAST_TOKEN or any(letter.isspace() for letter in token):
        raise InputError(
            f"{path}: a token of {LEAST_TOKEN} characters or more without spaces is needed, but "
            f"it has {len(token)}"
        )
    return token


def completer_factory(model: str, seed: int, device: str) -> Make:
    """Who reads a table, whenever that is needed: nothing is trained."""
    check_model(model)
    if model in ("residual", "factorized"):
        raise InputError(
            f"{model} would be trained anew at each refresh: train it, save it, and serve its "
            f"folder"
        )
    return lambda table: Completer(model, seed=seed, device=device).fit_table(table)


def factory_like(completer: Completer) -> Make:
    """The same, with the model of a completer that was saved."""
    predictor = completer.predictor_
    if (
        not isinstance(predictor, ModelPredictor)
        or predictor.trained.facts.get(TRAINED_ON) == SYNTHETIC
    ):
        return completer_factory(str(completer.model), completer.seed, completer.device)

    def read(table: Table) -> Completer:
        found = copy.copy(completer)
        found._take(update.reread(completer._fitted(), table))
        return found

    return read


def serve(desk: Engine, at: Address, taken: socket.socket, limits: Limits | None = None) -> None:
    """Until it is stopped, and then until calls under way are answered."""
    _log_in_lines()
    app = create_app(desk, limits=limits, token=at.token, hosts=at.hosts, watched=_heard)
    config = uvicorn.Config(
        app,
        limit_concurrency=CONNECTIONS,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAINED,
    )
    with suppress(KeyboardInterrupt):  # raised again once all is ended, as it was asked to
        _Server(config).run(sockets=[taken])


class _Server(uvicorn.Server):
    """Ends in time, even while a file is completed, which nothing can stop."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        last = threading.Timer(ENDED, os._exit, (0,))
        last.daemon = True
        last.start()


def _heard(method: str, route: str, status: int, seconds: float) -> None:
    told = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 2)}
    log.info("call", extra={"told": told})


class _Lines(logging.Formatter):
    """A JSON object a line: what happened, never what people rated."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "told", {}),
        }
        return json.dumps(told)


def _log_in_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    for name in ("exchangeable.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "exchangeable.serve" else logging.WARNING)
