# SPDX-License-Identifier: Apache-2.0
"""A stopped torture, or a stopped making of the book, leaves nothing: no process, no folder in /tmp. After a SIGKILL of
the script alone the processes end by themselves."""
import os
import pathlib
import signal
import tempfile

import pytest

from place import ROOT, SCRIPTS, wait_until

PAGES = [ROOT / "docs" / page for page in ("02-local.md", "03-setnx.md")]
COMMANDS = {  # and how many servers run, at least, when it is stopped
    "torture": ([SCRIPTS / "torture", "--jobs", 2], 2),
    "shops": ([SCRIPTS / "torture", "--shop", "--jobs", 2], 6),
    "docs": ([SCRIPTS / "docs", "--check", "--runs", *PAGES], 2),
}


@pytest.fixture
def temporary():
    """For a short path: a socket's has 108 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        yield pathlib.Path(folder)


def servers(folder):
    """What runs in it, or has opened a file in it."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            where = [os.readlink(link) for link in (process / "cwd", *(process / "fd").iterdir())]
            if any(place.startswith(f"{folder}/") for place in where):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("name", COMMANDS)
def test_whoever_stops_it_leaves_nothing(place, temporary, name, number):
    words, count = COMMANDS[name]
    more = ["--folder", place.folder / "failures"] if "torture" in str(words[0]) else []
    command = place.start(*words, *more, TMPDIR=temporary)
    wait_until(lambda: len(servers(temporary)) >= count or command.process.poll() is not None, "it works")
    assert command.process.poll() is None, command
    os.kill(command.process.pid, number)
    command.finish()
    assert command.code in (-signal.SIGKILL, 130, 128 + number), command
    wait_until(lambda: not servers(temporary) and not place.processes(), "all has ended", patience_s=60)
    assert number == signal.SIGKILL or not list(temporary.iterdir())
