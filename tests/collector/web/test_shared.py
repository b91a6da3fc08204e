# SPDX-License-Identifier: Apache-2.0
"""One rendering for all who are shown the same: who may not see another's form does not, and memory is bounded."""

import pytest

from kvflags_collector.web import shared
from kvflags_collector.web.viewer import Viewer


@pytest.fixture
def rendered(monkeypatch):
    """The names of those a page was rendered for; the page is the form that it holds."""
    names = []

    def render(_, values):
        names.append(values["viewer"].name)
        return f"form {values['viewer'].form}"

    monkeypatch.setattr(shared, "render", render)
    return names


def _viewer(name, form):
    return Viewer(name, may_operate=True, form=form, signed_in=True)


def test_each_session_gets_its_own_form_of_one_rendering(rendered):
    shown = shared.Shown({})
    assert [shown.page("a.html", _viewer("ann", form)) for form in ("one", "two")] == ["form one", "form two"]
    assert rendered == ["ann"]


def test_however_many_look_at_a_document_few_looks_are_kept(rendered):
    shown = shared.Shown({})
    for number in range(100):
        shown.page("a.html", _viewer(f"n{number}", "f"))
        assert len(shown._looks) <= 32
    shown.page("a.html", _viewer("n99", "f"))
    assert len(rendered) == 100
