# SPDX-License-Identifier: Apache-2.0
"""What the exit codes mean, and which error gives which: one table, which `kvflags help exit-codes` prints."""

from __future__ import annotations

from enum import IntEnum

from kvflags.errors import ErrorCode, KvflagsError

__all__ = ["BY_ERROR", "MEANINGS", "ExitCode", "exit_code"]


class ExitCode(IntEnum):
    """Never renumbered: pipelines branch on them."""

    OK = 0
    FINDING = 1
    USAGE = 2
    UNDECIDED = 3
    AUTH = 4
    UNREACHABLE = 5
    INTERNAL = 70
    # What shells report for a process that ended by Ctrl-C.
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "Done. For a report: it was written, whatever it says.",
    ExitCode.FINDING: "A finding: a regression, an abort, or something that `doctor` or a validation found.",
    ExitCode.USAGE: "What was asked for is wrong (usage, configuration, files), and nothing was changed.",
    ExitCode.UNDECIDED: "Undecided: the time given ran out, or there is not enough data yet.",
    ExitCode.AUTH: "The token is missing, or its scope does not allow this.",
    ExitCode.UNREACHABLE: "The collector cannot be reached, or cannot answer now. Trying again later may help.",
    ExitCode.INTERNAL: "A fault in kvflags itself. Please report it.",
    ExitCode.INTERRUPTED: "Interrupted from the keyboard.",
}

BY_ERROR: dict[ErrorCode, ExitCode] = {
    ErrorCode.INVALID: ExitCode.USAGE,
    ErrorCode.UNKNOWN_FLAG: ExitCode.USAGE,
    ErrorCode.UNKNOWN_DEPLOYMENT: ExitCode.USAGE,
    ErrorCode.UNKNOWN_REGISTRATION: ExitCode.USAGE,
    ErrorCode.UNKNOWN_BACKEND: ExitCode.USAGE,
    ErrorCode.UNKNOWN_TOKEN: ExitCode.USAGE,
    ErrorCode.UNKNOWN_FEEDBACK: ExitCode.USAGE,
    ErrorCode.FLAG_EXISTS: ExitCode.USAGE,
    ErrorCode.FEATURE_TAKEN: ExitCode.USAGE,
    ErrorCode.STALE_REVISION: ExitCode.USAGE,
    ErrorCode.WRONG_PHASE: ExitCode.USAGE,
    ErrorCode.DUPLICATE_IDENTITY: ExitCode.USAGE,
    ErrorCode.PINNED: ExitCode.USAGE,
    ErrorCode.NOT_ELIGIBLE: ExitCode.USAGE,
    ErrorCode.KEY_REUSED: ExitCode.USAGE,
    ErrorCode.NOT_A_HUB: ExitCode.USAGE,
    ErrorCode.NOT_OPTED_IN: ExitCode.USAGE,
    ErrorCode.BAD_SIGNATURE: ExitCode.USAGE,
    ErrorCode.IMPLAUSIBLE_BUNDLE: ExitCode.USAGE,
    ErrorCode.DUPLICATE_BUNDLE: ExitCode.USAGE,
    ErrorCode.REVOKED_BUNDLE: ExitCode.USAGE,
    ErrorCode.UNKNOWN_BUNDLE: ExitCode.USAGE,
    ErrorCode.UNKNOWN_ORGANISATION: ExitCode.USAGE,
    ErrorCode.ORGANISATION_LEFT: ExitCode.USAGE,
    ErrorCode.HUB_FULL: ExitCode.USAGE,
    ErrorCode.UNAUTHORIZED: ExitCode.AUTH,
    ErrorCode.NOT_READY: ExitCode.USAGE,
    ErrorCode.UNREACHABLE: ExitCode.UNREACHABLE,
    ErrorCode.OVERLOADED: ExitCode.UNREACHABLE,
    ErrorCode.DATABASE_REVISION: ExitCode.USAGE,
    ErrorCode.DATABASE_BUSY: ExitCode.UNREACHABLE,
    ErrorCode.PORT_IN_USE: ExitCode.USAGE,
    ErrorCode.INTERNAL: ExitCode.INTERNAL,
}


def exit_code(error: KvflagsError) -> ExitCode:
    """The exit code of an error, by its code."""
    return BY_ERROR[error.code]
