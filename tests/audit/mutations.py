# SPDX-License-Identifier: Apache-2.0
"""Ways to change one witness of a run. Each says beforehand what may follow.

A mutation takes a base's files (names and texts, to be changed), the run's truth and a random generator, and returns a
May, or None where the files give it nothing to change."""
import csv
import dataclasses
import io
import json

MS = 1_000_000
HISTORY, CLIENT, NGINX, REDIS, RUN = "history", "sale.jtl", "nginx.log", "redis.json", "run.json"
MUTATIONS = []


@dataclasses.dataclass
class May:
    """what: in words. accuse: faults that the changed witness states by itself. sole: it may be that this witness alone
    tells of the run's fault, then the change may hide it. keeps: a fault that records prove stays proven; same: every
    result stays."""
    what: str
    accuse: frozenset = frozenset()
    sole: str = ""
    keeps: bool = False
    same: bool = False


def mutation(weight=1):
    def register(function):
        MUTATIONS.extend([function] * weight)
        return function
    return register


# ---- Files as lines and fields -------------------------------------------------------------------
def pick(files, rand, *kinds):
    names = [name for name in files if not kinds or name in kinds or (HISTORY in kinds and name.startswith(HISTORY))]
    return rand.choice(sorted(names)) if names else None


def records(text):
    """The file's lines with their ends; records of sale.jtl may hold line ends."""
    if not text.startswith("timeStamp"):
        return text.splitlines(keepends=True)
    found, quoted = [""], False
    for line in text.splitlines(keepends=True):
        found[-1] += line
        quoted ^= line.count('"') % 2 == 1
        if not quoted:
            found.append("")
    return found[:-1]


def rows_of(text):
    """sale.jtl as a head and dicts."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    return rows[0], [dict(zip(rows[0], row)) for row in rows[1:]]


def text_of(head, rows):
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([row.get(column, "") for column in head] for row in rows)
    return out.getvalue()


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line]


def put_lines(files, name, lines):
    files[name] = "".join(json.dumps(line) + "\n" for line in lines)


# What a field of one witness may say by itself: the faults that it may state, and whether it may be the only one to tell.
# Where a field is not named, the others tell the same, and contradict it.
ALONE = {}


def alone(kind, fields, accuse="", sole=""):
    for field in fields.split():
        ALONE[kind, field] = (frozenset(accuse.split()), sole)


# Redis alone tells what is left in the end, and whether the lock is there.
alone(REDIS, "after.stock", "oversold undersold", REDIS)
alone(REDIS, "after.locks", "deadlock", REDIS)
alone(HISTORY, "token", "overlap", HISTORY)  # nobody else is told of tokens
alone(HISTORY, "mode", "overlap", HISTORY)
alone(HISTORY, "restock.stock_before restock.stock_after restock_intent.add", "oversold undersold", HISTORY)
alone(HISTORY, "again.status", "deadlock", HISTORY)  # a holder that waited for itself
alone(HISTORY, "reason", "undersold")  # on a fence, who was refused for its token may have read what was old
alone(HISTORY, "stock_before", "undersold overlap", HISTORY)  # of a read: what it found; the client is told what it left
alone(HISTORY, "all", "undersold", HISTORY)  # the same, of a stock over segments


def declared(name, record, path, what):
    kind = HISTORY if name.startswith(HISTORY) else name
    names = [f"{record.get('event')}.{path[-1]}", ".".join(path[:2]), path[-1]]
    accuse, sole = next((ALONE[kind, name] for name in names if (kind, name) in ALONE), (frozenset(), ""))
    return May(what, accuse, sole)


def paths(value, so_far=()):
    """The keys that lead to each member of a JSON value, however deep."""
    if isinstance(value, dict):
        for key in value:
            yield so_far + (key,)
            yield from paths(value[key], so_far + (key,))


def follow(value, path):
    for key in path[:-1]:
        value = value[key]
    return value


def one_record(files, rand, name):
    """(its fields, a function that puts them back, where) of one record of the file."""
    if name == CLIENT:
        head, rows = rows_of(files[name])
        at = rand.randrange(len(rows)) if rows else None
        if at is None:
            return None
        return rows[at], lambda: files.update({name: text_of(head, rows)}), f"record {at + 2}"
    if name in (REDIS, RUN):
        value = json.loads(files[name])
        return value, lambda: files.update({name: json.dumps(value)}), ""
    lines = lines_of(files[name])
    if not lines:
        return None
    at = rand.randrange(len(lines))
    return lines[at], lambda: put_lines(files, name, lines), f"line {at + 1}, {lines[at].get('event', '')}"


# ---- Remove --------------------------------------------------------------------------------------
@mutation()
def remove_file(files, rand, truth):
    name = pick(files, rand)
    del files[name]
    keeps = name in (NGINX, CLIENT) or (name == REDIS and truth == "overlap")
    return May(f"{name} removed", keeps=keeps)


@mutation(3)
def remove_lines(files, rand, truth):
    name = pick(files, rand, HISTORY, CLIENT, NGINX)
    lines = records(files[name])
    if len(lines) < 2:
        return None
    count = rand.choice([1, 1, 1, 2, 5])
    at = rand.randrange(1 if name == CLIENT else 0, len(lines))
    files[name] = "".join(lines[:at] + lines[at + count:])
    return May(f"{name}: {count} lines from line {at + 1} on removed", keeps=name in (NGINX, CLIENT))


@mutation(3)
def remove_field(files, rand, truth):
    name = pick(files, rand)
    if name == CLIENT:
        head, rows = rows_of(files[name])
        column = rand.choice(head)
        files[name] = text_of([one for one in head if one != column], rows)
        return May(f"{name}: column {column} removed")
    found = one_record(files, rand, name)
    if not found:
        return None
    value, put, where = found
    path = rand.choice(list(paths(value)))
    del follow(value, path)[path[-1]]
    put()
    return declared(name, value, path, f"{name} {where}: {'.'.join(path)} removed")


def answered(files):
    """The requests of which a client tells when they were answered."""
    return {row["request"] for row in rows_of(files[CLIENT])[1]
            if row["responseCode"].isdigit() and row["responseCode"] not in ("502", "504")}


# ---- Shift ---------------------------------------------------------------------------------------
def clients_see_ms(files):
    """Further than the clients' clocks may be off, and than any of their requests took: they see a shift by that."""
    run = json.loads(files[RUN])
    longest = max((int(row["elapsed"] or 0) for row in rows_of(files[CLIENT])[1]), default=0)
    return run["clients"]["slack_ms"] * 2 + longest + 2


def far(rand, files):
    least = clients_see_ms(files)
    return rand.choice([-1, 1]) * rand.choice([least, least + 1000, 60_000, 86_400_000]) * MS


@mutation(2)
def shift_history(files, rand, truth):
    """All of it, or from one line on; with its CLOCK_REALTIME or not."""
    name = pick(files, rand, HISTORY)
    lines, by_ns, clock = lines_of(files[name]), far(rand, files), rand.random() < 0.5
    if len(lines) < 3:
        return None
    at = rand.choice([0, 0, rand.randrange(len(lines))])
    known = answered(files)
    if not any(line.get("request") in known for line in lines[at:]):
        return None  # nobody else tells when that was
    if any(line["t_ns"] + by_ns < 0 for line in lines):
        by_ns = abs(by_ns)
    for line in lines[at:]:
        line["t_ns"] += by_ns
        if clock and "clock_ns_realtime" in line:
            line["clock_ns_realtime"] += by_ns
    put_lines(files, name, lines)
    return May(f"{name} from line {at + 1} on: {by_ns} ns later{', its clocks too' if clock else ''}")


@mutation(2)
def shift_line(files, rand, truth):
    """One record of a request, out of the time that its client saw."""
    name = pick(files, rand, HISTORY)
    lines = lines_of(files[name])
    known = answered(files)
    places = [line for line in lines if line.get("request") in known and line["event"] != "command"]
    if not places:
        return None
    line, by_ns = rand.choice(places), far(rand, files)
    by_ns = by_ns if line["t_ns"] + by_ns >= 0 else -by_ns
    line["t_ns"] += by_ns
    put_lines(files, name, lines)
    return May(f"{name}: {line['event']} of {line['request']} {by_ns} ns later")


@mutation()
def shift_client(files, rand, truth):
    """The clients' times, of all or of one."""
    head, rows = rows_of(files[CLIENT])
    sales = [row for row in rows if row["label"].startswith("POST ")]
    if not sales:
        return None
    by_ms = far(rand, files) // MS
    chosen = sales if rand.random() < 0.5 else [rand.choice(sales)]
    if any(int(row["timeStamp"]) + by_ms < 0 for row in chosen):
        by_ms = abs(by_ms)
    for row in chosen:
        row["timeStamp"] = str(int(row["timeStamp"]) + by_ms)
    files[CLIENT] = text_of(head, rows)
    return May(f"{CLIENT}: {len(chosen)} samples {by_ms} ms later")


@mutation()
def stall(files, rand, truth):
    """The machine stood still, says an instance: that excuses no sale too many."""
    name = pick(files, rand, HISTORY)
    lines = lines_of(files[name])
    if not lines:
        return None
    at = rand.randrange(1, len(lines)) if len(lines) > 1 else 1
    lines.insert(at, {**{key: lines[at - 1][key] for key in ("t_ns", "seq", "instance")}, "event": "stall",
                      "late_ns": rand.choice([1, 900, 40_000]) * MS})
    for number, line in enumerate(lines):
        line["seq"] = number + 1
    put_lines(files, name, lines)
    return May(f"{name}: a stall at line {at + 1}", keeps=True)


@mutation()
def nonsense(files, rand, truth):
    """One more line that nobody can read: the others prove what they prove. A killed instance's may have been its end, and
    one that is lost may have been a restock."""
    name = pick(files, rand, HISTORY, CLIENT, NGINX)
    files[name] += rand.choice(["nonsense\n", "{\n", "1,2\n", '{"t_ns":5}\n', "\x00\xff\n"])
    whole = name in (NGINX, CLIENT) or '"end"' in files[name]
    return May(f"{name}: nonsense at its end", keeps=whole and not json.loads(files[RUN]).get("restocked"))


# ---- Duplicate, reorder, truncate ----------------------------------------------------------------
@mutation()
def duplicate_lines(files, rand, truth):
    name = pick(files, rand, HISTORY, CLIENT, NGINX)
    lines = records(files[name])
    if len(lines) < 2:
        return None
    at, to = rand.randrange(1, len(lines)), rand.randrange(1, len(lines) + 1)
    count = rand.choice([1, 1, 2, 9])
    lines[to:to] = lines[at:at + count]
    files[name] = "".join(lines)
    return May(f"{name}: {count} lines from {at + 1} on once more at {to + 1}", keeps=name in (NGINX, CLIENT))


@mutation()
def duplicate_history(files, rand, truth):
    name = pick(files, rand, HISTORY)
    files[name.replace(".jsonl", "-copy.jsonl")] = files[name]
    return May(f"{name} is there twice")


@mutation()
def reorder(files, rand, truth):
    name = pick(files, rand, HISTORY, CLIENT, NGINX)
    lines = records(files[name])
    first = 1 if name == CLIENT else 0
    rest = lines[first:]
    if len(rest) < 2:
        return None
    if rand.random() < 0.5:
        at = rand.randrange(len(rest) - 1)
        rest[at], rest[at + 1] = rest[at + 1], rest[at]
    else:
        rand.shuffle(rest)
    files[name] = "".join(lines[:first] + rest)
    return May(f"{name}: its lines in another order", same=name in (CLIENT, NGINX))


@mutation(2)
def truncate(files, rand, truth):
    """At any character, or between two lines."""
    name = pick(files, rand)
    text = files[name]
    lines = records(text)
    if not text:
        return None
    if rand.random() < 0.5:
        count = rand.randrange(len(lines))
        files[name] = "".join(lines[:count])
        return May(f"{name}: {count} of {len(lines)} lines are left", keeps=name in (NGINX, CLIENT))
    size = rand.randrange(len(text))
    files[name] = text[:size]
    return May(f"{name}: {size} of {len(text)} characters are left", keeps=name == NGINX)


# ---- Mix -----------------------------------------------------------------------------------------
def ran_at_once(files, other):
    """What another run's clients may state: a sale to a client of an instance that was killed, and nginx was not there to
    deny it. The judge refuses that by its time, unless both runs were recorded at the same time."""
    times = [[int(row["timeStamp"]) for row in rows_of(one[CLIENT])[1] if row["label"].startswith("POST ")] or [0]
             for one in (files, other)]
    near = max(min(one) for one in times) - min(max(one) for one in times) < 60_000
    return frozenset(("oversold",)) if near and NGINX not in files else frozenset()


@mutation()
def other_file(files, rand, truth, other=None):
    """Another run's in its place."""
    names = [name for name in files if name in other and name != RUN]
    name = rand.choice(sorted(names))
    at_once = ran_at_once(files, other)
    files[name] = other[name]
    if name == REDIS:
        return May(f"{name} of another run", frozenset(("oversold", "undersold", "deadlock")), REDIS)
    return May(f"{name} of another run", at_once if name == CLIENT else frozenset(), keeps=name == NGINX)


@mutation(2)
def other_lines(files, rand, truth, other=None):
    name = pick({name: 1 for name in files if name in other}, rand, HISTORY, CLIENT, NGINX)
    if not name:
        return None
    # A line of a history names no run: of a whole request of another run it tells as of one of its own.
    accuse = frozenset(("oversold", "overlap")) if name.startswith(HISTORY) else ran_at_once(files, other)
    lines, more = records(files[name]), records(other[name])
    if len(lines) < 2 or len(more) < 2:
        return None
    at, count, to = rand.randrange(1, len(more)), rand.choice([1, 1, 3, 8]), rand.randrange(1, len(lines) + 1)
    lines[to:to] = more[at:at + count]
    files[name] = "".join(lines)
    return May(f"{name}: {count} lines of another run at line {to + 1}", accuse, keeps=name == NGINX)


def is_alone(files):
    """Whether a client alone tells of what an instance sold that was killed: nginx was not there."""
    return NGINX not in files and any('"end"' not in text for name, text in files.items() if name.startswith(HISTORY))


# ---- Rewrite -------------------------------------------------------------------------------------
def another(value, rand, others):
    """Another value of the same kind, or one of the same field of another record, or nonsense."""
    choices = [one for one in others if one != value]
    if choices and rand.random() < 0.6:
        return rand.choice(choices)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit()):
        number = int(value)
        number = rand.choice([number + 1, number - 1, number + rand.randint(2, 9), -number - 1, 0, number * 10 + 1, 2**53 + number])
        return str(number) if isinstance(value, str) else number
    if isinstance(value, str):
        return rand.choice([value + "x", value[:-1], "", "none", "a", "b", "409", "200", value.upper()])
    return rand.choice([None, 0, "", [], {}])


CODES = ["200", "404", "409", "429", "500", "503", "502", "", "Non HTTP response code: x"]


@mutation(8)
def rewrite(files, rand, truth):
    """One value of one record."""
    name = pick(files, rand, *([HISTORY] if rand.random() < 0.4 else []))
    found = one_record(files, rand, name)
    if not found:
        return None
    value, put, where = found
    path = rand.choice(list(paths(value)))
    holder, key = follow(value, path), path[-1]
    others = []
    if name not in (REDIS, RUN):
        every = rows_of(files[name])[1] if name == CLIENT else lines_of(files[name])
        others = [one[key] for one in every if key in one]
    if key == "responseCode":
        others = CODES
    old = holder[key]
    holder[key] = another(old, rand, others)
    if holder[key] == old:
        return None
    put()
    if name == CLIENT and is_alone(files):
        return May(f"{name} {where}: {key} {old!r:.60} -> {holder[key]!r:.60}", frozenset(("oversold",)))
    if key == "quantity" and "URL" not in rows_of(files[CLIENT])[0]:
        return May(f"{name} {where}: {key} {old} -> {holder[key]}, and no client says", frozenset(("undersold",)), HISTORY)
    if key == "t_ns" and name.startswith(HISTORY) and (
            value.get("request") not in answered(files) or abs(holder[key] - old) < clients_see_ms(files) * MS):
        return May(f"{name} {where}: {old} -> {holder[key]}, and no client sees it", frozenset(("overlap",)), HISTORY)
    return declared(name, value, path, f"{name} {where}: {'.'.join(path)} {old!r:.60} -> {holder[key]!r:.60}")
