#!/usr/bin/env python3
"""Runs the tests with a real Linux kernel: all, or those whose file or sentence holds one of the words given."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "e2e"))

import harness
import block_devices
import growth
import kernel_groups
import kernel_tls
import linux_guest
import no_uring
import virtual_disk

# Emulation uses the processors all the time: hardly more at once than there are.
harness.main(jobs=int(os.environ.get("JOBS") or min(4, (os.cpu_count() or 1) + 1)))
