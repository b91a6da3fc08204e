# SPDX-License-Identifier: Apache-2.0
"""A collector with one flag, the pairs started against it, and questions about what became of them."""

import sqlite3
import time
from collections import Counter
from contextlib import closing

from kvflags.lab import SETTING as LAB
from kvflags_cli.demo.model import make_model
from kvflags_cli.demo.pair import Pair, free_port
from kvflags_cli.demo.service import Service

__all__ = ["FLAG", "Fleet", "eventually"]

FLAG = "cross-layer-blocks"


class Fleet:
    """One collector with one flag, and the means to start pairs against it."""

    def __init__(self, folder, *, flag=True):
        self.folder = folder
        self.port = free_port()
        self.database = folder / "kvflags.db"
        self.service = Service(self.database, folder / "logs" / "collector.log", port=self.port)
        self.service.start()
        self._pairs = []
        if flag:
            body = {"key": FLAG, "feature": "cross_layer_blocks", "baseline_s": 0, "quiet_s": 0}
            self.post("flags", body=body | {"author": "tests", "reason": "a test"})

    def get(self, *path, **query):
        with self.service.client() as client:
            return client.get(*path, **query)

    def post(self, *path, body):
        with self.service.client() as client:
            return client.post(*path, body=body)

    def put(self, *path, body):
        with self.service.client() as client:
            return client.put(*path, body=body | {"author": "tests", "reason": "a test"})

    def target(self, **target):
        return self.put("flags", FLAG, "target", body=target)

    def pair(self, name, generation, *, url=None, environ=(), kv_heads=4, **own):
        """A pair that is not started yet; it is stopped with the fleet."""
        model = make_model(self.folder.parent / "models", kv_heads=kv_heads)
        shared = {
            "KVFLAGS_COLLECTOR_URL": url or self.service.url,
            "KVFLAGS_ISOLATION": "bluegreen",
            # A fault of ours in an engine is an error there, not a log line: the tests would pass over the line.
            "KVFLAGS_STRICT": "1",
            LAB: "1",
        }
        pair = Pair(
            name=f"test/engine/{name}",
            generation=generation,
            model=model,
            folder=self.folder,
            environ=shared | dict(environ),
            **own,
        )
        self._pairs.append(pair)
        return pair

    def report(self):
        return self.get("flags", FLAG, "report")

    def row(self, name, generation):
        """The report's row of one generation, or None while there is none."""
        return next(iter(self.rows(name, generation)), None)

    def rows(self, name, generation):
        """All its rows: what was transferred before anything was decided has one of its own."""
        rows = [row for row in self.report()["deployments"] if row["deployment"] == f"test/engine/{name}"]
        return [row for row in rows if row["generation"] == generation]

    def transferred(self, name, generation):
        """Transfers in the report, whoever they are counted for."""
        return sum(row["transfers"] or 0 for row in self.rows(name, generation))

    def failures(self, name, generation):
        """Failed transfers by kind, whoever they are counted for."""
        return dict(sum((Counter(row["errors"]) for row in self.rows(name, generation)), Counter()))

    def outcomes(self, name, generation, epoch=None):
        """What the engines of a generation added up: values of histograms by number, sums and gauges by value."""
        query = (
            "SELECT instrument, SUM(CASE WHEN hist IS NULL THEN sum_micro / 1000000 ELSE count END) FROM outcomes_hour"
            " WHERE deployment = ? AND generation = ? AND (? IS NULL OR epoch = ?) GROUP BY instrument"
        )
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as db:
            rows = db.execute(query, (f"test/engine/{name}", generation, epoch, epoch)).fetchall()
        return {instrument.removeprefix("kvflags.outcome."): total for instrument, total in rows}

    def engines(self, name, generation=None):
        rows = [row for row in self.get("engines")["items"] if row["deployment"] == f"test/engine/{name}"]
        return [row for row in rows if generation in {None, row["generation"]}]

    def stop(self):
        for pair in self._pairs:
            if hasattr(pair, "decode"):
                pair.stop()
        self.service.stop()


def eventually(ask, what, timeout=90):
    """Ask until the answer is true, and return it."""
    until = time.monotonic() + timeout
    while not (answer := ask()):
        assert time.monotonic() < until, f"waited {timeout} s for {what}"
        time.sleep(0.3)
    return answer
