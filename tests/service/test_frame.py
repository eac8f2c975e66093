# SPDX-License-Identifier: Apache-2.0
"""base/frame.h, by a service that is as small as one can be: counterd.c."""
import json
import os
import signal
import subprocess

import pytest

from world import Background, hold_lock, release_lock, wait_until

COUNTERD = os.environ["COUNTERD"]


@pytest.fixture
def counterd(redis, start, monkeypatch):
    monkeypatch.setenv("INVENTORYD", COUNTERD)
    return lambda *flags: start(redis, *flags)


def count(service, name="hits", by=None, **headers):
    return service.ask("POST", f"/counters/{name}" + (f"?by={by}" if by else ""), headers=headers)


def said(*flags, **environment):
    done = subprocess.run([COUNTERD, *flags], env={**os.environ, **environment}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_it_serves_under_its_lock(redis, counterd, tmp_path):
    service = counterd("--history", tmp_path / "h.jsonl", "--history-commands", "--run", "r1")
    assert [count(service).json["value"], count(service, by=5).json["value"]] == [1, 6]
    assert redis("GET", "counter:{hits}") == "6"
    service.signal(signal.SIGTERM)
    assert service.process.wait() == 0
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert lines[0]["event"] == "begin" and lines[0]["service"] == "counter" and lines[0]["run"] == "r1"
    of_one = [line for line in lines if line.get("request") == lines[1]["request"]]
    events = [line["event"] for line in of_one if line["event"] != "command"]
    assert events == ["invoke", "granted", "enter", "read", "write", "exit", "release"]
    assert {line["item"] for line in of_one} == {"hits"}
    assert any("SET counter" in line["sent"] for line in of_one if line["event"] == "command")
    assert lines[-1]["event"] == "end"


def test_paths_and_queries_are_read_by_its_table(redis, counterd):
    service = counterd()
    assert service.ask("GET", "/counters/hits").problem == "method-not-allowed"
    assert "there are: POST /counters/{name}" in service.ask("GET", "/nope").json["detail"]
    wrong = count(service, by=101)
    assert wrong.problem == "invalid-query" and wrong.json["detail"].endswith("the parameter is by, 1 to 100, once")
    assert count(service, "Hits").problem == "invalid-name"
    assert count(service, **{"Idempotency-Key": "k"}).problem == "idempotency-key-unsupported"
    redis("SADD", "counter:{set}", "x")
    assert count(service, "set").problem == "data-invalid"


def test_operators_look(redis, counterd):
    service = counterd("--work-ms", 3)
    assert service.admin("GET", "/readyz").status == 200
    assert service.admin("GET", "/livez").json == {"live": True, "instance": "a"}
    assert service.admin("GET", "/version").json["name"] == "counterd"
    assert service.admin("GET", "/config").json["work_ms"] == 3
    assert service.admin("GET", "/failpoints").problem == "failpoints-off"
    count(service)
    metrics = service.admin("GET", "/metrics").body.decode()
    assert "lock_acquired_total 1\n" in metrics and "lock_released_total 1\n" in metrics
    assert 'http_requests_total{route="/counters/{name}",method="POST",code="200"} 1\n' in metrics


def test_a_lock_that_is_not_granted(redis, counterd):
    service = counterd("--wait-ms", 200)
    hold_lock(redis, "hits")
    assert count(service).problem == "lock-timeout"
    redis("DEL", "lock:{hits}")
    redis("SET", "lock:{hits}", "no lock")
    assert count(service).problem == "lock-invalid"


def test_its_history_names_the_hold(redis, counterd, tmp_path):
    service = counterd("--history", tmp_path / "h.jsonl")
    count(service)
    service.end()
    lines = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    held = {line["event"] for line in lines if "hold" in line}
    assert held == {"granted", "enter", "read", "write", "exit", "release"}
    assert len({line.get("hold") for line in lines if "hold" in line}) == 1


def test_a_full_queue(redis, counterd):
    """One has the only worker, one the only place; whichever of the two comes later is refused at once."""
    service = counterd("--workers", 1, "--queue", 1)
    hold_lock(redis, "hits")
    first = Background(count, service)
    wait_until(lambda: b"lock_attempts_total 0\n" not in service.admin("GET", "/metrics").body, "it asks for the lock")
    others = [Background(count, service, name) for name in ("others", "more")]
    wait_until(lambda: b'code="503"} 1\n' in service.admin("GET", "/metrics").body, "one is refused")
    release_lock(redis, "hits")
    answers = sorted((other.result() for other in others), key=lambda answer: answer.status)
    assert [first.result().status, answers[0].status] == [200, 200]
    assert answers[1].problem == "queue-full"


@pytest.mark.parametrize("granted", (True, False))
def test_it_drains(redis, counterd, granted):
    service = counterd("--drain-ms", 8000)
    hold_lock(redis, "hits")
    waits = Background(count, service)
    wait_until(lambda: b"lock_attempts_total 0\n" not in service.admin("GET", "/metrics").body, "it asks for the lock")
    service.signal(signal.SIGTERM)
    wait_until(lambda: service.logged("draining"), "it drains")
    if granted:
        release_lock(redis, "hits")
        assert waits.result().status == 200
    else:
        assert waits.result().problem == "draining"
    assert service.process.wait() == 0
    assert service.logged("stopped")


def test_it_does_not_start_with_a_worker_that_cannot_be_opened(redis):
    for worker in (1, 3, 5):  # of --workers, of those that look after the instance
        code, text = said("--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, "--workers", "4",
                          "--broken-worker", str(worker))
        assert code == 1 and f"counterd: worker {worker} is broken" in text, text


def test_its_points(redis, counterd):
    service = counterd("--enable-failpoints", "--failpoints", "counter.after_read=1*fail")
    assert count(service).problem == "internal-error"
    assert count(service).json["value"] == 1
    wrong = service.admin("PUT", "/failpoints", '{"point":"sale.entered","action":"pause"}',
                          {"Content-Type": "application/json"})
    assert '"sale.entered" is no point; there are counter.after_read and those of the rungs' in wrong.json["detail"]


def test_its_settings_come_with_those_of_all():
    code, text = said("--help")
    assert code == 0 and text.startswith("counterd raises counters in Redis.\n")
    assert "(--work-ms: COUNTERD_WORK_MS)" in text
    assert text.index("--redis\n") < text.index("--listen\n") < text.index("--work-ms\n")
    assert "where counters are raised\n      host:port; default 127.0.0.1:8100" in text
    assert json.loads(said("--print-config", COUNTERD_WORK_MS="7")[1])["work_ms"] == 7
    assert said("--segments", "4")[1].startswith("counterd: --segments is no flag of counterd; the flags are --instance")
    assert "is no rung; the rungs are none, local" in said("--lock", "nope")[1]
    assert said("--history-required")[0] == 2
    assert "as in http://127.0.0.1:8101/livez" in said("--healthcheck")[1]
    table = said("--help=problems")[1].splitlines()
    assert [row for row in table if "queue-full" in row] == [
        "| 503 | `queue-full` | Too many requests are waiting | of requests; try again |"]
    assert len(table) == 2 + 25 + 5
