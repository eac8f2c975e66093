# SPDX-License-Identifier: Apache-2.0
"""Whatever lies in the folder, the judge ends with 0, 1 or 2, and what it writes is well formed."""
import json
import os
import random
import shutil
import xml.etree.ElementTree as xml

import pytest
import shop
from judge import SEEDS, audit, verdict_of

FILES = ["run.json", "redis.json", "sale.jtl", "nginx.log", "history-a.jsonl", "history-b.jsonl"]
VALUES = [None, True, -1, 0, 1.5, 1e300, -1e300, 2**53 + 1, 2**63 - 1, -2**63, 2**60, "",
          "x" * 3000, "\u0000", "\ud800", "<&\">'", "日本", [], {}, [1], {"a": 1}, "none", "a"]


def spoil_bytes(data, rand):
    data = bytearray(data)
    for _ in range(rand.randint(1, 20)):
        if data:
            data[rand.randrange(len(data))] = rand.choice([rand.randrange(256), 0, 34, 10, 44, 92])
    return bytes(data)


def spoil_length(data, rand):
    cut = rand.randrange(len(data) + 1)
    return rand.choice([data[:cut], data[cut:], data + data[cut:], b"", data * 2])


def spoil_noise(_, rand):
    return bytes(rand.randrange(256) for _ in range(rand.randrange(3000)))


def spoil_values(data, rand):
    """Valid JSON lines with fields that are missing, or of another type."""
    lines = data.split(b"\n")
    for _ in range(rand.randint(1, 6)):
        i = rand.randrange(len(lines))
        try:
            line = json.loads(lines[i])
        except ValueError:
            continue
        if not isinstance(line, dict) or not line:
            continue
        key = rand.choice(list(line))
        if rand.random() < 0.3:
            del line[key]
        elif isinstance(line[key], dict) and line[key] and rand.random() < 0.7:
            line[key][rand.choice(list(line[key]))] = rand.choice(VALUES)
        else:
            line[key] = rand.choice(VALUES)
        lines[i] = json.dumps(line).encode()
    return b"\n".join(lines)


def spoil_cells(data, rand):
    rows = data.split(b"\n")
    for _ in range(rand.randint(1, 6)):
        i = rand.randrange(len(rows))
        cells = rows[i].split(b",")
        cells[rand.randrange(len(cells))] = rand.choice(
            [b"", b'"', b'""""', b"-9223372036854775808", b"1e9", b"\r\r", b"," * 200, b"x" * 5000])
        rows[i] = b",".join(cells)
    return b"\n".join(rows)


def spoil_order(data, rand):
    lines = data.split(b"\n")
    rand.shuffle(lines)
    return b"\n".join(lines)


def spoil(folder, rand):
    for _ in range(rand.randint(1, 2)):
        path = os.path.join(folder, rand.choice(FILES))
        if rand.random() < 0.03:
            os.remove(path)
            if rand.random() < 0.5:
                os.mkdir(path)
            return
        if not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            data = file.read()
        how = rand.choice([spoil_bytes, spoil_length, spoil_noise, spoil_values, spoil_values,
                           spoil_values, spoil_cells, spoil_order])
        with open(path, "wb") as file:
            file.write(how(data, rand))


def check(folder, done):
    assert done.returncode in (0, 1, 2), (folder, done.returncode, done.stderr)
    for word in ("Sanitizer", "runtime error", "SUMMARY"):
        assert word not in done.stderr, done.stderr
    if not os.path.exists(os.path.join(folder, "verdict.json")):
        assert "run.json" in done.stderr
        return
    assert verdict_of(folder)["result"]
    tree = xml.parse(os.path.join(folder, "timeline.svg"))
    assert tree.getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("part", range(4))
def test_garbage(tmp_path, part):
    """Several folders in one call, so that one that is spoilt does not spoil the next."""
    for batch in range(SEEDS // 20):
        folders = []
        for i in range(10):
            seed = (part * 1000 + batch) * 10 + i
            rand = random.Random(seed)
            world = shop.clean(seed, instances=["a", "b"], requests=rand.choice([8, 12]))
            folders.append(world.write(str(tmp_path / str(seed))))
            spoil(folders[-1], rand)
        done = audit(*folders)
        for folder in folders:
            check(folder, done)
            shutil.rmtree(folder)


@pytest.mark.parametrize("name, text, sentence", [
    ("run.json", b"{", "run.json: not JSON from byte"),
    ("run.json", b"[]", "run.json: JSON, but not an object; it must be one JSON object"),
    ("run.json", b'{"run":"x"}', 'run.json: no "rung"; it must be a text'),
])
def test_without_a_run(tmp_path, name, text, sentence):
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    (tmp_path / "run" / name).write_bytes(text)
    done = audit(folder)
    assert done.returncode == 2 and done.stdout == "" and sentence in done.stderr
    assert not (tmp_path / "run" / "verdict.json").exists()


RUN_FIELDS = [
    ("requests", "many", '"requests" must be a whole number from 0 to 2000000'),
    ("instances", [], '"instances" must be a list of 1 to 64 names'),
    ("instances", ["a", "b", "a"], '"instances": a is there twice; it must be there once'),
    ("items", {"phone": -1}, '"items": phone must be there once and hold a whole number'),
    ("items", {}, '"items" must be an object of 1 to 10000 items'),
    ("expect", ["fine"], '"expect" must be null or a list of results, of: ok, oversold'),
    ("clients", {"boot_id": "x"}, 'no "clock"; it must be a text'),
    ("clients", {"boot_id": "x", "clock": "CLOCK_TAI", "slack_ms": 1}, '"clock" is CLOCK_TAI; it must be CLOCK_REALTIME'),
    ("clients", {"boot_id": "x", "clock": "CLOCK_REALTIME", "slack_ms": 5000}, '"slack_ms" must be a whole number from 0 to 1000'),
    ("min_share", 2, '"min_share" is 2; it must be from 0 to 1'),
    ("quantity", 0, '"quantity" must be a whole number from 1 to'),
    ("annotations", "Redis dies", '"annotations" must be a list of at most 16, as'),
    ("annotations", [{"t_ns": 1, "text": "again"}] * 17, '"annotations" must be a list of at most 16, as'),
    ("annotations", [{"t_ns": 1}], '"text"'), ("annotations", [{"text": "when"}], '"t_ns"'), ("annotations", [5], '"t_ns"'),
    ("lock_changes", "set", '"lock_changes" must be a list of at most 64, as'),
    ("lock_changes", [{"t_ns": 1, "holder": None}] * 65, '"lock_changes" must be a list of at most 64, as'),
    ("lock_changes", [{"holder": "a1"}], '"t_ns"'), ("lock_changes", [{"t_ns": 1, "holder": 7}], '"holder"'),
    ("lock_changes", [{"t_ns": 1, "holder": "a1", "expires_ns": "soon"}], '"expires_ns"'),
    ("lock_changes", [{"t_ns": 1, "holder": "a1", "session": "mine"}], '"session" is neither true nor false'),
    ("annotations", [{"t_ns": 1, "text": "c dies", "killed": "c"}], '"killed" is c; it must be one of "instances"'),
    ("fresh_keys", 1, '"fresh_keys" is neither true nor false'),
    ("restocked", "yes", '"restocked" is neither true nor false'),
]


@pytest.mark.parametrize("field, value, sentence", RUN_FIELDS, ids=lambda v: str(v)[:20])
def test_run_json_says_what_would_be_right(tmp_path, field, value, sentence):
    world = shop.clean(1)
    world.run[field] = value
    if field == "items":
        world.redis = {"before": shop.side({}), "after": shop.side({})}
    done = audit(world.write(str(tmp_path / "run")))
    assert done.returncode == 2 and sentence in done.stderr


LINES = [
    ("history-a.jsonl", b"", "history-a.jsonl: empty; its first line must be a begin event"),
    ("history-a.jsonl", b'{"t_ns":', "history-a.jsonl line 1: not JSON from byte"),
    ("history-a.jsonl", b'{"t_ns":1}\n', 'history-a.jsonl line 1: no "seq"; it must be a whole'),
    ("history-a.jsonl", b'{"t_ns":1,"seq":1,"instance":"a","event":"sneeze"}\n',
     'history-a.jsonl line 1: there is no event "sneeze"'),
    ("history-a.jsonl", b'{"t_ns":1,"seq":1,"instance":"z","event":"begin"}\n',
     'line 1: instance "z" is not in run.json; "instances" must name it'),
    ("history-a.jsonl", b'{"t_ns":"soon","seq":1,"instance":"a","event":"begin"}\n',
     '"t_ns" must be a whole number from 0 to'),
    ("history-a.jsonl", b'{"t_ns":1,"seq":1,"instance":"a","event":"begin","run":"old"}\n',
     "history-a.jsonl line 1: written in format 1; this ladder-audit reads format 2: use the ladder-audit of the release"),
    ("history-a.jsonl", b'{"t_ns":1,"seq":1,"instance":"a","event":"begin","format":3}\n',
     "history-a.jsonl line 1: written in format 3; this ladder-audit reads format 2"),
    ("history-a.jsonl", b"x" * 70000 + b"\n", "line 1: longer than 65536 bytes"),
    ("sale.jtl", b"", "sale.jtl: empty; its first line must name the columns"),
    ("sale.jtl", b"timeStamp,elapsed\n", 'sale.jtl line 1: no column "label"'),
    ("sale.jtl", b'"never closed', "sale.jtl line 1: a quote that never closes"),
    ("sale.jtl", b"timeStamp,elapsed,label,responseCode,success,request,item,instance,unit,left\n"
     b"1,2\n", "sale.jtl line 2: it must have as many fields as the head line"),
    ("nginx.log", b"127.0.0.1 - - GET /\n", "nginx.log line 1: not JSON from byte"),
    ("redis.json", b"{}", 'redis.json: "before" does not state the stock of'),
]


@pytest.mark.parametrize("name, text, sentence", LINES, ids=lambda v: str(v)[:24])
def test_says_which_file_and_line(tmp_path, name, text, sentence):
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    (tmp_path / "run" / name).write_bytes(text)
    done = audit(folder)
    assert done.returncode == 2 and sentence in done.stdout
    assert verdict_of(folder)["result"] == "inconclusive"
    assert any(sentence in reason for reason in verdict_of(folder)["reasons"])


@pytest.mark.parametrize("name", ["redis.json", "sale.jtl", "nginx.log", "history-a.jsonl"])
def test_missing_files(tmp_path, name):
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    os.remove(os.path.join(folder, name))
    done = audit(folder)
    assert done.returncode == 2
    assert name in "\n".join(verdict_of(folder)["reasons"])


STRANGE = {
    "FIFO": (os.mkfifo, "cannot be read: it is a FIFO; it must be a regular file"),
    "directory": (os.mkdir, "cannot be read: it is a directory; it must be a regular file"),
    "link to a device": (lambda path: os.symlink("/dev/zero", path), "cannot be read: it is a device; it must be a regular file"),
    "link to nothing": (lambda path: os.symlink("nowhere", path), "cannot be opened: No such file or directory"),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["run.json", "redis.json", "sale.jtl", "nginx.log", "history-a.jsonl", "history-z.jsonl"])
def test_reads_regular_files_only(tmp_path, name, kind):
    """A FIFO without a writer, and a device that never ends, are no reason to wait: it says what is there."""
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    path = os.path.join(folder, name)
    if os.path.exists(path):
        os.remove(path)
    make, sentence = STRANGE[kind]
    make(path)
    done = audit(folder, timeout=20)
    assert done.returncode == 2 and f"{name}: {sentence}" in done.stdout + done.stderr
    assert f"{name}: empty" not in done.stdout


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["verdict.json.part", "timeline.svg.part"])
def test_writes_files_of_its_own(tmp_path, name, kind):
    """What has the name of a half-written file is in nobody's way, and is not written through."""
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    STRANGE[kind][0](os.path.join(folder, name))
    done = audit(folder, timeout=20)
    assert done.stdout.endswith("got OK\n") and not os.path.lexists(os.path.join(folder, name))


def test_reads_through_a_link(tmp_path):
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    path = os.path.join(folder, "history-a.jsonl")
    os.rename(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    assert audit(folder).stdout.endswith("got OK\n")


def test_complaints_are_bounded(tmp_path):
    """A file of nothing but nonsense is not told line by line."""
    folder = shop.clean(1, instances=["a", "b"]).write(str(tmp_path / "run"))
    (tmp_path / "run" / "nginx.log").write_bytes(b"nonsense\n" * 5000)
    done = audit(folder)
    assert done.returncode == 2
    assert "nginx.log: 4997 more like these" in done.stdout
    assert len(verdict_of(folder)["reasons"]) <= 65


def test_quotes_and_line_ends_in_fields(tmp_path):
    """JMeter's messages may hold commas, quotes and line ends; lines may end with CRLF."""
    world = shop.clean(7)
    world.crlf = True
    for sample in world.samples:
        sample["failureMessage"] = 'Test failed: "code", expected\r\n/200|409/, got\n""'
    assert audit(world.write(str(tmp_path / "run"))).stdout.endswith("got OK\n")


def test_names_are_escaped(tmp_path):
    """A name may be anything; the picture and the verdict stay well formed."""
    world = shop.clean(3, instances=['<a&"', "b\u0007'"], items={'<script>"&': 3})
    world.run["run"] = "]]><svg onload='x'>\u0000\ufffe"
    folder = world.write(str(tmp_path / "run"))
    audit(folder)
    root = xml.parse(os.path.join(folder, "timeline.svg")).getroot()
    assert verdict_of(folder)["run"]
    assert not [e for e in root.iter() if e.tag.endswith("script") or "onload" in e.attrib]
