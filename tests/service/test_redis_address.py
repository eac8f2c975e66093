# SPDX-License-Identifier: Apache-2.0
"""How Redis is addressed: two servers, logins, passwords, Unix sockets, and something else that listens there."""
import socket

import pytest

from test_redis import QUICK
from world import LossyProxy, Redis, hold_lock


def test_scripts_are_loaded_from_a_host_with_a_long_name(redis, start):
    """No message about it has room for what Redis says. The name is octal, and means 127.0.0.1."""
    name = "0177.0.0.1".rjust(240, "0")
    shop = start(None, "--lock-redis", redis.url, "--stock-redis", f"redis://{name}:{redis.port}", "--write", "atomic")
    assert shop.stock(value=5).status == 200
    assert shop.sell().json["unit"] == 5 and shop.sell().json["unit"] == 4


def test_lock_and_stock_on_different_servers(redis, start, tmp_path):
    other = Redis(tmp_path / "other")
    try:
        shop = start(None, "--lock-redis", redis.url, "--stock-redis", other.url, *QUICK)
        assert shop.admin("GET", "/readyz").status == 200
        shop.stock(value=5)
        assert other("GET", "inventory:{phone}") == "5" and redis("GET", "inventory:{phone}") is None
        hold_lock(redis)
        assert shop.sell().problem == "lock-timeout"
        redis.restart()  # a lock server that comes back empty does not take the stock with it
        assert shop.sell().json["left"] == 4
        redis.kill()
        reply = shop.admin("GET", "/readyz")
        assert reply.status == 503 and str(redis.port) in reply.json["detail"]
        assert shop.stock().status == 200
    finally:
        other.kill()


def test_login_and_database(redis, start):
    redis.restart("--requirepass", "s3cret:/@")
    url = f"redis://default:s3cret%3A%2F%40@127.0.0.1:{redis.port}/3"
    shop = start(url, *QUICK)
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200
    assert b"s3cret" not in shop.log and b"s3cret" not in shop.admin("GET", "/config").body
    wrong = start(f"redis://:nope@127.0.0.1:{redis.port}", *QUICK, name="b")
    reply = wrong.admin("GET", "/readyz")
    assert reply.status == 503 and "WRONGPASS" in reply.json["detail"] and "nope" not in reply.json["detail"]


@pytest.mark.parametrize("login", ["", "default:@"])
@pytest.mark.parametrize("word,line", [("s3cret:/@%", "s3cret:/@%"), ("pass word", "pass word\r\nmore\n"),
                                       ("x" * 512, "x" * 512 + "\n")])
def test_password_from_a_file(redis, start, tmp_path, login, word, line):
    redis.restart("--requirepass", word)
    (tmp_path / "password").write_bytes(line.encode())
    shop = start(f"redis://{login}127.0.0.1:{redis.port}", *QUICK, "--redis-password-file", tmp_path / "password",
                 "--stock-redis", f"unix:{login}{redis.unix_socket}")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200
    assert word.encode() not in shop.log and word.encode() not in shop.admin("GET", "/config").body


def test_a_password_in_the_url_is_kept(redis, start, tmp_path):
    redis.restart("--requirepass", "right")
    (tmp_path / "password").write_text("wrong")
    shop = start(f"redis://:right@127.0.0.1:{redis.port}", *QUICK, "--redis-password-file", tmp_path / "password")
    assert shop.admin("GET", "/readyz").status == 200


def test_unix_socket(redis, start):
    shop = start(f"unix:{redis.unix_socket}?db=2")
    assert shop.stock(value=5).status == 200 and shop.sell().status == 200
    assert shop.admin("GET", "/readyz").status == 200


def test_a_server_that_speaks_something_else(start):
    with socket.socket() as nobody:  # keeps the port, and takes no connection
        nobody.bind(("127.0.0.1", 0))
        listener = LossyProxy(type("Nothing", (), {"port": nobody.getsockname()[1]})())
        shop = start(listener.url, *QUICK)
        assert shop.sell().status == 503
        assert shop.admin("GET", "/readyz").problem == "not-ready"
        listener.end()
