# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""The `kvflags` command. It speaks HTTP to a collector; only `serve` and `db` (and the demo) import the service itself.

`app` is the Typer application with all commands, `run` turns what they raise into messages and exit codes. The commands
are thin; `checks` is what `doctor` looks at, and `render` draws what the collector answered.

Imports inside functions are deliberate here: `kvflags --help` and completion need neither HTTP, Rich nor the service.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

# Where nothing but the base of the distribution is installed (an engine's image), these are what is missing.
_CLI_EXTRA = ("httpx", "rich", "typer")


def main() -> None:
    """The console script: run the command line of this process and exit with its code."""
    missing = [module for module in _CLI_EXTRA if find_spec(module) is None]
    if missing:
        sys.stderr.write(
            f"error: the kvflags command is not installed here: {' and '.join(missing)} missing\n\n"
            "hint: pip install 'kvflags[cli]'\n"
        )
        sys.exit(2)
    from kvflags_cli.run import run

    sys.exit(run(sys.argv[1:]))
