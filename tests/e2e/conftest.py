# SPDX-License-Identifier: Apache-2.0
"""Fixtures: each test owns its place, and leaves no process behind."""
import os
import signal

import pytest

from place import Place


def stop(*_):
    raise KeyboardInterrupt


def pytest_configure(config):
    # Told to end, tests end what they started, as after a Ctrl-C.
    signal.signal(signal.SIGTERM, stop)
    if not os.path.isdir(os.environ.get("LADDER_BUILD", "")):
        raise pytest.UsageError("LADDER_BUILD must name the build folder that is to be tested")


@pytest.fixture
def place(tmp_path):
    its = Place(tmp_path)
    yield its
    left = its.processes()
    its.close()
    assert not left, f"the test ended, these went on: {left}"


@pytest.fixture
def shop(place):
    """A place with a shop that is up; it is ended behind the test. 5 ms of business: also ten
    buyers get into each other's way, and the judge has something to judge."""
    up = place.shop("up", "--work-ms", 5)
    assert up.code == 0, up
    yield place
    down = place.shop("down")
    assert down.code == 0, down
