# SPDX-License-Identifier: Apache-2.0
"""Fixtures: each test owns its world, and leaves nothing behind."""
import os
import resource
import subprocess

import pytest

from world import Inventoryd, LossyProxy, Redis, running

# The tests open thousands of connections.
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(16384, HARD), HARD))


def pytest_configure(config):
    if not os.access(os.environ.get("INVENTORYD", ""), os.X_OK):
        raise pytest.UsageError("INVENTORYD must name the inventoryd that is to be tested")


@pytest.fixture
def redis(tmp_path):
    server = Redis(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def other(tmp_path):
    """A second server."""
    redis = Redis(tmp_path / "other")
    yield redis
    redis.kill()


@pytest.fixture(params=["together", "apart"])
def place(request, redis, tmp_path):
    """The server of the stock, and the flags that put it there."""
    if request.param == "together":
        yield redis, ()
        return
    server = Redis(tmp_path / "apart")
    yield server, ("--stock-redis", server.url)
    server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One Redis for all the tests of a file that run scripts alone, without an instance."""
    redis = Redis(tmp_path_factory.mktemp("scripts") / "redis")
    yield redis
    redis.kill()


@pytest.fixture
def start(tmp_path):
    """Starts instances; ends them, and looks at how they ended."""
    started = []

    def start_one(redis, *flags, **named):
        instance = Inventoryd(str(tmp_path), redis, *flags, **named)
        started.append(instance)
        return instance

    yield start_one
    errors = []
    for instance in started:
        try:
            instance.end()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            errors.append(error)
            instance.kill()
    if errors:
        raise errors[0]


@pytest.fixture
def proxy(redis):
    between = LossyProxy(redis)
    yield between
    between.end()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """One instance for all the tests of a file that only ask. It has 1000 phones on request."""
    folder = tmp_path_factory.mktemp("shop")
    with running(folder, "--history", folder / "history.jsonl") as instance:
        yield instance
