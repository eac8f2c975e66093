# SPDX-License-Identifier: Apache-2.0
"""Which Idempotency-Keys are taken, and which are refused."""
import json

import pytest

from idempotency import SALE, STOCK, is_record
from world import read_history, running


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with running(folder, "--lock", "fenced", "--history", folder / "history.jsonl") as instance:
        instance.history = folder / "history.jsonl"
        yield instance


def post_key(shop, *lines, path=SALE, method="POST"):
    answers = shop.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode() +
                       b"".join(line + b"\r\n" for line in lines) + b"Content-Length: 0\r\n\r\n")
    assert len(answers) == 1, answers
    return answers[0]


VISIBLE = "".join(chr(code) for code in range(0x21, 0x7f))


@pytest.mark.parametrize("sent,key", [
    ("k-plain", "k-plain"), ("x" * 64, "x" * 64), ("!" + VISIBLE[1:64], "!" + VISIBLE[1:64]), (VISIBLE[64:], VISIBLE[64:]),
    ('"k-quoted"', "k-quoted"), ('"a\\"b\\\\c"', 'a"b\\c'), ('"' + "y" * 64 + '"', "y" * 64), (" \tk-blank \t", "k-blank"),
    ("k\"mid", "k\"mid"), ("k\\", "k\\"), ("%7d%0a{}", "%7d%0a{}"), ("../../inventory:{case}", "../../inventory:{case}"),
    ("k*?[a]", "k*?[a]"), ("',1);redis.call('FLUSHALL')--", "',1);redis.call('FLUSHALL')--")])
def test_keys_that_are_taken_as_they_are(lab, sent, key):
    lab.stock(value=5)
    status, headers, body = post_key(lab, b"Idempotency-Key: " + sent.encode())
    assert status == 200, body
    assert is_record(lab.redis("GET", f"{STOCK}:key:{key}"), f"200 1 {json.loads(body)['left']} a")
    status, headers, again = post_key(lab, b"iDEMPOTENCY-kEY:" + sent.encode())
    assert (status, again) == (200, body) and headers["idempotency-replayed"] == "true"
    assert read_history(lab.history)[-6]["key"] == key


@pytest.mark.parametrize("lines", [
    [b"Idempotency-Key:"], [b"Idempotency-Key: "], [b"Idempotency-Key: " + b"x" * 65], [b"Idempotency-Key: a b"],
    [b"Idempotency-Key: a\tb"], [b"Idempotency-Key: a\x7f"], [b"Idempotency-Key: \xc3\xa4"], [b"Idempotency-Key: a\x01"],
    [b'Idempotency-Key: "'], [b'Idempotency-Key: ""'], [b'Idempotency-Key: "a'], [b'Idempotency-Key: "a"b'],
    [b'Idempotency-Key: "a";x=1'], [b'Idempotency-Key: "a", "b"'], [b'Idempotency-Key: "a\\b"'], [b'Idempotency-Key: "a\\'],
    [b'Idempotency-Key: "a b"'], [b'Idempotency-Key: "' + b"x" * 65 + b'"'], [b"Idempotency-Key: a, b"],
    [b"Idempotency-Key: a", b"Idempotency-Key: a"], [b"Idempotency-Key: a", b"idempotency-key: b"],
    [b"Idempotency-Key:", b"Idempotency-Key: b"], [b"Idempotency-Key: a", b" b"],
    [b"Idempotency_Key: a"], [b"idempotency_key: a", b"Idempotency-Key: a"], [b"Idempotency-Key_: a"]])
def test_keys_that_are_refused(lab, lines):
    lab.stock(value=5)
    status, headers, body = post_key(lab, *lines)
    assert status == 400 and json.loads(body)["type"].endswith(":invalid-idempotency-key"), body
    assert "64 visible ASCII characters" in json.loads(body)["detail"]
    assert lab.redis("GET", STOCK) == "5"


def test_a_name_that_ends_in_a_blank_is_refused(lab):
    """By libmicrohttpd itself from 1.0 on."""
    lab.stock(value=5)
    assert post_key(lab, b"Idempotency-Key : a")[0] == 400 and lab.redis("GET", STOCK) == "5"


def test_a_folded_key_is_refused_or_whole(lab):
    """libmicrohttpd takes the second line for a part of the name, and from 1.0 on for the value."""
    lab.stock(value=5)
    status, _, body = post_key(lab, b"Idempotency-Key:", b" a")
    again = post_key(lab, b"Idempotency-Key: a")
    if status == 200:
        assert again[2] == body and again[1]["idempotency-replayed"] == "true"
    else:
        assert status == 400 and json.loads(body)["type"].endswith(":invalid-idempotency-key")
    assert again[0] == 200 and lab.redis("GET", STOCK) == "4"


def test_where_nothing_is_changed_it_means_nothing(lab):
    lab.stock(value=5)
    for lines in ([b"Idempotency-Key: k"], [b"Idempotency-Key: a", b"Idempotency-Key: a b"]):
        assert post_key(lab, *lines, path="/inventory/phone", method="GET")[0] == 200
        assert post_key(lab, *lines, path="/healthz", method="GET")[0] == 200
    assert lab.ask("HEAD", "/inventory/phone", headers={"Idempotency-Key": "k"}).status == 200


@pytest.mark.parametrize("method,path,body", [
    ("PUT", "/inventory/phone", {"stock": 9}), ("POST", "/inventory/phone/restock", {"add": 9}),
    ("PUT", "/lock", {"write": "atomic"})])
def test_operators_changes_take_none(lab, method, path, body):
    lab.stock(value=5)
    reply = lab.admin(method, path, json.dumps(body), {"Content-Type": "application/json", "Idempotency-Key": "k"})
    assert reply.status == 400 and reply.problem == "idempotency-key-unsupported" and lab.redis("GET", STOCK) == "5"
