# SPDX-License-Identifier: Apache-2.0
"""Every setting with the value that holds here and where that comes from. Secrets are never in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import typer

from kvflags.errors import UsageError
from kvflags.settings import SETTINGS, Settings, problem_code
from kvflags_cli.settings import VARIABLES, connection

__all__ = ["Row", "masked", "of_command", "of_engine", "of_serve"]

_SECRET = re.compile(r"token|secret|password", re.IGNORECASE)
_PASSWORD = re.compile(r"(://[^:/@]*:)[^@/]*@")


class Row(NamedTuple):
    """value: None where none is set. origin: `default`, `environment NAME` or `file PATH`. problem: what is wrong."""

    read_by: str
    name: str
    value: str | bool | None
    origin: str
    problem: str | None = None


def of_engine(environ: Mapping[str, str]) -> Iterator[Row]:
    """What an engine with this environment would go by."""
    read = Settings.from_environ(environ)
    wrong = {problem_code(one): one.partition(": ")[2] for one in read.problems}
    for setting in SETTINGS:
        name = setting.name
        if name == "KVFLAGS_DEPLOYMENT" and not environ.get(name) and read.deployment:
            yield Row("engines", name, read.deployment, "environment POD_NAMESPACE, APP_LABEL")
        else:
            yield _variable("engines", name, setting.default, environ, wrong.get(name))


def of_command(environ: Mapping[str, str]) -> Iterator[Row]:
    """What the command line itself would go by, without its options."""
    for setting in VARIABLES:
        row = _variable("the kvflags command", setting.name, setting.default, environ, None)
        yield _left(row, environ) if row.name == "KVFLAGS_TOKEN" and row.value is None else row


def of_serve(context: typer.Context, environ: Mapping[str, str]) -> Iterator[Row]:
    """What `kvflags serve` would go by: its context, as Typer parsed it."""
    for option in context.command.params:
        if option.name not in {None, "config", "as_json"}:
            flag, name = option.opts[-1], str(option.name)
            value = context.params.get(name)
            shown = value if value is None or isinstance(value, bool) else masked(flag, str(value))
            yield Row("kvflags serve", flag, shown, _origin(context, name, option.envvar, environ))


def masked(name: str, value: str) -> str:
    """The value, or stars in place of what only its owner should read."""
    return "***" if value and _SECRET.search(name) else _PASSWORD.sub(r"\1***@", value)


def _left(row: Row, environ: Mapping[str, str]) -> Row:
    """The token that a collector of this machine left, or why that one is not used."""
    try:
        local = connection(None, environ).local
    except UsageError:
        return row
    if local is None or not (local.value or local.problem):
        return row
    problem = f"{local.path} {local.problem}" if local.problem else None
    return row._replace(value="***" if local.value else None, origin=f"file {local.path}", problem=problem)


def _variable(read_by: str, name: str, default: str, environ: Mapping[str, str], problem: str | None) -> Row:
    value = environ.get(name)
    if value is None or (not value and name != "NO_COLOR"):
        return Row(read_by, name, default or None, "default", problem)
    return Row(read_by, name, masked(name, value), f"environment {name}", problem)


def _origin(context: typer.Context, name: str, variable: str | Sequence[str] | None, environ: Mapping[str, str]) -> str:
    """In Typer's words; a variable that an option names itself goes before the one that it has by its name."""
    source = context.get_parameter_source(name)
    match source.name if source else "DEFAULT":
        case "ENVIRONMENT":
            own = isinstance(variable, str) and environ.get(variable)
            return f"environment {variable if own else f'{context.auto_envvar_prefix}_{name.upper()}'}"
        case "DEFAULT_MAP":
            return f"file {context.params['config']}"
    return "default"
