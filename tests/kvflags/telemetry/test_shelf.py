# SPDX-License-Identifier: Apache-2.0
"""`local`: what would be sent lies on this machine, readable as a whole, bounded, and for its owner alone."""

import resource
import signal
import stat

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kvflags.sent import Kind, read
from kvflags.telemetry import shelf as module
from kvflags.telemetry.answer import Answer, Outcome
from kvflags.telemetry.export import Exporter
from kvflags.telemetry.labels import Labels
from kvflags.telemetry.records import Records, Transfer
from kvflags.telemetry.shelf import Shelf
from kvflags.telemetry.wire import Wire, way


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "a b" / "local"


@pytest.fixture
def shelf(folder):
    made = Shelf(str(folder), None, "traces")
    yield made
    made.close()


def _files(folder):
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_the_address_says_which_way(folder):
    kept = way(folder.as_uri(), "secret", {}, "metrics")
    assert isinstance(kept, Shelf)
    kept.send(b"abc")
    kept.close()
    [file] = _files(folder)
    assert (file.name.partition("-")[0], file.read_bytes()) == ("metrics", b"abc")
    sent = way("http://127.0.0.1:1", None, {})
    assert isinstance(sent, Wire)
    sent.close()


def test_a_file_of_several_batches_is_one_message(tmp_path, folder):
    records = Records()
    for number in range(600):
        records.append(Transfer(f"r{number}", "p", f"q{number}", 1, 1_000 + number, 2_000 + number))
    environ = {"KVFLAGS_STATE_DIR": str(tmp_path)}
    exporter = Exporter(records, lambda: Labels("e", 0), folder.as_uri(), environ=environ)
    exporter.start()
    exporter.shutdown(20)
    [file] = _files(folder)
    request = ExportTraceServiceRequest.FromString(file.read_bytes())
    spans = {span.span_id for one in request.resource_spans for scope in one.scope_spans for span in scope.spans}
    assert (len(spans), exporter.dropped) == (600, 0)
    last = read(str(tmp_path), Kind.TRACES)
    assert (last.to, last.result) == (folder.as_uri(), "kept")
    assert file.read_bytes().endswith(last.body)


def test_nobody_else_can_read_it(shelf, folder):
    shelf.send(b"abc")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, *_files(folder))] == [0o700, 0o600]


def test_it_is_bounded(shelf, folder, monkeypatch):
    monkeypatch.setattr(module, "_FILE_BYTES", 10)
    monkeypatch.setattr(module, "_FILES", 3)
    for number in range(9):
        shelf.send(b"%04d" % number)
    assert [path.read_bytes() for path in _files(folder)] == [b"00040005", b"00060007", b"0008"]
    # What is larger than a file has one of its own.
    shelf.send(b"x" * 50)
    assert [path.stat().st_size for path in _files(folder)] == [8, 4, 50]


def test_what_cannot_be_kept_is_refused_and_hurts_nobody(tmp_path):
    (tmp_path / "file").write_text("in the way")
    shelf = Shelf(str(tmp_path / "file"), None, "traces")
    answer = shelf.send(b"abc")
    assert (answer.outcome, answer.says.partition(":")[0]) == (Outcome.REFUSED, "FileExistsError")
    (tmp_path / "file").unlink()
    assert shelf.send(b"abc") == Answer(Outcome.STORED)
    shelf.close()


def test_a_full_disk_leaves_no_half_of_a_body(shelf, folder):
    """The limit on a file's size stands for the disk's: a write beyond it is cut short, as on a full one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    shelf.send(b"whole")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
        assert shelf.send(b"too long") == Answer(Outcome.REFUSED, says="OSError: the disk is full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    [file] = _files(folder)
    assert file.read_bytes() == b"whole"
