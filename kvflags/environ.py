# SPDX-License-Identifier: Apache-2.0
"""Reading settings out of an environment: each value is checked, and what is wrong with it is kept in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["Reader", "id_problem", "problem_code", "says_no"]

# A Kubernetes name is at most 253 bytes, and ids appear in URLs, labels and primary keys.
_MAX_ID_BYTES = 253

_MAX_WAIT_S = 86_400.0


def id_problem(value: str) -> str:
    """Why `value` cannot name a deployment or a generation; empty when it can. Collector and CLI ask here too."""
    if not value.strip():
        return "is empty"
    if not value.isprintable() or value != value.strip():
        return "has control characters, or white space at an end"
    if len(value.encode()) > _MAX_ID_BYTES:
        return f"is longer than {_MAX_ID_BYTES} bytes"
    return ""


def problem_code(problem: str) -> str:
    """The part of a problem that goes over the wire."""
    return problem.partition(": ")[0]


def says_no(value: str) -> bool:
    """Whether a switch is off: nothing, or a word for no. Any other word is a yes."""
    return value.strip().lower() in {"", "0", "false", "no", "off"}


class Reader:
    """Reads one setting at a time and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def wrong(self, name: str, says: str, hint: str) -> None:
        self.problems.append(f"{name}: {says}; hint: {hint}")

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self._environ.get(name, "").strip().lower()
        if value in allowed:
            return str(value)
        if value:
            self.wrong(name, f"{value[:40]!r} is ignored", f"set it to {', '.join(allowed)}, or not at all")
        return None

    def id(self, name: str, otherwise: str) -> str | None:
        value = self._environ.get(name)
        if value is None:
            return None
        if wrong := id_problem(value):
            self.wrong(name, f"it {wrong}", f"give 1 to {_MAX_ID_BYTES} printable bytes; until then {otherwise}")
            return None
        return value

    def deployment(self) -> str | None:
        if "KVFLAGS_DEPLOYMENT" in self._environ:
            return self.id("KVFLAGS_DEPLOYMENT", "this engine is observed as unidentified")
        namespace, app = self._environ.get("POD_NAMESPACE"), self._environ.get("APP_LABEL")
        if not namespace or not app:
            return None
        named = "/".join(part for part in (self._environ.get("CLUSTER_NAME"), namespace, app) if part)
        return None if id_problem(named) else named

    def url(self, name: str) -> str | None:
        value = self._environ.get(name, "").strip().rstrip("/")
        if value and not _is_address(value):
            # The value is not repeated: it may hold a password.
            self.wrong(
                name, "it is not an address", "write http://HOST:PORT or https://HOST, the token in KVFLAGS_TOKEN"
            )
            return None
        return value or None

    def token(self, name: str) -> str | None:
        # Files of secrets tend to end in a line feed, which would break the header they are sent in.
        value = self._environ.get(name, "").strip()
        if value and not (value.isascii() and value.isprintable() and " " not in value):
            self.wrong(name, "it has characters that no token has", "give the token that the collector was given")
            return None
        return value or None

    def wait(self, name: str, otherwise: float) -> float:
        """Seconds."""
        value = self._environ.get(name, "").strip().lower()
        if value in {"", "off"}:
            return otherwise
        kind, _, number = value.partition(":")
        seconds = _number(number)
        if kind == "wait" and seconds is not None and 0 <= seconds <= _MAX_WAIT_S:
            return seconds
        self.wrong(name, f"{value[:40]!r} is ignored", "set it to off or wait:SECONDS, SECONDS at most 86400")
        return otherwise

    def state_dir(self, name: str) -> str | None:
        home, state = self._environ.get("HOME", ""), self._environ.get("XDG_STATE_HOME", "")
        value = self._environ.get(name, "")
        if value.startswith("~/"):
            value = home + value[1:]
        if value and not _is_absolute(value):
            self.wrong(name, "it is not an absolute path", "give a directory that the engine can write to")
        for folder in (value, f"{state}/kvflags" if state else "", f"{home}/.local/state/kvflags" if home else ""):
            if _is_absolute(folder):
                return folder
        return None


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and "\0" not in path


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return False
    extras = parts.username or parts.password or parts.query or parts.fragment
    plain = value.isascii() and value.isprintable() and " " not in value
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port_is_fine and not extras and plain
