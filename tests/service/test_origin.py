# SPDX-License-Identifier: Apache-2.0
"""Without a token: a page in an operator's browser changes nothing, whatever name its site has."""
import re

import pytest

from world import running

JSON = {"Content-Type": "application/json"}
FOREIGN = ["rebound.example", "rebound.example:{port}", "", "192.0.2.1", "128.0.0.1:{port}", "localhost.example",
           "127.0.0.1.example:{port}", "localhost:x", "localhost:80:80", "[::1", "[::2]:{port}", "[::1]x", "x:localhost",
           "user@localhost", "::1", "0.0.0.0:{port}", "l" * 300]
LOCAL = ["localhost", "LOCALHOST:{port}", "127.0.0.1:{port}", "127.1.2.3", "[::1]:{port}", "[0:0:0:0:0:0:0:1]",
         "localhost:1", "127.0.0.1 \t"]


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory):
    """An instance without a token."""
    with running(tmp_path_factory.mktemp("open"), "--admin-writes", "--enable-failpoints") as instance:
        instance.stock(value=4)
        yield instance


def put(shop, host, *lines, port=None):
    head = "".join(f"{line}\r\n" for line in (f"Host: {host}", *lines))
    data = f"PUT /inventory/phone HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: 11\r\n\r\n" + '{"stock":9}'
    (code, headers, body), = shop.raw(data.replace("{port}", str(shop.admin_port)).encode(), port=port or shop.admin_port)
    return code, headers, body


def is_refused(answer):
    code, headers, body = answer
    assert code == 403 and b"problem:foreign-origin" in body and headers["content-type"] == "application/problem+json"
    assert b"localhost" in body and b"--admin-token-file" in body
    return True


@pytest.mark.parametrize("host", FOREIGN)
def test_a_host_that_is_not_this_machine(open_shop, host):
    assert is_refused(put(open_shop, host))
    assert open_shop.stock().json["stock"] == 4


@pytest.mark.parametrize("host", LOCAL)
def test_a_host_that_is_this_machine(open_shop, host):
    assert put(open_shop, host)[0] == 200
    open_shop.stock(value=4)


@pytest.mark.parametrize("origin", ["null", "http://", "http://evil.example", "https://evil.example:{port}", "localhost",
                                    "file://localhost", "http://localhost/x", "http://x@localhost"])
def test_an_origin_that_is_not_this_machine(open_shop, origin):
    assert is_refused(put(open_shop, "127.0.0.1", f"Origin: {origin}"))
    assert is_refused(put(open_shop, "127.0.0.1", "Origin: http://localhost", f"Origin: {origin}"))
    assert open_shop.stock().json["stock"] == 4


@pytest.mark.parametrize("origin", ["http://localhost", "http://127.0.0.1:{port}", "https://[::1]:8443", "HTTP://localhost:1"])
def test_an_origin_that_is_this_machine(open_shop, origin):
    assert put(open_shop, "127.0.0.1", f"Origin: {origin}")[0] == 200
    open_shop.stock(value=4)


def test_each_route_that_changes_something(open_shop):
    detail = open_shop.admin("GET", "/no/such/path").json["detail"]
    routes = [(method, path.replace("{item}", "phone")) for method, path in re.findall(r"([A-Z]+) (/[^\s,]+)", detail)]
    assert len([route for route in routes if route[0] != "GET"]) >= 4
    for method, path in routes:
        reply = open_shop.admin(method, path, "{}" if method != "GET" else None, {**JSON, "Host": "rebound.example"})
        assert (reply.status == 403 and reply.problem == "foreign-origin") == (method != "GET"), (method, path)


def test_who_sends_no_host_is_refused(open_shop):
    (code, _, body), = open_shop.raw(b'PUT /inventory/phone HTTP/1.0\r\nContent-Length: 11\r\n\r\n{"stock":9}',
                                     port=open_shop.admin_port)
    assert code == 403 and b"foreign-origin" in body


def test_the_listeners_own_name(redis, start):
    """As --admin-listen has it: here 127.1, which is no address but to the resolver."""
    shop = start(redis, "--admin-listen", "127.1:0")
    assert put(shop, "127.1:{port}")[0] == put(shop, "127.1")[0] == 200
    assert is_refused(put(shop, "127.2"))


def test_with_a_token_any_host_will_do(redis, start, tmp_path):
    (tmp_path / "token").write_text("t" * 20)
    shop = start(redis, "--admin-token-file", tmp_path / "token")
    right = f"Authorization: Bearer {'t' * 20}"
    assert put(shop, "shop.example", right, "Origin: https://shop.example")[0] == 200
    assert put(shop, "localhost")[0] == 401


def test_buyers_may_use_any_name(open_shop):
    reply = open_shop.ask("POST", "/inventory/phone/sale", headers={"Host": "shop.example", "Origin": "https://x.example"})
    assert reply.status == 200
    open_shop.stock(value=4)
