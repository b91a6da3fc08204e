# SPDX-License-Identifier: Apache-2.0
"""The main job, small enough for one machine: real engines, real transfers, one flag, one report.

`engine` is a process with one vLLM engine in it, `pair` a deployment of two, `model` the tiny model they serve,
`traffic` what is sent, `scene` the story and `command` its place in the command line. The engine tests use the same
pieces. Nothing is imported here: an engine's process needs neither Typer nor Rich.
"""
