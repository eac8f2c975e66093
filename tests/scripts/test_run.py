# SPDX-License-Identifier: Apache-2.0
"""What a run reads from Redis before and after its load."""
import json

import pytest

from bench import ROOT, run
from redis_server import Redis


@pytest.fixture
def redis(tmp_path):
    server = Redis(tmp_path / "redis")
    yield server
    server.kill()


def state(redis, *items):
    return run("bash", "-c", f"""for name in common ask jmeter run; do source "{ROOT}/scripts/lib/$name.sh"; done
        PROGRAM=test RUN_REDIS=127.0.0.1:{redis.port}; redis_state usual "$@" """, "ladder", *items)


def test_it_tells_stock_and_locks(redis):
    redis("SET", "inventory:{phone}", 7)
    redis("HSET", "inventory:{pen}", "segments", 2)
    redis("MSET", "inventory:{pen}:segment:1", 3, "inventory:{pen}:segment:2", 4)
    redis("SADD", "inventory:{odd}", "one")
    told = state(redis, "phone", "pen", "odd", "none")
    assert told.returncode == 0 and told.stderr == "", told
    told = json.loads(told.stdout)
    assert told["stock"] == {"phone": 7, "pen": 7, "odd": None, "none": None} and told["parts"] == {"pen": [3, 4]}


def test_it_says_what_redis_refuses(redis):
    redis("ACL", "SETUSER", "default", "-eval")
    told = state(redis, "phone", "pen")
    assert told.returncode == 1 and told.stdout == "" and len(told.stderr.splitlines()) == 1, told
    assert f"Redis on 127.0.0.1:{redis.port} refuses to tell it: NOPERM" in told.stderr
