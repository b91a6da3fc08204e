# SPDX-License-Identifier: Apache-2.0
"""Bundles: what a fleet may tell others about a feature, and the hub that receives them and reports over organisations.

`vocabulary`, `schema` and `aggregate` make and bound a bundle, `gather` reads what goes into it; `receive`, `register`
and `field_report` are the hub's side.
"""
