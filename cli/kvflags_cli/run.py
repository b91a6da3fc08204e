# SPDX-License-Identifier: Apache-2.0
"""One invocation: run the application on these arguments, give back the exit code. Every error ends here, in words."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import typer
from typer.exceptions import TyperException

from kvflags.errors import KvflagsError, UsageError
from kvflags_cli.app import app
from kvflags_cli.exit_codes import ExitCode, exit_code
from kvflags_cli.forms import asked
from kvflags_cli.output import fail

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """The exit code of `kvflags ARGUMENTS`. Never raises, except what ends the process (SystemExit of a completion)."""
    _replace_what_cannot_be_encoded()
    try:
        code = app(list(arguments), prog_name="kvflags", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.OK
    except TyperException as error:
        return _failed(_usage_error(error), arguments)
    except KvflagsError as error:
        return _failed(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # noqa: BLE001 - the last resort: a fault of ours is told, with its own exit code
        return _failed(_fault(error), arguments)


def _failed(error: KvflagsError, arguments: Sequence[str]) -> int:
    fail(error, asked(arguments))
    return exit_code(error)


def _usage_error(error: TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kvflags"
    # Typer lets Pydantic check values, whose words for an enumeration begin with what is of no use to anybody.
    message = error.format_message().replace(": Value error, ", ": ")
    return UsageError(message, hint=f"see `{command} --help`")


def _fault(error: Exception) -> KvflagsError:
    if os.environ.get("KVFLAGS_STRICT") == "1":
        raise error
    return KvflagsError(
        f"kvflags failed: {type(error).__name__}: {error}",
        hint="this is a fault of kvflags; KVFLAGS_STRICT=1 shows where it happened, which helps in a report",
    )


def _reader_gone() -> int:
    """`kvflags ... | head`: the reader has what it wanted. The flush at exit must not fail on the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _replace_what_cannot_be_encoded() -> None:
    # A terminal without UTF-8 shows an escape for the icons in place of a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
