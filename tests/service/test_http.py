# SPDX-License-Identifier: Apache-2.0
"""HTTP: routes, limits, malformed requests; every status and problem that needs no broken Redis."""
import json
import socket

import pytest

from world import hold_lock, is_closed, read_answers, release_lock, wait_until

JSON = {"Content-Type": "application/json"}


def request(line, *headers, body=b""):
    return b"\r\n".join([line, *headers, b"", body])


def test_health_is_answered_on_the_shop_listener(shop):
    reply = shop.ask("GET", "/healthz")
    assert reply.status == 200 and reply.json == {"status": "ok", "instance": "a"}


def test_stock_is_set_and_read(shop):
    reply = shop.stock(value=1000)
    assert reply.status == 200 and reply.json == {"item": "phone", "stock": 1000, "instance": "a"}
    reply = shop.stock()
    assert reply.status == 200 and reply.json == {"item": "phone", "stock": 1000, "instance": "a"}
    assert shop.redis("GET", "inventory:{phone}") == "1000"


def test_sale(shop):
    shop.stock(value=1000)
    reply = shop.sell()
    assert reply.status == 200
    assert reply.json == {"sold": 1, "left": 999, "unit": 1000, "item": "phone", "instance": "a"}
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("stock,quantity,left", [(10, 1, 9), (10, 4, 6), (10, 10, 0), (1000000, 1000000, 0)])
def test_quantity(shop, stock, quantity, left):
    shop.stock(value=stock)
    reply = shop.sell(quantity=quantity)
    assert reply.status == 200 and reply.json["sold"] == quantity
    assert reply.json["left"] == left and reply.json["unit"] == left + 1
    assert shop.stock().json["stock"] == left


@pytest.mark.parametrize("stock,quantity,problem", [(0, 1, "sold-out"), (3, 4, "insufficient-stock"), (-1, 1, "sold-out")])
def test_too_few(shop, stock, quantity, problem):
    shop.redis("SET", "inventory:{phone}", stock)
    reply = shop.sell(quantity=quantity)
    assert reply.status == 409 and reply.problem == problem and reply.json["left"] == stock
    assert shop.redis("GET", "inventory:{phone}") == str(stock)


def test_unknown_item(shop):
    assert shop.sell("nothing").problem == "unknown-item"
    assert shop.sell("nothing").status == 404
    assert shop.stock("nothing").status == 404


@pytest.mark.parametrize("item", ["a", "0", "_", "-", "a" * 64, "usb-c_2", "%70hone"])
def test_item_names(shop, item):
    assert shop.stock(item, 3).status == 200
    assert shop.sell(item).status == 200
    assert shop.stock(item).json["stock"] == 2


@pytest.mark.parametrize("item", ["A", "a" * 65, "a.b", "a%20b", "%7Bphone%7D", "caf%C3%A9", "a*", ""])
def test_bad_item_names(shop, item):
    reply = shop.sell(item)
    assert reply.status == 400 and reply.problem == "invalid-item"


@pytest.mark.parametrize("path", ["/", "/inventory", "/inventory/phone/", "/inventory/phone/sale/", "//inventory/phone",
                                  "/inventory/phone/sale/x", "/Healthz", "/healthz/", "/livez", "/metrics", "/lock"])
def test_no_such_resource(shop, path):
    reply = shop.ask("GET", path)
    assert reply.status == 404 and reply.problem == "no-such-resource"
    assert "GET /inventory/{item}" in reply.json["detail"]


@pytest.mark.parametrize("method,path,allow", [
    ("GET", "/inventory/phone/sale", "POST, OPTIONS"), ("DELETE", "/inventory/phone", "GET, HEAD, OPTIONS"),
    ("POST", "/inventory/phone", "GET, HEAD, OPTIONS"), ("PUT", "/healthz", "GET, HEAD, OPTIONS"),
    ("BREW", "/healthz", "GET, HEAD, OPTIONS"), ("HEAD", "/inventory/phone/sale", "POST, OPTIONS")])
def test_wrong_method(shop, method, path, allow):
    reply = shop.ask(method, path)
    assert reply.status == 405 and reply.headers["allow"] == allow
    assert method == "HEAD" or reply.problem == "method-not-allowed"


def test_options(shop):
    reply = shop.ask("OPTIONS", "/inventory/phone")
    assert reply.status == 204 and reply.headers["allow"] == "GET, HEAD, OPTIONS" and reply.body == b""
    assert shop.ask("OPTIONS", "*").status == 204


def test_head_is_get_without_body(shop):
    shop.stock(value=7)
    get, head = shop.ask("GET", "/inventory/phone"), shop.ask("HEAD", "/inventory/phone")
    assert head.status == 200 and head.body == b""
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.body))


# ---- The query --------------------------------------------------------------------------------

@pytest.mark.parametrize("query", [
    "quantity=0", "quantity=-1", "quantity=1000001", "quantity=99999999999999999999", "quantity=abc", "quantity=1.5",
    "quantity=", "quantity", "quantity=1&quantity=2", "quantity=1&x=2", "qty=1", "Quantity=1", "quantity=%31",
    "quantity=+1", "quantity=1%00", "x", "quantity=01", "quantity=0000000000000000000001"])
def test_bad_query(shop, query):
    shop.stock(value=10)
    reply = shop.ask("POST", f"/inventory/phone/sale?{query}")
    assert reply.status == 400 and reply.problem == "invalid-query" and "quantity" in reply.json["detail"]
    assert shop.stock().json["stock"] == 10


def test_query_where_none_is_taken(shop):
    assert shop.ask("GET", "/inventory/phone?x=1").problem == "invalid-query"
    assert shop.ask("GET", "/healthz?").status == 200


# ---- The body ----------------------------------------------------------------------------------

@pytest.mark.parametrize("body", ["", "{", "[1", "stock=5", "{\"stock\":1000", "\x00", "{'stock':1}", '{"stock":5}x', '{"stock":5}{}', '{"stock":5} \x00',
                                  '{"stock":05}', '{"stock":-05}', '{"stock":5.}', '{"stock":5e}', b'\xef\xbb\xbf{"stock":5}',
                                  '{"stock":5,"stock":5}', '[{"a":{"b":1,"b":1}}]', '{"st\nock":5}'])
def test_invalid_json(shop, body):
    shop.stock(value=4)
    reply = shop.admin("PUT", "/inventory/phone", body, JSON)
    assert reply.status == 400 and reply.problem == "invalid-json", reply
    assert shop.stock().json["stock"] == 4


@pytest.mark.parametrize("body", ['{"stock\\u0000x":5}', '{"stock\\u0000":5}', '{"x\\\\\\u0000":5}', '{"stock":"\\u0000"}'])
def test_a_nul_in_a_text(shop, body):
    """Texts would end there."""
    shop.stock(value=4)
    reply = shop.admin("PUT", "/inventory/phone", body, JSON)
    assert reply.status == 400 and reply.problem == "invalid-json" and "\\u0000" in reply.json["detail"]
    assert shop.stock().json["stock"] == 4
    assert shop.admin("PUT", "/inventory/phone", '{"\\\\u0000":5}', JSON).status == 422  # a backslash, and u0000


@pytest.mark.parametrize("text", [b"\xff", b"a\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xe0\x9f\x80", b"\xed\xa0\x80",
                                  b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xc3(", b"\xe2(\xa1", b"\xe2\x82("])
def test_a_text_that_is_no_utf8(shop, text):
    reply = shop.admin("PUT", "/inventory/phone", b'{"stock":5,"' + text + b'":1}', JSON)
    assert reply.status == 400 and reply.problem == "invalid-json" and "must be UTF-8" in reply.json["detail"]


@pytest.mark.parametrize("text", ["a", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"])
def test_a_text_of_any_character(shop, text):
    assert shop.admin("PUT", "/inventory/phone", f'{{"stock":5,"{text}":1}}'.encode(), JSON).status == 422


@pytest.mark.parametrize("body", [' {"stock" : 5} \r\n\t', '{"st\\u006fck":5}'])
def test_valid_json(shop, body):
    assert shop.admin("PUT", "/inventory/phone", body, JSON).status == 200
    assert shop.stock().json["stock"] == 5


@pytest.mark.parametrize("body", ["{}", "[]", "5", "null", '{"stock":-1}', '{"stock":"5"}', '{"stock":1.5}',
                                  '{"stock":1e300}', '{"stock":1000000000001}', '{"stock":null}', '{"stock":1,"x":2}',
                                  '{"Stock":1}'])
def test_invalid_value(shop, body):
    shop.stock(value=4)
    reply = shop.admin("PUT", "/inventory/phone", body, JSON)
    assert reply.status == 422 and reply.problem == "invalid-value" and "stock" in reply.json["detail"]
    assert shop.stock().json["stock"] == 4


@pytest.mark.parametrize("number", ["5.0", "5e0", "50E-1", "-0", "1e-400", "0.0000000000000000000000000001", "1E3",
                                    "999999999999.99999", "1000000000000.00001", "1000.00000000000000001"])
def test_a_number_is_written_in_digits_alone(shop, number):
    """Any other is rounded, and may become one that is right."""
    shop.stock(value=4)
    for method, path, name in (("PUT", "/inventory/phone", "stock"), ("POST", "/inventory/phone/restock", "add")):
        reply = shop.admin(method, path, '{"%s": %s}' % (name, number), JSON)
        assert reply.status == 422 and reply.problem == "invalid-value" and "digits" in reply.json["detail"]
    assert shop.stock().json["stock"] == 4


@pytest.mark.parametrize("kind,status", [("application/json", 200), ("application/json; charset=utf-8", 200),
                                         ("Application/JSON", 200), (None, 200), ("text/plain", 415),
                                         ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415)])
def test_content_type(shop, kind, status):
    reply = shop.admin("PUT", "/inventory/phone", '{"stock":5}', {"Content-Type": kind} if kind else {})
    assert reply.status == status
    assert status == 200 or reply.problem == "unsupported-media-type"


@pytest.mark.parametrize("method,path", [("POST", "/inventory/phone/sale"), ("GET", "/inventory/phone")])
def test_unexpected_body(shop, method, path):
    reply = shop.ask(method, path, '{"quantity":2}', JSON)
    assert reply.status == 400 and reply.problem == "unexpected-body"


@pytest.mark.parametrize("size,status", [(4096, 200), (4097, 413), (20000, 413), (65536, 413), (10**6, 413)])
def test_body_size(shop, size, status):
    body = b'{"stock":5' + b" " * (size - 11) + b"}"
    line = b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size
    with shop.connection(shop.admin_port) as sock:
        sock.sendall(line)
        if status == 200 or size <= 65536:
            sock.sendall(body)
        (code, _, text), = read_answers(sock)
    assert code == status
    assert status == 200 or json.loads(text)["type"].endswith(":body-too-large")


def test_chunked_body(shop):
    head = b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = shop.raw(head + b'6\r\n{"stoc\r\n5\r\nk":8}\r\n0\r\n\r\n', port=shop.admin_port)
    assert answers[0][0] == 200 and shop.stock().json["stock"] == 8
    assert shop.raw(head + b"2000\r\n" + b" " * 0x2000 + b"\r\n0\r\n\r\n", port=shop.admin_port)[0][0] == 413


def test_endless_chunked_body_is_cut(shop):
    with shop.connection(shop.admin_port) as sock:
        sock.sendall(b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(10000):
                sock.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")


def test_expect_continue(shop):
    head = b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    with shop.connection(shop.admin_port) as sock:
        sock.sendall(head % 11)
        assert read_answers(sock)[0][0] == 100
        sock.sendall(b'{"stock":6}')
        assert read_answers(sock)[0][0] == 200
    with shop.connection(shop.admin_port) as sock:
        sock.sendall(head % 5000)
        assert read_answers(sock)[0][0] == 413
        assert is_closed(sock)


# ---- The head ----------------------------------------------------------------------------------

@pytest.mark.parametrize("size,status", [(1000, 404), (1024, 404), (1025, 414), (5000, 414), (12000, 414)])
def test_url_length(shop, size, status):
    (code, _, body), = shop.raw(request(b"GET /" + b"a" * (size - 1) + b" HTTP/1.1", b"Host: x"))
    assert code == status
    assert status == 404 or json.loads(body)["type"].endswith(":url-too-long")


@pytest.mark.parametrize("count,size,status", [(40, 10, 200), (60, 1, 431), (1, 3500, 200), (1, 4500, 431),
                                               (30, 300, 431)])
def test_header_limits(shop, count, size, status):
    headers = [b"X-%d: %s" % (i, b"v" * size) for i in range(count)]
    (code, _, body), = shop.raw(request(b"GET /healthz HTTP/1.1", b"Host: x", *headers))
    assert code == status
    assert status == 200 or json.loads(body)["type"].endswith(":headers-too-large")


def test_there_is_always_an_answer_or_a_close_whatever_the_size(shop):
    """Between our limits and libmicrohttpd's memory no size may hang or break the instance."""
    for size in list(range(500, 20000, 750)) + [100000]:
        for head in (b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * size + b"\r\n\r\n",
                     b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * (size // 6) + b"\r\n"):
            answers = shop.raw(head)
            if size > 15000 and not answers:
                continue  # libmicrohttpd's memory is full: it closes, with a bare status or without
            assert len(answers) == 1 and answers[0][0] in (200, 404, 414, 431), (size, head[:30], answers)
    assert shop.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("head", [
    request(b"GET /healthz HTTP/1.1", b"Host: a", b"Host: b"),
    request(b"GET /%zz HTTP/1.1", b"Host: x"), request(b"GET /%2 HTTP/1.1", b"Host: x"),
    request(b"GET /inventory/a%2Fb HTTP/1.1", b"Host: x"), request(b"GET /inventory/a%00 HTTP/1.1", b"Host: x"),
    request(b"GET healthz HTTP/1.1", b"Host: x"), request(b"GET /caf\xc3\xa9 HTTP/1.1", b"Host: x"),
    request(b"PUT /inventory/a HTTP/1.1", b"Host: x", b"Content-Length: 2", b"Content-Length: 3", body=b"{}"),
    request(b"PUT /inventory/a HTTP/1.1", b"Host: x", b"Content-Length: 2", b"Transfer-Encoding: chunked",
            body=b"0\r\n\r\n"),
])
def test_malformed_requests_are_told_so(shop, head):
    (code, headers, body), = shop.raw(head)
    assert code == 400 and headers["content-type"] == "application/problem+json"
    assert json.loads(body)["type"].endswith(":malformed-request")


@pytest.mark.parametrize("head", [
    request(b"GET /healthz HTTP/1.1"),  # no Host
    request(b"GET /healthz\0 HTTP/1.1", b"Host: x"), request(b"GET /healthz\0?x HTTP/1.1", b"Host: x"),
    request(b"GET /healthz?\0x HTTP/1.1", b"Host: x"), request(b"GET /healthz\0HTTP/1.1 HTTP/1.1", b"Host: x"),
    request(b"PUT /inventory/a HTTP/1.1", b"Host: x", b"Transfer-Encoding: gzip", body=b"x"),
])
def test_malformed_requests_are_refused(shop, head):
    """libmicrohttpd 1.0 does so itself, with a bare status."""
    (code, headers, body), = shop.raw(head)
    assert code == 400
    assert "content-type" not in headers or json.loads(body)["type"].endswith(":malformed-request")


@pytest.mark.parametrize("head", [
    b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"\r\n" * 100 + b"x y z\r\n\r\n",
    b"PUT /inventory/a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"PUT /inventory/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n",
])
def test_what_is_no_http_ends_the_connection(shop, head):
    """libmicrohttpd refuses it itself, with a bare status or none; nothing else happens."""
    with shop.connection() as sock:
        sock.sendall(head)
        answers = read_answers(sock)
        assert all(400 <= code < 600 for code, _, _ in answers)
        assert is_closed(sock)


@pytest.mark.parametrize("data", [b"", b"\x00" * 100 + b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
                                  b"GET /heal", b"\r\n"])
def test_what_is_no_request_yet_holds_nothing_up(shop, data):
    with shop.connection() as sock:
        sock.sendall(data)
        assert shop.ask("GET", "/healthz").status == 200


def test_http_1_0(shop):
    assert shop.raw(b"GET /healthz HTTP/1.0\r\n\r\n")[0][0] == 200


def test_absolute_form(shop):
    assert shop.raw(request(b"GET http://shop.example/healthz HTTP/1.1", b"Host: shop.example"))[0][0] == 200


# ---- Ids ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("given,kept", [("abc-1.2_Z", True), ("a" * 64, True), ("a" * 65, False), ("a b", False),
                                        ("a\"b", False), ("", False)])
def test_request_id(shop, given, kept):
    reply = shop.ask("GET", "/healthz", headers={"X-Request-Id": given})
    assert (reply.headers["x-request-id"] == given) == kept
    assert len(reply.headers["x-request-id"]) in (16, len(given)) and reply.headers["x-instance"] == "a"


def test_made_request_ids_differ_and_errors_carry_them(shop):
    ids = {shop.ask("GET", "/nowhere").headers["x-request-id"] for _ in range(50)}
    assert len(ids) == 50


# ---- Connections -------------------------------------------------------------------------------

def test_pipelined_requests_are_answered_in_order(shop):
    shop.stock(value=100)
    one = b"POST /inventory/phone/sale HTTP/1.1\r\nHost: x\r\nX-Request-Id: r%d\r\n\r\n"
    answers = shop.raw(b"".join(one % i for i in range(20)), count=20)
    assert [headers["x-request-id"] for _, headers, _ in answers] == [f"r{i}" for i in range(20)]
    assert [json.loads(body)["left"] for _, _, body in answers] == list(range(99, 79, -1))


def test_fragmented_request(shop):
    head = b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{\"stock\":9}"
    with shop.connection(shop.admin_port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(head)):
            sock.sendall(head[i:i + 1])
        assert read_answers(sock)[0][0] == 200
        assert is_closed(sock)
    assert shop.stock().json["stock"] == 9


def test_clients_that_leave_early(shop):
    shop.stock(value=100)
    hold_lock(shop.redis)
    head = b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n"
    sale = b"POST /inventory/phone/sale HTTP/1.1\r\nHost: x\r\n\r\n"
    clients = []
    for data in [b"GE", head[:20], head, head + b'{"st', sale[:-2]] * 5 + [sale] * 10:
        clients.append(shop.connection())
        clients[-1].sendall(data)
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 10, "the sales wait for the lock")
    # Read first: libmicrohttpd does not see a close that comes together with the last bytes, and
    # keeps such a connection for its idle time-out.
    wait_until(lambda: shop.unread() == 0, "what was sent is read")
    for sock in clients:  # nobody waits for the answers any more: the ten are sold nothing
        sock.close()
    release_lock(shop.redis)
    wait_until(lambda: shop.metric('inventory_sales_total{outcome="client_closed"}') == 10, "their turns")
    assert shop.stock().json["stock"] == 100
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 0, "the end of the sales")
    wait_until(lambda: shop.clients() == 0, "the connections of clients that left are closed")
