# SPDX-License-Identifier: Apache-2.0
"""Jinja2 templates; a package, so that they are in the wheel."""
