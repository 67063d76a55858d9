#!/usr/bin/env python3
"""Runs kvmserver as on a host that gives no huge pages."""
import ctypes
import os
import sys

from harness import KVMSERVER

PR_SET_THP_DISABLE = 41  # linux/prctl.h; kept by exec
if ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_THP_DISABLE) failed")
os.execv(KVMSERVER, [KVMSERVER, *sys.argv[1:]])
