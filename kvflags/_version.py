# SPDX-License-Identifier: Apache-2.0
"""The version, in a module that imports nothing, so that a build can read it."""

__version__ = "0.1.0"
