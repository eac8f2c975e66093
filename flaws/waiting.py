# SPDX-License-Identifier: Apache-2.0
"""Waiting for a cause, never for a time, up to a limit."""
import signal
import threading
import time

PATIENCE_S = 15  # how long a cause may take to come about; never how long it should take
PAUSE_MAX_S = 0.01  # between two looks


class Inconclusive(AssertionError):
    """What was awaited did not happen. A test fails by it. A demonstration is repeated: it said nothing of the rung."""


class Stopped(Exception):
    """The user wants no more of it."""


STOP = threading.Event()  # ends every wait


def wait_until(condition, what, patience_s=PATIENCE_S):
    """The first value of the condition that is true."""
    deadline, pause_s = time.monotonic() + patience_s, 0.001
    while time.monotonic() < deadline:
        if STOP.is_set():
            raise Stopped
        value = condition()
        if value:
            return value
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
    raise Inconclusive(f"{what}: that did not come about within {patience_s} s")


def freeze(process):
    """SIGSTOP, and the process stands still."""
    def is_stopped():
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "T"
    process.send_signal(signal.SIGSTOP)
    wait_until(is_stopped, f"process {process.pid} stands still")
