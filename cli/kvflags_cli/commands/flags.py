# SPDX-License-Identifier: Apache-2.0
"""`kvflags flags`: create, list, show and archive flags; keep them as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvflags.errors import UsageError
from kvflags.flags import MEASURES
from kvflags_cli.commands import connect
from kvflags_cli.exit_codes import ExitCode
from kvflags_cli.flag_files import problems, read
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Author, Collector, Key, Output, Reason, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import duration
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="The stored rollouts: create, list, show, archive; keep them as files.",
    rich_markup_mode=None,
    epilog=example("kvflags flags list"),
)

NewKey = Annotated[str, typer.Argument(metavar="KEY", help="The new flag's name.", show_default=False)]
Feature = Annotated[str, typer.Option("--feature", metavar="NAME", help="The engine behaviour that it switches.")]
Baseline = Annotated[str, typer.Option("--baseline", metavar="TIME", help="How long a deployment is observed first.")]
Criteria = Annotated[
    list[str] | None,
    typer.Option(
        "--criterion",
        metavar="TEXT",
        help=f"What must hold before it is the default: 'verdict = ready', or one of {', '.join(MEASURES)} with >=, <= "
        "or = and a number, such as 'days >= 14'. Repeat it.",
        show_default=False,
    ),
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="DAY", help="When it should be decided, such as 2027-06-01.", show_default=False),
]
NewDay = Annotated[
    str | None,
    typer.Option("--expires", metavar="DAY", help="The last day on which it stands, UTC.", show_default=False),
]
Never = Annotated[bool, typer.Option("--never", help="It does not expire.")]
Quiet = Annotated[str, typer.Option("--quiet", metavar="TIME", help="How long it must have had no new engine.")]


Files = Annotated[
    list[Path], typer.Option("-f", "--file", metavar="PATH", help="A YAML or JSON file, or a folder. Repeat it.")
]


@app.command(
    epilog=example(
        "kvflags flags create cross-layer-blocks --feature cross_layer_blocks",
        "kvflags flags create KEY --feature NAME --criterion 'treated >= 8' --expires 2027-06-01",
    )
)
def create(
    *,
    key: NewKey,
    feature: Feature,
    baseline: Baseline = "7d",
    quiet: Quiet = "10m",
    criterion: Criteria = None,
    expires: Expires = None,
    reason: Reason = "created",
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Create a flag as a draft: it observes, and treats nobody until a percentage or a count is set."""
    body = {
        "key": key,
        "feature": feature,
        "baseline_s": round(duration(baseline, "--baseline")),
        "quiet_s": round(duration(quiet, "--quiet")),
        "criteria": criterion or [],
        "expires": expires,
        "author": author or this_author(),
        "reason": reason,
    }
    with connect(collector) as client:
        flag = client.post("flags", body=body)
    show("flag", flag, as_json=as_json)
    say(f"next: kvflags rollout set {key} 5% --reason TEXT")


@app.command("list", epilog=example("kvflags flags list", "kvflags flags list -o name"))
def list_flags(output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """List the flags."""
    with connect(collector) as client:
        show("flags", client.items("flags"), output, as_json=as_json)


@app.command("show", epilog=example("kvflags flags show cross-layer-blocks"))
def show_flag(key: Key, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """Show one flag: its phase, targets and settings."""
    with connect(collector) as client:
        show("flag", client.get("flags", key), output, as_json=as_json)


@app.command(epilog=example("kvflags flags validate -f flags/"))
def validate(files: Files, as_json: AsJson = False) -> None:
    """Check files against the schema, without a collector. Exits 1 when anything is wrong."""
    wrong = [one._asdict() for one in problems(read(files))]
    show("validation", wrong, as_json=as_json)
    if wrong:
        raise typer.Exit(ExitCode.FINDING)


@app.command(epilog=example("kvflags flags diff -f flags/"))
def diff(files: Files, collector: Collector = None, as_json: AsJson = False) -> None:
    """Show what `apply` would change: a dry run on the collector. Exits 1 when there is a difference."""
    changes = _apply(files, "diff", None, collector, dry_run=True)
    show("changes", changes, as_json=as_json)
    if any(one["diff"] for one in changes):
        raise typer.Exit(ExitCode.FINDING)


@app.command(epilog=example("kvflags flags apply -f flags/ --reason 'merged #12'"))
def apply(
    *, files: Files, reason: Reason, author: Author = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Make the flags as these files say. What a file leaves out has its default; phases stay as they are."""
    show("changes", _apply(files, reason, author, collector, dry_run=False), as_json=as_json)


@app.command(
    epilog=example("kvflags flags extend cross-layer-blocks --expires 2027-09-01 --reason 'waiting for H200s'")
)
def extend(
    *,
    key: Key,
    reason: Reason,
    expires: NewDay = None,
    never: Never = False,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Move the day on which a flag expires. The ramp of an expired flag takes no step by itself."""
    if (expires is None) is not never:
        raise UsageError("give exactly one of --expires DAY and --never", hint="such as --expires 2027-06-01")
    body = {"expires": expires, "author": author or this_author(), "reason": reason}
    with connect(collector) as client:
        show("flag", client.put("flags", key, "expiry", body=body), as_json=as_json)


@app.command(epilog=example("kvflags flags archive cross-layer-blocks --reason 'it is the default upstream'"))
def archive(
    *, key: Key, reason: Reason, author: Author = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Put an ended flag away; its feature is free for another."""
    body = {"author": author or this_author(), "reason": reason}
    with connect(collector) as client:
        show("flag", client.post("flags", key, "archive", body=body), as_json=as_json)


def _apply(
    paths: list[Path], reason: str, author: str | None, collector: str | None, *, dry_run: bool
) -> list[dict[str, Any]]:
    """Every file is checked before the first is applied."""
    documents = read(paths)
    if wrong := next(problems(documents), None):
        where = f" {wrong.where}:" if wrong.where else ""
        raise UsageError(f"{wrong.file}:{where} {wrong.says}", hint="`kvflags flags validate -f` lists everything")
    said = {"author": author or this_author(), "reason": reason, "dry_run": dry_run}
    with connect(collector) as client:
        return [client.put("flags", one["key"], body={"file": one, **said}) for _, one in documents]
