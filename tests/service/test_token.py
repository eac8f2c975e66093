# SPDX-License-Identifier: Apache-2.0
"""--admin-token-file: who may change something on the admin listener."""
import json
import os
import re
import signal
import socket

import pytest

import needs
from test_lifecycle import run
from world import PATIENCE_S, read_answers, running, wait_until

TOKEN = "A1-b2.c3_d4~e5+f6/=0"
JSON = {"Content-Type": "application/json"}
RIGHT = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(TOKEN + "\nanother line\n")
    with running(folder, "--admin-token-file", folder / "token", "--admin-writes", "--enable-failpoints") as instance:
        yield instance


@pytest.fixture(scope="module")
def routes(guarded):
    """(method, path) of all that the admin listener has, as it says itself."""
    detail = guarded.admin("GET", "/no/such/path").json["detail"]
    found = re.findall(r"([A-Z]+) (/[^\s,]+)", detail)
    assert len(found) > 8
    return [(method, path.replace("{item}", "phone")) for method, path in found]


def test_each_route_that_changes_something_asks_for_the_token(guarded, routes):
    changing = [route for route in routes if route[0] != "GET"]
    assert {("PUT", "/lock"), ("PUT", "/failpoints")} <= set(changing)
    for method, path in changing:
        reply = guarded.admin(method, path, "{}")
        assert reply.status == 401 and reply.problem == "unauthorized", (method, path)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer" in reply.json["detail"] and TOKEN not in reply.json["detail"]
        assert guarded.admin(method, path, "{}", {**RIGHT, **JSON}).status in (200, 422), (method, path)
    assert guarded.metric('http_requests_total{route="/lock",method="PUT",code="401"}') == 1


def test_who_only_reads_needs_none(guarded, routes):
    for method, path in routes:
        if method == "GET":
            assert guarded.admin(method, path).status == 200
    assert guarded.admin("OPTIONS", "/lock").status == 204


@pytest.mark.parametrize("value", [
    "", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
    f"Bearer {TOKEN.swapcase()}", f"Bearer x{TOKEN[1:]}", f"Bearer {TOKEN[:-1]}x", f"Bearer {TOKEN} {TOKEN}",
    "Bearer another line"])
def test_a_wrong_token(guarded, value):
    reply = guarded.admin("PUT", "/lock", '{"check_hold":true}', {"Authorization": value})
    assert reply.status == 401 and reply.problem == "unauthorized"
    assert guarded.admin("GET", "/lock").json["check_hold"] is False


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER ", "Bearer  "])
def test_the_schemes_case_and_spaces_do_not_matter(guarded, scheme):
    reply = guarded.admin("PUT", "/lock", "{}", {"Authorization": f"{scheme} {TOKEN}"})
    assert reply.status == 200


@pytest.mark.parametrize("behind", [" ", "\t", " \t  "])
def test_blanks_behind_the_value_are_no_part_of_it(guarded, behind):
    """RFC 9110, 5.5."""
    for authorization, code in ((f"Bearer {TOKEN}{behind}", 200), (f"Bearer {TOKEN}{behind}x", 401), (f"Bearer {behind}", 401)):
        (answered, _, _), = guarded.raw(f"PUT /lock HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n"
                                        "Content-Length: 2\r\n\r\n{}".encode(), port=guarded.admin_port)
        assert answered == code, authorization


def test_two_headers_are_one_too_many(guarded):
    """Which of the two a proxy has looked at nobody knows."""
    line = f"Authorization: Bearer {TOKEN}\r\n"
    with socket.create_connection(("127.0.0.1", guarded.admin_port), PATIENCE_S) as sock:
        sock.sendall(f"PUT /lock HTTP/1.1\r\nHost: x\r\n{line}{line}Content-Length: 2\r\n\r\n{{}}".encode())
        assert read_answers(sock)[0][0] == 401


def test_buyers_need_none(guarded):
    assert guarded.sell("nothing").problem == "unknown-item"


def test_without_the_file_none_is_asked_for(redis, start):
    shop = start(redis, "--admin-writes")
    assert shop.switch(check_hold=True).status == 200
    assert shop.admin("PUT", "/lock", "{}", {"Authorization": "Bearer whatever it may be"}).status == 200


def test_the_token_is_not_printed(guarded):
    config = guarded.admin("GET", "/config")
    assert config.json["admin_token_file"].endswith("/token") and TOKEN not in config.body.decode()
    assert TOKEN.encode() not in guarded.log


# ---- The file ------------------------------------------------------------------------------------

@pytest.mark.parametrize("line", [None, "", "t" * 15, "t" * 129, "t" * 4000, "with a space in it", "with\ta-tab-in-it-16",
                                  "ümlaut-ümlaut-ümlaut", "\n" + "t" * 20])
def test_a_token_file_that_is_none(tmp_path, line):
    file = tmp_path / "token"
    if line is not None:
        file.write_text(line)
    done = run("--print-config", "--admin-token-file", file)
    assert done.returncode == 2 and done.stderr.startswith("inventoryd: --admin-token-file: ")
    assert done.stderr.count("\n") == 1 and str(file) in done.stderr
    assert ("No such file" if line is None else "16 to 128 visible") in done.stderr


@pytest.mark.parametrize("flag", ["--admin-token-file", "--redis-password-file"])
@pytest.mark.parametrize("kind", ["a folder", "a FIFO", "a device"])
def test_what_is_no_file_is_no_token_file(tmp_path, flag, kind):
    """A FIFO without a writer would stop the start."""
    file = tmp_path / "token"
    if kind == "a folder":
        file.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    done = run("--print-config", flag, file)
    assert done.returncode == 2 and done.stderr == f"inventoryd: {flag}: {file} is no regular file; name one\n"


@pytest.mark.parametrize("content", ["t" * 20 + "\0", "t" * 20 + "\0secret\n", "\0" * 20, "\0" + "t" * 20])
def test_a_nul_does_not_end_the_token(tmp_path, content):
    (tmp_path / "token").write_text(content)
    done = run("--print-config", "--admin-token-file", tmp_path / "token")
    assert done.returncode == 2 and "NUL" in done.stderr and str(tmp_path / "token") in done.stderr


def test_a_changed_file_is_read_at_the_next_start(redis, start, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    shop = start(redis, "--admin-token-file", file)
    file.write_text("t" * 20)
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopen"), "it was heard")
    assert shop.admin("PUT", "/inventory/phone", '{"stock":5}', RIGHT).status == 200
    assert shop.admin("PUT", "/inventory/phone", '{"stock":5}', {"Authorization": f"Bearer {'t' * 20}"}).status == 401


@pytest.mark.parametrize("line", ["t" * 16, "t" * 128, "t" * 16 + "\r\n", "!~" * 10 + "\nmore"])
def test_a_token_file(tmp_path, line):
    file = tmp_path / "token"
    file.write_text(line)
    done = run("--print-config", "--admin-token-file", file)
    assert done.returncode == 0 and json.loads(done.stdout)["admin_token_file"] == str(file)


# ---- Beyond loopback -----------------------------------------------------------------------------

@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_beyond_loopback_it_does_not_start_without_a_token(redis, start, tmp_path, address):
    flags = ("--listen", "127.0.0.1:0", "--redis", redis.url, "--admin-listen", address)
    done = run(*flags)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    for word in ("inventoryd: --admin-listen ", address, "--admin-token-file FILE", "127.0.0.1", "[::1]"):
        assert word in done.stderr
    (tmp_path / "token").write_text(TOKEN)
    shop = start(redis, "--admin-listen", address, "--admin-token-file", tmp_path / "token")
    assert shop.logged("admin-exposed")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.1.2.3:0", "[::1]:0", "localhost:0", "off"])
def test_on_loopback_none_is_needed(redis, start, address):
    if address == "[::1]:0":
        needs.ipv6()
    assert not start(redis, "--admin-listen", address).logged("admin-exposed")
