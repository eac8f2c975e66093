# SPDX-License-Identifier: Apache-2.0
"""What no client can bring about: a library that is loaded before the others stands in for one of their functions. It looks
"redis.test" up, and hangs while a file is there; or it stops a request at a certain place."""
import os
import subprocess

import pytest

from world import Background, wait_until

RESOLVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    resolver *next = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strcmp(host, "redis.test") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return next(host, port, hints, found);
    int calls = open(getenv("CALLS_FILE"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (write(calls, "x", 1) != 1)
        abort();
    close(calls);
    while (access(getenv("HANG_FILE"), F_OK) == 0)
        usleep(10000);
    return next("127.0.0.1", port, hints, found);
}
"""


def build(folder, name, text):
    """A library of this source."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    return str(library)


class Resolver:
    def __init__(self, folder):
        self.hang_file, self.calls_file = folder / "hang", folder / "calls"
        self.environment = {"LD_PRELOAD": build(folder, "resolver", RESOLVER), "HANG_FILE": str(self.hang_file),
                            "CALLS_FILE": str(self.calls_file)}

    def hang(self):
        self.hang_file.touch()

    def answer(self):
        self.hang_file.unlink()

    def calls(self):
        return os.path.getsize(self.calls_file) if self.calls_file.exists() else 0


@pytest.fixture
def resolver(tmp_path):
    return Resolver(tmp_path)


@pytest.fixture
def named(redis, start, resolver):
    """An instance whose stock is at a name."""
    def start_named(*flags):
        return start(None, "--stock-redis", f"redis://redis.test:{redis.port}", "--lock-redis", redis.url,
                     "--redis-timeout-ms", 400, *flags, environment=resolver.environment)
    return start_named


def cut(redis):
    """Every connection ends: each one has to be made anew."""
    redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_a_resolver_that_hangs_stops_no_sale(redis, named, resolver):
    """The addresses that it found before serve; and those who connect share a look-up."""
    shop = named("--workers", 4)
    assert shop.stock(value=20).status == 200 and shop.sell().json["unit"] == 20
    resolver.hang()
    before = resolver.calls()
    cut(redis)
    sales = [Background(shop.sell) for _ in range(8)]
    assert [sale.result().status for sale in sales] == [200] * 8
    assert shop.admin("GET", "/readyz").status == 200
    assert resolver.calls() - before == 1
    assert redis("GET", "inventory:{phone}") == "11" and not shop.logged("stock-server-lost")
    shop.end()


def test_a_name_that_was_never_found_is_a_server_that_is_away(redis, named, resolver):
    resolver.hang()
    shop = named("--fail-fast-ms", 100)
    reply = shop.admin("GET", "/readyz")
    assert reply.status == 503 and "host name" in reply.json["detail"]
    wait_until(lambda: shop.logged("stock-server-lost"), "the server counts as away")
    assert shop.sell().problem == "stock-unavailable" and shop.metric('inventoryd_redis_up{role="stock"}') == 0
    assert resolver.calls() == 1
    resolver.answer()
    wait_until(lambda: shop.logged("stock-server-restored"), "the server is found")
    assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5


def test_the_end_does_not_wait_for_the_resolver(redis, named, resolver):
    resolver.hang()
    shop = named()
    wait_until(lambda: resolver.calls() == 1, "it is asked")
    shop.end()
    assert resolver.hang_file.exists()  # it never answered


# ---- Two switches at once ------------------------------------------------------------------------

# A body has been read when its JSON is freed. The first one to come there while a file is there takes the file away, and
# stays until another one is gone.
STOP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cJSON_IsObject(const void *json)
{
    int (*next)(const void *) = (int (*)(const void *))dlsym(RTLD_NEXT, "cJSON_IsObject");
    if (rename(getenv("STOP_FILE"), getenv("STAYS_FILE")) == 0)
        while (access(getenv("STAYS_FILE"), F_OK) == 0)
            usleep(10000);
    return next(json);
}
"""


@pytest.fixture
def switched_meanwhile(redis, start, tmp_path):
    """Two PUT /lock: the second comes and is answered when the first has been read."""
    stop, stays = tmp_path / "stop", tmp_path / "stays"

    def switch_both(first, second, *flags):
        shop = start(redis, "--admin-writes", *flags,
                     environment={"LD_PRELOAD": build(tmp_path, "stop", STOP), "STOP_FILE": str(stop), "STAYS_FILE": str(stays)})
        stop.touch()
        slow = Background(shop.switch, **first)
        wait_until(stays.exists, "the first one was read")
        assert shop.switch(**second).status == 200
        stays.unlink()
        return shop, slow.result()

    return switch_both


def test_a_switch_keeps_what_another_has_switched_meanwhile(switched_meanwhile):
    shop, reply = switched_meanwhile({"write": "atomic"}, {"check_hold": True, "rung": "fair"})
    assert reply.status == 200
    assert shop.admin("GET", "/lock").json == reply.json
    assert (reply.json["write"], reply.json["check_hold"], reply.json["rung"]) == ("atomic", True, "fair")


def test_a_switch_that_does_not_go_with_what_another_has_switched(switched_meanwhile):
    """It is refused when nobody is in flight any more, and the sales go on."""
    shop, reply = switched_meanwhile({"write": "fenced"}, {"rung": "watchdog"}, "--lock", "fair")
    assert reply.status == 422 and reply.problem == "invalid-value"
    lock = shop.admin("GET", "/lock").json
    assert (lock["rung"], lock["write"], lock["switching"]) == ("watchdog", "decr", False)
    assert shop.stock(value=5).status == 200 and shop.sell().json["unit"] == 5
