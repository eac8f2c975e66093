# SPDX-License-Identifier: Apache-2.0
"""Waiting for a cause, never for a time, up to a limit."""
import concurrent.futures
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

PATIENCE_S = 15  # how long a cause may take to come about; never how long it should take
PAUSE_MAX_S = 0.025  # between two looks


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


def end_group(process):
    """Ends the process and its group, which it leads. SIGTERM first: then make deletes what is half built."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)  # to the end of its output: then its children have ended, too
            return
    process.wait()


def end_in_order(process):
    """Tells the process to end, and waits while it ends what it started."""
    process.terminate()
    process.communicate()  # nobody else reads its output now


def run_unless_stopped(words, end=end_group, patience_s=None, **options):
    """As subprocess.run(), in text, and STOP ends it. It has a group of its own, unless end is end_in_order."""
    process = subprocess.Popen(words, text=True, start_new_session=end is end_group, **options)
    deadline = time.monotonic() + patience_s if patience_s else float("inf")
    while True:
        try:
            out, err = process.communicate(timeout=0.05)
            return subprocess.CompletedProcess(words, process.returncode, out, err)
        except subprocess.TimeoutExpired:
            if STOP.is_set() or time.monotonic() > deadline:
                end(process)
                if STOP.is_set():
                    raise Stopped from None
                raise


def dying_with(words, number="KILL"):
    """The command, made to get that signal when the thread that starts it ends, even by SIGKILL. Without util-linux it
    is the command alone. The shell looks whether its parent has ended before the signal was asked for."""
    setpriv = shutil.which("setpriv")
    only_if = ["sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
    return [setpriv, "--pdeathsig", number, *only_if, *words] if setpriv else words


def tell(text):
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(text, file=sys.stderr, flush=True)


def run_stoppable(main, name):
    """The exit code of main(), which runs on a thread of its own. So a signal interrupts no step in the middle: it sets
    STOP, and each wait looks at that."""
    told, numbers = [], (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, lambda *_: told.append(True))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(main)
        while not concurrent.futures.wait([result], 0.05).done:
            if told and not STOP.is_set():
                STOP.set()
                tell("\nstopping what was started")
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)  # Python gives up its handlers before it ends
    try:
        return result.result()
    except Stopped:
        tell(f"{name}: stopped; all that was started is ended")
        return 130
