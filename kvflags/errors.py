# SPDX-License-Identifier: Apache-2.0
"""The errors of kvflags, each with a stable code that API bodies and exit codes are derived from.

KvflagsError
├── UsageError         what was asked for is wrong and can be put right by the caller
│   ├── NotFound       no flag, deployment or engine of that name
│   └── Conflict       right in itself, but not in the present state (stale revision, already there)
├── Unauthorized       no token, or one without the scope
├── Unavailable        the collector or its database cannot be reached or cannot answer now
└── OperatorError      the surroundings must be put right first (port in use, database at another revision)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

__all__ = [
    "Conflict",
    "ErrorCode",
    "KvflagsError",
    "NotFound",
    "OperatorError",
    "Unauthorized",
    "Unavailable",
    "UsageError",
]


class ErrorCode(StrEnum):
    """Never renamed: scripts match on them."""

    INVALID = "invalid"
    UNKNOWN_FLAG = "unknown_flag"
    UNKNOWN_DEPLOYMENT = "unknown_deployment"
    UNKNOWN_REGISTRATION = "unknown_registration"
    UNKNOWN_BACKEND = "unknown_backend"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 - the name of an error
    UNKNOWN_FEEDBACK = "unknown_feedback"
    FLAG_EXISTS = "flag_exists"
    FEATURE_TAKEN = "feature_taken"
    STALE_REVISION = "stale_revision"
    WRONG_PHASE = "wrong_phase"
    DUPLICATE_IDENTITY = "duplicate_identity"
    PINNED = "pinned"
    NOT_ELIGIBLE = "not_eligible"
    KEY_REUSED = "key_reused"
    NOT_A_HUB = "not_a_hub"
    NOT_OPTED_IN = "not_opted_in"
    BAD_SIGNATURE = "bad_signature"
    IMPLAUSIBLE_BUNDLE = "implausible_bundle"
    DUPLICATE_BUNDLE = "duplicate_bundle"
    REVOKED_BUNDLE = "revoked_bundle"
    UNKNOWN_BUNDLE = "unknown_bundle"
    UNKNOWN_ORGANISATION = "unknown_organisation"
    ORGANISATION_LEFT = "organisation_left"
    HUB_FULL = "hub_full"
    UNAUTHORIZED = "unauthorized"
    NOT_READY = "not_ready"
    UNREACHABLE = "unreachable"
    OVERLOADED = "overloaded"
    DATABASE_REVISION = "database_revision"
    DATABASE_BUSY = "database_busy"
    PORT_IN_USE = "port_in_use"
    INTERNAL = "internal"


class KvflagsError(Exception):
    """The root. `message` says what is wrong, `hint` what to do about it (often the command to run).

    `detail` is for programs, and plain JSON: what differs, where two changes met.
    """

    default_code = ErrorCode.INTERNAL

    def __init__(
        self, message: str, *, hint: str = "", code: ErrorCode | None = None, detail: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code
        self.detail = detail


class UsageError(KvflagsError):
    """The caller can put it right: a value out of range, a name that is not known."""

    default_code = ErrorCode.INVALID


class NotFound(UsageError):
    """Nothing of that name exists."""

    default_code = ErrorCode.UNKNOWN_FLAG


class Conflict(UsageError):
    """Right in itself, but the present state forbids it."""

    default_code = ErrorCode.STALE_REVISION


class Unauthorized(KvflagsError):
    """No token was given, or it lacks the scope."""

    default_code = ErrorCode.UNAUTHORIZED


class Unavailable(KvflagsError):
    """Nobody answered, or the answer was "not now"."""

    default_code = ErrorCode.UNREACHABLE


class OperatorError(KvflagsError):
    """Something around us must be put right first: a port in use, a database at another revision."""

    default_code = ErrorCode.NOT_READY
