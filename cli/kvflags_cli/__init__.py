# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""The `kvflags` command. It speaks HTTP to a collector; only `serve` and `db` (and the demo) import the service itself.

`app` is the Typer application with all commands, `run` turns what they raise into messages and exit codes. The commands
are thin; `checks` is what `doctor` looks at, and `render` draws what the collector answered.

Imports inside functions are deliberate here: `kvflags --help` and completion need neither HTTP, Rich nor the service.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

# Where nothing but the base of the distribution is installed (an engine's image), these are what is missing.
_CLI_MODULES = frozenset({"httpx", "rich", "typer"})


def main() -> None:
    """The console script: run the command line of this process and exit with its code."""
    try:
        from kvflags_cli.run import run
    except ModuleNotFoundError as missing:
        if missing.name not in _CLI_MODULES:
            raise
        sys.exit(_without_the_extra(missing.name))
    sys.exit(run(sys.argv[1:]))


def _without_the_extra(module: str | None) -> int:
    sys.stderr.write(
        f"error: the kvflags command is not installed here: {module} is missing\n\nhint: pip install 'kvflags[cli]'\n"
    )
    return 2
