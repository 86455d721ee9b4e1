"""Where requests come from: clients by address, names of this service, pages, and proxies.

A browser sends requests for any page that it shows. What tells them apart are headers that pages
cannot choose: Host, Origin, and those that start with Sec-Fetch.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from exchangeable.serve.limits import LOCAL

RETRY_AFTER = "1"
"""Seconds after which a client that was refused with 429 or 503 may try again."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PORTS = {"http": 80, "https": 443}
_HOME_PREFIX = 64  # an IPv6 client may use any address of its network
_PROXY_HEADERS = ("forwarded", "x-real-ip", "via")
_PROXY_PREFIX = "x-forwarded-"  # of for, host, proto, port, server


class Refused(Exception):
    """A request that does not reach its route."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


@dataclass(frozen=True)
class Origins:
    """Host names that requests may use, and whether they may come through a proxy."""

    names: frozenset[str] | None = None
    """Host names; None allows any, since a token that no page knows is needed anyway."""
    addresses: bool = False
    """Whether any address may be used in place of a name: no other site has it for a name."""
    proxies: bool = True
    """Whether requests may come through a proxy, which may publish the service."""

    def check(self, headers: Headers, *, works: bool) -> None:
        """Refuse requests for other hosts and, if they ask for work, of other sites."""
        self._check_host(headers.get("host", ""))
        if not works:
            return
        _check_site(headers)
        if not self.proxies and any(
            name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIX) for name in headers
        ):
            raise Refused(
                403,
                "this request came through a proxy, which may publish the table to anyone: start "
                "the service with --token-file",
            )

    def _check_host(self, host: str) -> None:
        """Refuse foreign host names: another site may point its own name at this address."""
        name = _name_of(host)
        if self.names is None or name in self.names:
            return
        if self.addresses and _is_address(name):
            return
        raise Refused(421, f"{name[:100]!r} is not a host name of this service")


def client_of(address: tuple[str, int] | list[object] | None) -> str:
    """The client at an address: itself, its network for IPv6, or ``LOCAL``."""
    try:
        host = ipaddress.ip_address(str(address[0]).split("%")[0]) if address else None
    except ValueError:
        return LOCAL  # a test's name, or a socket without an address
    if host is None or host.is_loopback:
        return LOCAL
    if isinstance(host, ipaddress.IPv6Address):
        if host.ipv4_mapped is not None:
            return client_of((str(host.ipv4_mapped), 0))
        return str(ipaddress.ip_network((host, _HOME_PREFIX), strict=False))
    return str(host)


def machine_names() -> frozenset[str]:
    """Names of this machine that need no question to a name server."""
    host = socket.gethostname().lower()
    return LOCAL_NAMES | {host, f"{host}.local"}


def _check_site(headers: Headers) -> None:
    """Refuse what a browser sends for a page of another site, or of another port."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # a page cannot set it
        allowed = site in ("same-origin", "none")  # none: an address that was typed
    else:  # a browser from before 2023, or a page without https, or no browser at all
        allowed = _is_same(headers.get("origin"), headers.get("host", ""))
    if not allowed:
        raise Refused(403, "pages of other sites may not use this service")


def _is_same(origin: str | None, host: str) -> bool:
    """Whether an Origin header, if there is one, names the host that was asked."""
    if origin is None:
        return True
    try:
        parts, asked = urlsplit(origin), urlsplit(f"{urlsplit(origin).scheme}://{host}")
        port = _PORTS.get(parts.scheme)
        one, other = parts.port or port, asked.port or port
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.hostname, one) == (asked.hostname, other)


def _name_of(host: str) -> str:
    """The host name of a Host header, without the port."""
    return (host if host.endswith("]") else host.rsplit(":", 1)[0]).lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
