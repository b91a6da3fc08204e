# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""The settings of `serve` in a file: a YAML or JSON mapping of its options, such as `port: 4318`. The environment and
the command line go before it, by Typer's own order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kvflags.errors import UsageError

__all__ = ["ENVIRONMENT", "settings_from"]

# Each option of `serve` is read from KVFLAGS_SERVE_<OPTION> too.
ENVIRONMENT = {"auto_envvar_prefix": "KVFLAGS_SERVE"}

# Written by hand: a few lines for each of the few dozen options.
_MOST_BYTES = 64 * 1024


def settings_from(context: typer.Context, path: Path | None) -> Path | None:
    """Take what the file says as the defaults of the command's options. Raises UsageError for what it cannot say."""
    if path is not None:
        known = {option.lstrip("-"): one.name for one in context.command.params for option in one.opts}
        said = _read(path)
        known = {name: known[name] for name in known if name not in {"config", "json"}}
        if strange := sorted(map(str, said.keys() - known.keys())):
            hint = f"an option of `kvflags serve` without its dashes: {', '.join(sorted(known))}"
            raise UsageError(f"{path}: unknown setting {', '.join(map(repr, strange))}", hint=hint)
        context.default_map = {str(known[name]): _plain(path, name, value) for name, value in said.items()}
    return path


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_BYTES + 1)
        said = yaml.safe_load(text) if len(text) <= _MOST_BYTES else None
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read: {error}", hint="give a YAML or JSON file of settings") from error
    if not isinstance(said, dict):
        raise UsageError(f"{path}: not a mapping of settings", hint="such as `port: 4318`, a line for each option")
    return said


def _plain(path: Path, name: str, value: object) -> str | bool:
    """As the command line would have it; a switch is true or false."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {name}: not a plain value", hint="such as `keep-raw: 15d`")
    return str(value)
