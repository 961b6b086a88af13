#!/usr/bin/env python3
"""Runs the end-to-end tests: all, or those whose file or sentence holds one of the words given."""

import importlib
from pathlib import Path

import harness

HELPERS = {"run", "chromium", "flush_disk", "harness", "ledger", "load", "nbdclient", "pki", "successor", "vhostclient", "volatile_disk"}

for path in sorted(Path(__file__).parent.glob("*.py")):
    if path.stem not in HELPERS:
        importlib.import_module(path.stem)
# The longest first, so that none is left alone at the end.
harness.TESTS.sort(key=lambda function: -function.seconds)
harness.main()
