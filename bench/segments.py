# SPDX-License-Identifier: Apache-2.0
"""How much faster a shop sells whose stock lies over segments."""
import concurrent.futures
import statistics

from world import World, machine, nginx_version, redis_version, wrk

LOCKS = ("watchdog", "fair")


def measured(lock, segments, arguments):
    """Sales a second of one round, in a shop of its own. Half of the connections go to each instance, past nginx."""
    options = ["--lock", lock, "--write", "decr", "--segments", str(segments), "--work-ms", str(arguments.work_ms)]
    with World(options) as world, concurrent.futures.ThreadPoolExecutor() as pool:
        def load(instance, seconds):
            return wrk(instance[0], "/inventory/phone/sale", arguments.connections // 2, seconds, True)
        list(pool.map(lambda one: load(one, 1), world.instances))
        before = world.redis_commands()
        seen = list(pool.map(lambda one: load(one, arguments.seconds), world.instances))
        commands = (world.redis_commands() - before) / max(1, sum(one["good"] for one in seen))
    return {"lock": lock, "segments": segments, "connections": arguments.connections, "work_ms": arguments.work_ms,
            "sales_per_s": round(sum(one["rate"] for one in seen)), "refused": sum(one["bad"] for one in seen),
            "p50_ms": statistics.mean(one["p50_ms"] for one in seen),
            "p99_ms": max(one["p99_ms"] for one in seen), "commands_per_sale": round(commands, 1)}


def segments(arguments, keep):
    """Compares one segment with many in alternating rounds of a closed loop, straight to both instances."""
    rows, counts = [], (1, arguments.segments)
    for number in range(arguments.rounds):
        for lock in arguments.lock or LOCKS:
            rows += [{"round": number, **measured(lock, count, arguments)} for count in counts]
    print(f"{'lock':10} {'segments':>8} {'sales/s':>9} {'p50 ms':>9} {'p99 ms':>9} {'refused':>8} {'commands/sale':>14}")
    for lock in arguments.lock or LOCKS:
        for count in counts:
            mine = [row for row in rows if (row["lock"], row["segments"]) == (lock, count)]
            rate, p50, p99, refused, commands = (
                statistics.median(row[field] for row in mine)
                for field in ("sales_per_s", "p50_ms", "p99_ms", "refused", "commands_per_sale"))
            print(f"{lock:10} {count:8} {rate:9.0f} {p50:9.1f} {p99:9.1f} {refused:8.0f} {commands:14.1f}")
        ratios = [many["sales_per_s"] / max(1, one["sales_per_s"])
                  for one, many in zip([r for r in rows if (r["lock"], r["segments"]) == (lock, counts[0])],
                                       [r for r in rows if (r["lock"], r["segments"]) == (lock, counts[1])])]
        print(f"{lock:10} {counts[1]} segments to one: {statistics.median(ratios):.2f} times the sales "
              f"({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"medians of {arguments.rounds} rounds of {arguments.seconds} s, {arguments.connections} connections, "
          f"{arguments.work_ms} ms of business; {machine(redis_version(), nginx_version())}")
    keep("segments", rows, arguments.results)
    return 0
