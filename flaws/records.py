# SPDX-License-Identifier: Apache-2.0
"""What all runs have: a folder, and the clock of their clients."""
import os
import pathlib
import tempfile
import time


def clients_clock(slack_ms=2):
    """Which clock the clients' times are of, for the judge; by how much they may be off."""
    try:
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:
        namespace = "none"  # the kernel has none
    return {"boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "clock": "CLOCK_REALTIME", "time_namespace": namespace, "slack_ms": slack_ms}


def new_folder(runs, name):
    """A folder that nobody else has, for a run that begins now."""
    pathlib.Path(runs).mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{stamp}-{name}-", dir=runs))
    folder.chmod(0o755)
    return folder
