"""Bearer tokens and their roles: read, write and admin, for one table or for all."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from exchangeable.errors import InputError
from exchangeable.storage.schema import check_name

Role = Literal["read", "write", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Roles; each has the rights of those before it."""
MIN_TOKEN_LENGTH = 16
"""Minimum number of characters of a token: shorter ones could be guessed."""
_ADMIN_CALLS = frozenset({("DELETE", "members"), ("POST", "import"), ("GET", "export")})
_WRITING_METHODS = ("PUT", "DELETE", "PATCH")


@dataclass(frozen=True)
class Grant:
    """A role that a token has, for one table or for all."""

    token: bytes
    """SHA-256 of the token: comparing two takes as long whatever they are."""
    role: Role
    table: str | None = None

    @classmethod
    def of(cls, token: str, role: str, table: str | None = None) -> Grant:
        if role not in ROLES:
            raise InputError(f"a role must be one of {', '.join(ROLES)}, but is {role[:60]!r}")
        if not token.isascii() or len(token) < MIN_TOKEN_LENGTH or token.split() != [token]:
            raise InputError(
                f"a token must have at least {MIN_TOKEN_LENGTH} characters of ASCII and no spaces, "
                f"but this has {len(token)} characters"
            )
        named = None if table is None else check_name(table)
        return cls(_digest(token.encode()), role, named)


@dataclass(frozen=True)
class Access:
    """The roles of a request's token, by table; None stands for all tables."""

    roles: dict[str | None, Role]

    def role_for(self, table: str) -> Role | None:
        """The highest role for a table, if there is any."""
        roles = [self.roles[key] for key in (None, table) if key in self.roles]
        return max(roles, key=ROLES.index, default=None)

    def allows(self, role: Role, table: str) -> bool:
        """Whether a table may be used as a role may use it."""
        own = self.role_for(table)
        return own is not None and ROLES.index(own) >= ROLES.index(role)


EVERYTHING = Access({None: "admin"})
"""Access without tokens: origins limit it."""


class Tokens:
    """The tokens of a service."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self.grants = tuple(grants)

    @classmethod
    def of(cls, token: str) -> Tokens:
        """A single token, for everything."""
        return cls([Grant.of(token, "admin")])

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file: a single token for everything, or lines of a role, a table and a token.

        Without a table, a line is for all tables. Empty lines and those with # are left out.
        """
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not plain text"
            raise InputError(f"{path}: the token cannot be read ({reason})") from None
        entries = [line.split() for line in lines if line.strip() and line.strip()[0] != "#"]
        try:
            if len(entries) <= 1 and (not entries or len(entries[0]) == 1):
                return cls.of(entries[0][0] if entries else "")
            return cls([_grant(words) for words in entries])
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def access(self, token: bytes) -> Access | None:
        """The access of a token; None if it is not one of the service's. Compares it with all."""
        given = _digest(token)
        roles: dict[str | None, Role] = {}
        for grant in self.grants:
            same = hmac.compare_digest(given, grant.token)
            roles |= _higher(roles, grant) if same else {}
        return Access(roles) if roles else None

    def check_tables(self, names: Iterable[str]) -> None:
        """Raise if a token is for a table that is not served."""
        served = list(names)
        for grant in self.grants:
            if grant.table is not None and grant.table not in served:
                raise InputError(
                    f"tokens must be for tables that are served ({', '.join(served)}), but one is "
                    f"for {grant.table}"
                )


def needed_role(method: str, call: str) -> Role:
    """The role that a call needs: its name is what follows /v1/, or the table's address."""
    if ("GET" if method == "HEAD" else method, call) in _ADMIN_CALLS:
        return "admin"
    return "write" if method in _WRITING_METHODS else "read"


def _grant(words: Sequence[str]) -> Grant:
    """The grant of a line: role [table] token."""
    if len(words) not in (2, 3):
        raise InputError(
            f"a line must be a role ({', '.join(ROLES)}), a table unless it is for all, and a "
            f"token of at least {MIN_TOKEN_LENGTH} characters, but one has {len(words)} words"
        )
    return Grant.of(words[-1], words[0], words[1] if len(words) == 3 else None)


def _higher(roles: dict[str | None, Role], grant: Grant) -> dict[str | None, Role]:
    """The role of a grant for its table, unless another is higher."""
    other = roles.get(grant.table, grant.role)
    return {grant.table: max(other, grant.role, key=ROLES.index)}


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
