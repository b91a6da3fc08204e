# SPDX-License-Identifier: Apache-2.0
"""`kvflags rollout`: how many deployments are treated, where it stands, and every way to steer, stop and go back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvflags.errors import UsageError
from kvflags_cli.commands import connect, rollout_get
from kvflags_cli.default_files import write
from kvflags_cli.exit_codes import ExitCode
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Author, Collector, Key, Output, Reason, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import duration, percentage, ramp_step
from kvflags_cli.restarts import SELECTOR, restarts
from kvflags_cli.settings import this_author
from kvflags_cli.wait import unsettled, until_none_is_treated, until_settled

__all__ = ["app"]

app = typer.Typer(
    help="Raise, lower, watch, pause, undo and stop a rollout.",
    rich_markup_mode=None,
    epilog=example("kvflags rollout status cross-layer-blocks"),
)

Percent = Annotated[
    str | None,
    typer.Argument(metavar="PERCENT", help="The share of deployments to treat, such as 25%.", show_default=False),
]
Count = Annotated[
    int | None,
    typer.Option("--count", metavar="N", help="A number of deployments in place of a share.", show_default=False),
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", metavar="NAME", help="Only deployments with this attention backend.", show_default=False),
]
Inherit = Annotated[
    bool, typer.Option("--inherit", help="Remove what was set for --backend: the default counts again.")
]
Revision = Annotated[
    int | None,
    typer.Option(
        "--revision", metavar="N", help="Refuse when the flag has changed since this one.", show_default=False
    ),
]
Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="LIST", help="Such as 1,2,5 or 1%,5%,25%,50%.", show_default=False),
]
Hold = Annotated[str, typer.Option("--hold", metavar="TIME", help="How long each step lasts at least.")]
Approve = Annotated[bool, typer.Option("--approve", help="Each step waits for a `promote` as well.")]
NoRamp = Annotated[bool, typer.Option("--clear", help="Take the ramp away; the aim stays where it is.")]
Default = Annotated[bool, typer.Option("--default", help="Make it the default.")]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where --default writes the report and the change to vLLM.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until no treated engine lives.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="How long to wait.")]
Settle = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Wait that long for replacements.", show_default=False),
]
To = Annotated[
    int | None,
    typer.Option("--to-revision", metavar="N", help="The revision to aim as; see `history`.", show_default=False),
]
Clear = Annotated[bool, typer.Option("--clear", help="Take the kill switch back.")]


@app.command(
    "set",
    epilog=example(
        "kvflags rollout set cross-layer-blocks 25% --reason 'a week without findings'",
        "kvflags rollout set cross-layer-blocks --count 2 --backend FLASH_ATTN --reason 'first two'",
    ),
)
def set_target(
    *,
    key: Key,
    reason: Reason,
    percent: Percent = None,
    count: Count = None,
    backend: Backend = None,
    inherit: Inherit = False,
    revision: Revision = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Set how many deployments are treated: PERCENT, or --count N. On a draft it starts the flag."""
    body = _target(percent, count, inherit) | {"reason": reason, "author": author or this_author()}
    body |= {name: value for name, value in (("backend", backend), ("revision", revision)) if value is not None}
    with connect(collector) as client:
        show("flag", client.put("flags", key, "target", body=body), as_json=as_json)
    say("Running generations keep what they have; it takes effect as deployments are replaced.")
    say(f"next: kvflags rollout status {key}")


@app.command(
    epilog=example(
        "kvflags rollout status cross-layer-blocks",
        "kvflags rollout status cross-layer-blocks --timeout 30m && deploy",
    )
)
def status(
    key: Key, timeout: Settle = None, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Show who is treated and what waits for a replacement. With --timeout, wait until nothing does.

    Then it exits 0 when everything runs what it should, 1 when the rollout was aborted, 3 when the time ran out.
    """
    with connect(collector) as client:
        if timeout is None:
            show("rollout_status", client.get("flags", key, "status"), output, as_json=as_json)
            return
        document = until_settled(client, key, duration(timeout, "--timeout"))
    show("rollout_status", document, output, as_json=as_json)
    if document["flag"]["phase"] == "aborted":
        raise typer.Exit(ExitCode.FINDING)
    if unsettled(document):
        raise typer.Exit(ExitCode.UNDECIDED)


app.command(epilog=rollout_get.EXAMPLE)(rollout_get.get)


@app.command(epilog=example("kvflags rollout kill cross-layer-blocks --reason 'decode pool restarts'"))
def kill(
    *,
    key: Key,
    reason: Reason,
    clear: Clear = False,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Set the kill switch: no generation is pinned on while it is set, and those that are on are condemned."""
    body = {"on": not clear, "reason": reason, "author": author or this_author()}
    with connect(collector) as client:
        show("flag", client.put("flags", key, "kill-switch", body=body), as_json=as_json)
    say(f"next: kvflags rollout status {key}")


@app.command(
    epilog=example(
        "kvflags rollout abort cross-layer-blocks --reason 'inter-token latency up'",
        "kvflags rollout abort cross-layer-blocks --reason 'errors' --wait --timeout 30m",
    )
)
def abort(
    *,
    key: Key,
    reason: Reason,
    wait: Wait = False,
    timeout: Timeout = "30m",
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """End the rollout: everything returns to off as it is replaced. With --wait, exits 0 once nothing is treated."""
    patience = duration(timeout, "--timeout")
    with connect(collector) as client:
        flag = client.post("flags", key, "abort", body=_change(reason, author))
        if not wait:
            show("flag", flag, as_json=as_json)
            say(f"kvflags restarts nothing: replace what still runs treated. next: kvflags rollout status {key}")
            return
        left = until_none_is_treated(client, key, patience)
        plan = restarts(client.get("flags", key, "status"), SELECTOR, "30m") if left else []
    show("treated", left, as_json=as_json)
    if left:
        say("replace them:\n" + "\n".join(f"  {command}" for one in plan for command in one["commands"]))
        raise typer.Exit(ExitCode.UNDECIDED)


@app.command(epilog=example("kvflags rollout start cross-layer-blocks --reason 'fixed in r42'"))
def start(
    key: Key, reason: Reason, author: Author = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Start a draft, or start again what was aborted. What was condemned stays condemned."""
    _act("start", key, _change(reason, author), collector, as_json=as_json)


@app.command(epilog=example("kvflags rollout pause cross-layer-blocks --reason 'a release week'"))
def pause(
    key: Key, reason: Reason, author: Author = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Treat nobody new until `resume`. What was dealt stays as it is."""
    _act("pause", key, _change(reason, author), collector, as_json=as_json)


@app.command(epilog=example("kvflags rollout resume cross-layer-blocks --reason 'the week is over'"))
def resume(
    key: Key, reason: Reason, author: Author = None, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Go on after a pause."""
    _act("resume", key, _change(reason, author), collector, as_json=as_json)


@app.command(
    epilog=example(
        "kvflags rollout undo cross-layer-blocks --reason 'too fast'",
        "kvflags rollout undo cross-layer-blocks --to-revision 3 --reason 'as last week'",
    )
)
def undo(
    *,
    key: Key,
    reason: Reason,
    to: To = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Aim as before the last change of the aim. Running generations keep what they have."""
    body = _change(reason, author) | ({} if to is None else {"to": to})
    _act("undo", key, body, collector, as_json=as_json)


@app.command(
    epilog=example(
        "kvflags rollout plan cross-layer-blocks --reason 'as usual'",
        "kvflags rollout plan cross-layer-blocks --steps 1,2,5 --hold 7d --reason 'slowly'",
    )
)
def plan(
    *,
    key: Key,
    reason: Reason,
    steps: Steps = None,
    hold: Hold = "3d",
    approve: Approve = False,
    clear: NoRamp = False,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Lay out a ramp, whose steps advance by themselves on time and sample; without --steps, what suits the fleet."""
    seconds = round(duration(hold, "--hold"))
    given = [ramp_step(text) | {"hold_s": seconds, "approval": approve} for text in (steps or "").split(",") if text]
    body: dict[str, Any] = _change(reason, author) | {"steps": None if clear else given, "hold_s": seconds}
    with connect(collector) as client:
        show("flag", client.put("flags", key, "ramp", body=body), as_json=as_json)
    say(f"next: kvflags rollout status {key}")


@app.command(
    epilog=example(
        "kvflags rollout promote cross-layer-blocks --reason 'looks good'",
        "kvflags rollout promote cross-layer-blocks --default --reason 'ready'",
    )
)
def promote(
    *,
    key: Key,
    reason: Reason,
    default: Default = False,
    out: Out = Path(),
    revision: Revision = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Enter the next step of the ramp now; with --default, treat everybody but a last holdback of 5 % for 14 days.

    With --default the report that this rests on is written first (KEY-DAY.md) and, where a stratum is proven, the
    change to vLLM that makes it the default there (KEY-DAY.patch). After the 14 days the flag is completed.
    """
    body: dict[str, Any] = _change(reason, author) | {"default": default}
    body |= {} if revision is None else {"revision": revision}
    if default:
        _keep(key, out, collector)
    _act("promote", key, body, collector, as_json=as_json)


def _keep(key: str, folder: Path, collector: str | None) -> None:
    """Before the deed, so that what is kept is what it was decided on, and a folder that is not there stops it."""
    with connect(collector) as client:
        document = client.get("flags", key, "report")
    say(f"wrote {' and '.join(map(str, write(document, folder)))}")
    if document["predicate"] is None:
        state = document["verdict"]["state"]
        say(f"no stratum is proven yet (the verdict is {state}): there is no change to vLLM to ask for")


@app.command(epilog=example("kvflags rollout history cross-layer-blocks"))
def history(key: Key, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """Show what was done, by whom and why, the newest first."""
    with connect(collector) as client:
        show("history", client.items("flags", key, "history"), output, as_json=as_json)


def _act(verb: str, key: str, body: dict[str, Any], collector: str | None, *, as_json: bool) -> None:
    with connect(collector) as client:
        show("flag", client.post("flags", key, verb, body=body), as_json=as_json)
    say(f"next: kvflags rollout status {key}")


def _change(reason: str, author: str | None) -> dict[str, Any]:
    return {"reason": reason, "author": author or this_author()}


def _target(percent: str | None, count: int | None, inherit: bool) -> dict[str, Any]:
    """The one thing that was asked for. Two of them would need a rule for which wins, so they are refused."""
    given: dict[str, Any] = {}
    if percent is not None:
        given["percent"] = percentage(percent)
    if count is not None:
        given["count"] = count
    if inherit:
        given["inherit"] = True
    if len(given) != 1:
        asked = " and ".join(given) or "nothing"
        raise UsageError(
            f"give exactly one of PERCENT, --count N and --inherit, not {asked}",
            hint="such as `kvflags rollout set KEY 25% --reason TEXT`",
        )
    return given
