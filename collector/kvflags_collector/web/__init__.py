# SPDX-License-Identifier: Apache-2.0
"""Pages for people: rendered here, and kept up to date by one script that they can do without.

Each has a `.json` twin with the same content.
"""
