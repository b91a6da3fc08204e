# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""What making a feature the default leaves behind: the report that it rests on, and the change to vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvflags.errors import UsageError
from kvflags.features import FEATURES

__all__ = ["write"]


def write(document: dict[str, Any], folder: Path) -> list[Path]:
    """The report as Markdown and, where a stratum is proven, the patch; named by flag and day. What was written.

    UsageError where the folder cannot be written to. Files of the same day are replaced.
    """
    from kvflags_cli.render.written.markdown import markdown

    named = f"{document['flag']['key']}-{document['generated_at'][:10]}"
    files = {folder / f"{named}.md": markdown(document)}
    if proven := document["predicate"]:
        change = FEATURES[document["flag"]["feature"]].patch(proven["where"], document["reproduce"])
        files[folder / f"{named}.patch"] = change
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "name a folder that can be written to: --out DIR"
        raise UsageError(f"cannot write the report to {folder}: {error.strerror}", hint=hint) from error
    return list(files)
