# SPDX-License-Identifier: Apache-2.0
"""Pages for people: server-rendered, no scripts. Each has a `.json` twin with the same content."""
