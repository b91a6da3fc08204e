# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags canary run`: does a fetched KV cache give the answers of a local one? Before traffic, and on a schedule."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kvflags.errors import KvflagsError
from kvflags_cli.commands import connect
from kvflags_cli.exit_codes import ExitCode, exit_code
from kvflags_cli.options import AsJson, Author, Collector, Deployment, Generation, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import identity
from kvflags_cli.progress import watched
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="Prompts with known answers, through prefill and decode: finds corruption that answers 200.",
    rich_markup_mode=None,
    epilog=example("kvflags canary run --prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8000"),
)

Url = Annotated[str, typer.Option(metavar="URL", help="The engine's own address, not the router's.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", show_default="the first that is served")]
Count = Annotated[int, typer.Option("--prompts", metavar="N", min=1, max=1000, help="How many.")]
Longest = Annotated[int, typer.Option("--longest", metavar="WORDS", min=24, max=100_000, help="Of the longest prompt.")]
Tokens = Annotated[int, typer.Option("--tokens", metavar="N", min=1, max=1000, help="Generated and compared for each.")]
Tolerance = Annotated[
    float, typer.Option("--tolerance", metavar="NATS", min=0, max=10, help="Of a logprob; kernels differ by less.")
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1, help="That one request may take.")]
_CODES = {"match": ExitCode.OK, "mismatch": ExitCode.FINDING, "undecided": ExitCode.UNDECIDED}


@app.command(
    epilog=example(
        "kvflags canary run --prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8000",
        "kvflags canary run --prefill URL --decode URL --deployment prod/chat/a --generation r2 --json",
    )
)
def run(
    *,
    prefill: Url,
    decode: Url,
    model: Model = None,
    prompts: Count = 8,
    longest: Longest = 768,
    tokens: Tokens = 32,
    tolerance: Tolerance = 0.1,
    timeout: Timeout = 60,
    deployment: Deployment = "",
    generation: Generation = "default",
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Compare answers from a fetched KV cache with those of a local prefill on the same decode engine.

    With --deployment the collector is told: a mismatch condemns the generation if it is treated. Exits 0 when all
    agree, 1 on a mismatch, 3 when it cannot be told. Engines that want a key get that of OPENAI_API_KEY.
    """
    if deployment:
        identity(deployment, "--deployment")
        identity(generation, "--generation")
    options = {"key": os.environ.get("OPENAI_API_KEY", ""), "model": model, "timeout": timeout}
    document = _document((prefill, decode), options, prompts, longest, tokens=tokens, tolerance=tolerance)
    code = _CODES[document["outcome"]]
    if deployment:
        place = {"deployment": deployment, "generation": generation, "author": author or this_author()}
        code = _tell(collector, place, document) or code
    show("canary", document, as_json=as_json)
    raise typer.Exit(code)


def _tell(collector: str | None, place: dict[str, Any], document: dict[str, Any]) -> ExitCode | None:
    """Tell the collector. A failure is shown, and is the exit code, unless there is a mismatch, which goes before."""
    names = ("outcome", "compared", "mismatched", "max_delta", "tolerance")
    try:
        with connect(collector) as client:
            document["recorded"] = client.post("canaries", body=place | {name: document[name] for name in names})
    except KvflagsError as error:
        say(f"error: the result was not recorded: {error.message}\n\nhint: {error.hint}")
        return None if document["mismatched"] else exit_code(error)
    return None


def _document(
    urls: tuple[str, str], options: dict[str, Any], count: int, longest: int, *, tokens: int, tolerance: float
) -> dict[str, Any]:
    from kvflags_cli.canary import check, completions, prompts

    asked = prompts.prompts(count, longest)
    with (
        completions.Engine("prefill", urls[0], **options) as prefill,
        completions.Engine("decode", urls[1], **options) as decode,
    ):
        before = decode.fetched()
        found = check.check(prefill, decode, asked, tokens=tokens, tolerance=tolerance)
        checked = list(watched(found, "comparing", count))
        after = decode.fetched()
    fetched = None if before is None or after is None else after - before
    result = check.outcome(checked, fetched)
    return {
        "outcome": result,
        "says": check.says(result, fetched),
        "prompts": [asdict(one) for one in checked],
        "compared": sum(one.outcome is not check.Outcome.UNDECIDED for one in checked),
        "mismatched": sum(one.outcome is check.Outcome.MISMATCH for one in checked),
        "max_delta": max((one.delta for one in checked if one.delta is not None), default=None),
        "tolerance": tolerance,
        "fetched_tokens": fetched,
        "recorded": None,
    }
