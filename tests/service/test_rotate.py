# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: the log and the history go on in new files. And a disk that is full."""
import json
import os
import resource
import signal
import socket

import pytest

from test_lifecycle import run
from world import Background, check_history, hold_lock, read_history, release_lock, wait_until


def rotated(shop, *files):
    """Moves the files away, as logrotate does; the paths that they have now."""
    moved = []
    for file in files:
        moved.append(file.with_name(file.name + ".1"))
        file.rename(moved[-1])
    shop.signal(signal.SIGHUP)
    wait_until(lambda: all(file.exists() for file in files), "the files are there anew")
    return moved


def logged(file):
    return [json.loads(line)["event"] for line in file.read_text().splitlines()]


def test_the_files_are_opened_anew(redis, start, tmp_path):
    history, log = tmp_path / "h.jsonl", tmp_path / "shop.log"
    shop = start(redis, "--history", history, "--log-file", log, log_path=log)
    shop.stock(value=5)
    assert shop.sell(request="before").status == 200
    hold_lock(redis)
    between = Background(shop.sell, request="between")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "a sale waits")
    old_history, old_log = rotated(shop, history, log)
    release_lock(redis)
    assert between.result().status == 200
    assert shop.sell(request="after").status == 200
    shop.end()
    old, new = read_history(old_history), read_history(history)
    check_history(old)
    check_history(new)
    assert old[-1]["event"] == "end" and new[-1]["event"] == "end"
    assert old[-1]["continued"] is True and "continued" not in new[-1]
    assert (old[0]["part"], new[0]["part"]) == (1, 2) and old[0]["pid"] == new[0]["pid"]
    assert [event["request"] for file in (old, new) for event in file if event["event"] == "write"] == \
        ["before", "between", "after"]
    assert old[0]["rung"] == new[0]["rung"] and old[0]["boot_id"] == new[0]["boot_id"]
    assert "started" in logged(old_log) and logged(log)[0] == "reopened" and "stopped" in logged(log)


def test_what_was_not_moved_goes_on(redis, start, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = start(redis, "--history", history)
    shop.stock(value=5)
    for i in range(3):
        shop.signal(signal.SIGHUP)
        wait_until(lambda: len(shop.logged("reopened")) == i + 1, "it has looked")
        assert shop.sell().status == 200
    shop.end()
    events = read_history(history)
    check_history(events)
    names = [event["event"] for event in events]
    assert names.count("begin") == names.count("end") == 1 and names.count("write") == 3


def test_a_new_file_that_cannot_be_opened(redis, start, tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    shop = start(redis, "--history", folder / "h.jsonl")
    shop.stock(value=5)
    folder.rename(tmp_path / "away")
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopen"), "it says that it could not")
    assert "the old file continues" in shop.logged("reopen")[0]["detail"]
    assert shop.sell().status == 200 and not shop.logged("reopened")
    assert shop.metric("inventoryd_history_lost_total") == 0
    shop.end()
    check_history(read_history(tmp_path / "away" / "h.jsonl"))


def test_a_history_without_a_name_is_lost(redis, start, tmp_path):
    """Nobody can read what is written to a file that was removed."""
    folder = tmp_path / "records"
    folder.mkdir()
    history = folder / "h.jsonl"
    shop = start(redis, "--history", history, "--history-required")
    shop.stock(value=5)
    assert shop.sell().status == 200 and shop.admin("GET", "/readyz").status == 200
    history.unlink()
    folder.rmdir()
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopen"), "it says that it could not")
    reply = shop.admin("GET", "/readyz")
    assert reply.status == 503 and "history" in reply.json["detail"]
    assert shop.sell().status == 200
    lost = shop.metric("inventoryd_history_lost_total")
    assert lost > 3 and len(shop.logged("history-failed")) == 1 and not shop.logged("reopened")
    folder.mkdir()
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopened"), "it has opened it anew")
    assert shop.admin("GET", "/readyz").status == 200 and len(shop.logged("history-restored")) == 1
    assert shop.sell().status == 200
    shop.end()
    check_history(read_history(history))


def test_a_history_that_cannot_go_on_by_its_name_is_failing(redis, start, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = start(redis, "--history", history, "--history-required")
    shop.stock(value=5)
    history.rename(tmp_path / "moved")
    history.mkdir()
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopen"), "it says that it could not")
    assert shop.sell().status == 200 and shop.admin("GET", "/readyz").status == 503
    history.rmdir()
    (tmp_path / "moved").rename(history)
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopened"), "it has found its file again")
    assert shop.admin("GET", "/readyz").status == 200
    shop.end()
    check_history(read_history(history))


def test_a_sighup_ends_nothing(redis, start):
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    sale = Background(shop.sell)
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "a sale waits")
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopen"), "it was heard")
    assert "no file to reopen" in shop.logged("reopen")[0]["detail"] and not shop.logged("reopened")
    shop.signal(signal.SIGTERM)
    wait_until(lambda: shop.logged("draining"), "it drains")
    shop.signal(signal.SIGHUP)
    release_lock(redis)
    assert sale.result().status == 200 and shop.wait() == 0


def test_a_full_disk_is_counted_and_told(redis, start, tmp_path):
    history = tmp_path / "h.jsonl"
    history.symlink_to("/dev/full")
    shop = start(redis, "--history", history, "--history-required")
    shop.stock(value=5)
    assert shop.sell().status == 200 and len(shop.logged("history-failed")) == 1
    assert shop.metric("inventoryd_history_lost_total") > 5
    reply = shop.admin("GET", "/readyz")
    assert reply.status == 503 and "history" in reply.json["detail"]
    history.unlink()
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.admin("GET", "/readyz").status == 200, "it is ready")
    assert len(shop.logged("history-restored")) == 1
    check_history(read_history(history))


def test_a_file_at_its_limit_is_as_a_full_disk(redis, start, tmp_path):
    """RLIMIT_FSIZE: the signal that comes with it would end the process."""
    history = tmp_path / "h.jsonl"
    shop = start(redis, "--history", history, "--history-required")
    shop.stock(value=50)
    for _ in range(10):
        assert shop.sell().status == 200
    limit = history.stat().st_size
    assert limit > 2 * len(shop.log)  # the log has room
    resource.prlimit(shop.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    assert shop.sell().status == 200 and history.stat().st_size == limit
    assert shop.metric("inventoryd_history_lost_total") > 3 and len(shop.logged("history-failed")) == 1
    assert shop.admin("GET", "/readyz").status == 503
    resource.prlimit(shop.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert shop.sell().status == 200 and shop.admin("GET", "/readyz").status == 200
    assert len(shop.logged("history-restored")) == 1


# ---- What is no file ---------------------------------------------------------------------------

@pytest.mark.parametrize("flag", ["--log-file", "--history"])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a folder"])
def test_what_could_stop_the_writer_is_refused(redis, tmp_path, flag, kind):
    """A FIFO that nobody reads stops who opens it, and who writes to it."""
    file = tmp_path / "records"
    if kind == "a FIFO":
        os.mkfifo(file)
    elif kind == "a folder":
        file.mkdir()
    else:
        socket.socket(socket.AF_UNIX).bind(str(file))
    done = run("--redis", redis.url, "--listen", "127.0.0.1:0", "--admin-listen", "off", flag, file)
    assert done.returncode == 1 and f"{file} is {kind}; give a regular file" in done.stderr


@pytest.mark.parametrize("name", ["one", "./one", "symbolic", "hard"])
def test_the_log_is_no_history(redis, tmp_path, name):
    """By whatever name: the lines of both would stand in one file."""
    log = tmp_path / "one"
    log.touch()
    (tmp_path / "symbolic").symlink_to(log)
    (tmp_path / "hard").hardlink_to(log)
    done = run("--redis", redis.url, "--listen", "127.0.0.1:0", "--admin-listen", "off", "--log-file", log,
               "--history", f"{tmp_path}/{name}")
    assert done.returncode == 1 and f"the history {tmp_path}/{name}: it is the log" in done.stderr
    assert b'"seq"' not in log.read_bytes()


def test_the_log_does_not_become_the_history(redis, start, tmp_path):
    history, log = tmp_path / "h.jsonl", tmp_path / "shop.log"
    shop = start(redis, "--history", history, "--log-file", log, log_path=log)
    history.rename(tmp_path / "h.jsonl.1")
    history.symlink_to(log)
    shop.signal(signal.SIGHUP)
    wait_until(lambda: shop.logged("reopen"), "it says that it could not")
    assert "it is the log" in shop.logged("reopen")[0]["detail"]
    shop.stock(value=5)
    assert shop.sell().status == 200 and b'"seq"' not in log.read_bytes()


def test_a_fifo_where_the_files_were(redis, start, tmp_path):
    history, log = tmp_path / "h.jsonl", tmp_path / "shop.log"
    shop = start(redis, "--history", history, "--log-file", log, log_path=log)
    shop.log_path = tmp_path / "shop.log.1"
    for file in (history, log):
        file.rename(str(file) + ".1")
        os.mkfifo(file)
    shop.signal(signal.SIGHUP)
    wait_until(lambda: len(shop.logged("reopen")) == 2, "it says that it could not, twice")
    assert all("is a FIFO" in line["detail"] for line in shop.logged("reopen"))
    shop.stock(value=5)
    assert shop.sell().status == 200


@pytest.mark.parametrize("flag", ["--log-file", "--history"])
def test_a_device_is_taken(redis, start, flag, tmp_path):
    (tmp_path / "null").symlink_to("/dev/null")
    shop = start(redis, flag, tmp_path / "null", ready=False)
    wait_until(lambda: os.path.samefile(f"/proc/{shop.process.pid}/fd/2", "/dev/null") if flag == "--log-file"
               else shop.logged("started"), "it has opened it")
