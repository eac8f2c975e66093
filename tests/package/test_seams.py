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
        needs = symbols(path, "--undefined-only")
        assert needs & (redis | scripts) <= {"engine_redis"}, path
        assert not any(name.startswith("redis") for name in needs), path


def beyond(folder, own):
    """What the files of that folder include of the library, beside its interface and its clocks."""
    found = {}
    for name in names(os.path.join("..", folder, "*.[ch]")):
        for other in included(os.path.join("..", folder, name)):
            if other in own | {"dlock.h", "../lock/clock.h"}:
                continue
            if other in CORE | REDIS or "lock" in other:
                found.setdefault(name, []).append(other)
    return found


BASE, SERVICE = names("../base/*.[ch]"), names("../service/*.[ch]")


def test_the_base_knows_no_service():
    assert BASE and not BASE & SERVICE
    for name in BASE:
        for other in included(os.path.join("..", "base", name)):
            assert other not in SERVICE and "service" not in other, (name, other)


def test_the_base_knows_the_interface_the_clocks_and_its_store_the_client_of_redis():
    assert beyond("base", BASE) == {
        "store.c": ["../lock/redis/acks.h", "../lock/redis/pool.h", "../lock/redis/redis.h",
                    "../lock/redis/reply_text.h"],
        "store.h": ["../lock/redis/script.h"]}


def test_the_service_knows_the_interface_and_the_clocks():
    assert beyond("service", BASE | SERVICE) == {}


def cycles(arrows):
    """What can be reached from itself: {name: [names]} -> [[name, ..., name]], one way for each."""
    found = []
    for start in arrows:
        ways, seen = [[start]], set()
        while ways:
            way = ways.pop()
            for name in arrows.get(way[-1], ()):
                if name == start:
                    found.append(way + [start])
                    ways = []
                    break
                if name not in seen:
                    seen.add(name)
                    ways.append(way + [name])
    return found


def test_no_header_includes_itself_by_way_of_others():
    headers = {name for name in CORE | REDIS if name.endswith(".h")}
    assert len(headers) > 30
    arrows = {name: [other for other in included(name if name in CORE else os.path.join("redis", name))
                     if other in headers] for name in headers}
    assert not cycles(arrows)


def calls():
    """Of each file of the library, the files whose functions and data it names."""
    defined, needed = {}, {}
    for path in OBJECTS:
        source = path.split("dlock_objects.dir/")[-1].removesuffix(".o")
        needed[source] = symbols(path, "--undefined-only")
        for name in symbols(path, "--defined-only", "--extern-only"):
            defined[name] = source
    return {source: {defined[name] for name in names if name in defined} - {source} for source, names in needed.items()}


def test_no_file_calls_itself_by_way_of_others():
    """A call through a pointer is none: what is below never names what is above it."""
    arrows = calls()
    assert "owner.c" in arrows["acquire.c"]
    assert not cycles(arrows)


def test_what_belongs_to_handing_off_lies_in_its_file():
    """hold.c and open.c make room for it, lock.c frees it; cleanup.c sees to what a client left in a queue."""
    for name in CORE - {"handoff.c", "hold.c", "open.c", "lock.c", "cleanup.c"}:
        with open(os.path.join(LOCK, name), encoding="utf-8") as file:
            assert not re.search(r"->handoff\b|grant_of", file.read()) or name == "handoff.h", name


def test_rungs_go_through_one_header():
    for path in glob.glob(os.path.join(LOCK, "rungs", "*.c")):
        own = [name for name in included(path) if name in CORE | REDIS]
        assert set(own) <= {"heard.h", "redis_rung.h", "set_token.h", "timer.h"}, path
