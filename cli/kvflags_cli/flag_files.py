# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""Flags kept in files (YAML or JSON, one flag a document): read and checked here, so that a hook needs no collector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from kvflags.errors import UsageError
from kvflags.features import FEATURES
from kvflags.flags import criterion_problem

__all__ = ["Problem", "problems", "read"]

Json = dict[str, Any]


class Problem(NamedTuple):
    """One thing wrong with a file. `where` is the path of the value in it, empty for the document."""

    file: str
    where: str
    says: str


def read(paths: Iterable[Path]) -> list[tuple[str, Json]]:
    """(file, document) of every flag in these files and folders. UsageError for what cannot be read or is none."""
    found = [(str(path), document) for path in _files(paths) for document in _documents(path)]
    if not found:
        hint = "give -f a .yaml, .yml or .json file, or a folder of them"
        raise UsageError("there is no flag in these files", hint=hint)
    return found


def problems(documents: Iterable[tuple[str, Any]]) -> Iterator[Problem]:
    """Everything that is wrong with these documents by the published schema, and keys that two of them share."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(json.loads(files("kvflags_cli").joinpath("flag.schema.json").read_text()))
    keys: dict[str, str] = {}
    for name, document in documents:
        for error in sorted(validator.iter_errors(document), key=lambda error: error.json_path):
            yield Problem(name, error.json_path.removeprefix("$").removeprefix("."), error.message)
        if isinstance(document, dict) and isinstance(key := document.get("key"), str):
            if key in keys:
                yield Problem(name, "key", f"{key!r} is in {keys[key]} too")
            keys[key] = name
            yield from _feature(name, document)
            yield from _criteria(name, document)


def _feature(name: str, document: Json) -> Iterator[Problem]:
    feature = document.get("feature")
    if isinstance(feature, str) and feature not in FEATURES:
        yield Problem(name, "feature", f"there is no feature {feature!r}; features: {', '.join(sorted(FEATURES))}")


def _criteria(name: str, document: Json) -> Iterator[Problem]:
    declared = document.get("criteria")
    for number, text in enumerate(declared if isinstance(declared, list) else ()):
        if isinstance(text, str) and (wrong := criterion_problem(text)):
            yield Problem(name, f"criteria[{number}]", wrong)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.rglob("*") if one.suffix in {".yaml", ".yml", ".json"})
        else:
            yield path


def _documents(path: Path) -> Iterator[Json]:
    import yaml

    try:
        # JSON is YAML, so that one reader does for both.
        yield from (one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check the path after -f") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        says = " ".join(str(error).split())
        raise UsageError(f"{path} is not YAML: {says}", hint="`kvflags flags validate -f` checks files") from error
