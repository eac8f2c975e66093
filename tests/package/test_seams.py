# SPDX-License-Identifier: Apache-2.0
"""The seams of the library, as its sources and objects have them: see docs/design/engine.md."""
import glob
import os
import re
import subprocess

LOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lock")
OBJECTS = os.environ["DLOCK_OBJECTS"].split(":")


def names(pattern):
    return {os.path.basename(path) for path in glob.glob(os.path.join(LOCK, pattern))}


CORE, REDIS = names("*.[ch]"), names("redis/*.[ch]")


def included(path):
    with open(os.path.join(LOCK, path), encoding="utf-8") as file:
        return re.findall(r'^#include ["<]([^">]+)[">]', file.read(), re.M)


def symbols(object_file, *options):
    lines = subprocess.run(["nm", "--format=posix", *options, object_file], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return {line.split()[0] for line in lines}


def objects(folder):
    """The objects whose source lies there: .../dlock_objects.dir/<path of the source>.o"""
    return [path for path in OBJECTS if os.path.dirname(path.split("dlock_objects.dir/")[-1]) == folder]


def test_no_name_stands_for_two_files():
    assert not CORE & REDIS


def test_the_core_includes_nothing_of_an_engine():
    for name in CORE:
        for other in included(name):
            assert other in CORE or not (other in REDIS or "hiredis" in other or "redis/" in other), (name, other)


def test_the_core_calls_nothing_of_an_engine_but_its_table():
    assert objects("") and objects("redis")
    redis = set().union(*(symbols(path, "--defined-only", "--extern-only") for path in objects("redis")))
    scripts = {f"lua_{os.path.basename(path)[:-4]}" for path in glob.glob(os.path.join(LOCK, "lua", "*.lua"))}
    for path in objects(""):
        if os.path.basename(path).startswith("lua_"):
            continue
        needs = symbols(path, "--undefined-only")
        assert needs & (redis | scripts) <= {"engine_redis"}, path
        assert not any(name.startswith("redis") for name in needs), path


def test_rungs_go_through_one_header():
    for path in glob.glob(os.path.join(LOCK, "rungs", "*.c")):
        own = [name for name in included(path) if name in CORE | REDIS]
        assert set(own) <= {"redis_rung.h", "thread.h"}, path
