# SPDX-License-Identifier: Apache-2.0
"""The book's exercises: what each begins with, which scenarios judge the answer, and what they must say of it. A
right answer gets one point for each scenario, and one more for the prediction where the exercise asks for one."""
import datetime
import json
import pathlib


class Exercise:
    def __init__(self, number, minutes, source, expected, predict=False, write=None, alone=False):
        self.number, self.minutes, self.source, self.predict = number, minutes, source, predict
        self.expected = expected  # the verdict by scenario; "oracle" may be among them
        self.write = write  # the way to write that it needs, or None: the scenario's
        self.alone = alone  # one scenario after the other: they would share a file

    @property
    def points(self):
        return len(self.expected) + self.predict

    @property
    def answer(self):
        """The page, from the top of the clone."""
        return pathlib.Path("docs") / "answers" / f"{self.number}.md"


ALL = {exercise.number: exercise for exercise in (
    Exercise("1.1", 20, "none", {"one_process": "OK", "two_instances": "OVERSOLD"}, predict=True),
    Exercise("1.2", 10, "local", {"one_process": "OVERSOLD"}, predict=True),
    Exercise("2.1", 30, "local", {"one_process": "OK", "two_instances": "OK", "killed_holding": "OK"}, alone=True),
    Exercise("2.2", 5, "local", {"forgotten": "UNDERSOLD"}, predict=True, alone=True),
    Exercise("3.1", 15, "setnx", {"killed_holding": "UNDERSOLD"}, predict=True),
    Exercise("3.2", 40, "setnx", {"killed_holding": "OK", "forgotten": "OK", "two_instances": "OK"}),
    Exercise("4.1", 20, "setnx_expire", {"killed_acquiring": "OK", "redis_dies": "OK", "two_instances": "OK"}),
    Exercise("4.2", 40, "setnx_expire",
             {"oracle": "OK", "killed_acquiring": "OK", "redis_dies": "OK", "killed_holding": "OK"}),
    Exercise("5.1", 15, "setnx_multi", {"killed_holding": "OK", "killed_acquiring": "OK", "two_instances": "OK"}),
    Exercise("5.2", 30, "setnx_multi", {"killed_holding": "OK", "killed_acquiring": "OK", "two_instances": "OK"}),
    Exercise("6.1", 15, "set_nx_ex", {"late_release": "OK", "release_gap": "OVERSOLD"}, predict=True),
    Exercise("6.2", 25, "set_nx_ex", {"cut_acquiring": "OK", "late_release": "OVERSOLD", "two_instances": "OK"}),
    Exercise("7.1", 30, "owner_check", {"late_release": "OK", "release_gap": "OK", "killed_holding": "OK"}),
    Exercise("7.2", 15, "owner_check", {"late_release": "OVERSOLD", "two_instances": "OK"}, predict=True),
    Exercise("8.1", 20, "owner_lua", {"script_flush": "UNDERSOLD"}, predict=True),
    Exercise("8.2", 40, "owner_lua", {"reentry": "OK", "inner_release": "OK"}),
    Exercise("9.1", 20, "reentrant_tls", {"expired_reentry": "OVERLAP", "reentry": "OK"}),
    Exercise("9.2", 5, "reentrant_tls", {"two_instances": "OK", "one_process": "OVERSOLD"}, predict=True),
    Exercise("10.1", 20, "reentrant_getset", {"oracle": "OVERLAP", "two_instances": "OK"}, predict=True),
    Exercise("10.2", 20, "reentrant_getset", {"two_instances": "OK", "reentry": "OK", "inner_release": "OK"}),
    Exercise("11.1", 20, "reentrant", {"two_identities": "OK", "one_process": "OVERSOLD"}, predict=True),
    Exercise("11.2", 20, "reentrant", {"reentry": "OK", "inner_release": "OVERSOLD"}, predict=True),
    Exercise("12.1", 15, "watchdog_timer", {"release_lost": "OK", "long_section": "OK"}),
    Exercise("12.2", 10, "watchdog_timer", {"forgotten": "OK", "long_section": "OK"}),
    Exercise("13.1", 30, "owner_lua", {"long_section": "OK", "frozen": "OVERSOLD"}, predict=True),
    Exercise("13.2", 30, "watchdog", {"frozen": "OK", "killed_holding": "DEADLOCK"}, predict=True),
    Exercise("14.1", 15, "blpop_wake", {"lost_wakeup": "UNDERSOLD", "killed_holding": "OK"}, predict=True),
    Exercise("14.2", 30, "blpop_wake", {"lost_wakeup": "OK", "killed_holding": "UNDERSOLD"}, predict=True),
    Exercise("15.1", 10, "notify", {"killed_holding": "UNDERSOLD", "lost_wakeup": "OK"}, predict=True),
    Exercise("15.2", 10, "notify", {"killed_holding": "OK", "lost_wakeup": "UNDERSOLD"}, predict=True),
    Exercise("16.1", 10, "fair", {"stalled_first": "OK", "dead_next": "UNDERSOLD"}, predict=True),
    Exercise("16.2", 10, "fair", {"two_instances": "OK", "dead_next": "UNDERSOLD"}, predict=True),
    Exercise("17.1", 15, "rw_counter", {"dead_reader": "OK", "writer_starvation": "UNDERSOLD"}, predict=True),
    Exercise("17.2", 30, "rw_counter",
             {"writer_starvation": "OK", "dead_reader": "DEADLOCK", "upgrade": "DEADLOCK"}, predict=True),
    Exercise("18.1", 40, "read_write", {"dead_reader": "OK", "writer_starvation": "UNDERSOLD"}, predict=True),
    Exercise("18.2", 10, "read_write", {"dead_reader": "OK", "upgrade": "DEADLOCK"}, predict=True),
    Exercise("19.1", 30, "watchdog", {"frozen": "OK", "frozen_late": "OK", "redis_empty": "OK"}, predict=True,
             write="fenced"),
    Exercise("19.2", 30, "fair", {"frozen": "OK", "redis_empty": "OVERSOLD"}, predict=True, write="fenced_textbook"),
    Exercise("20.1", 20, "watchdog", {"redis_empty": "OK", "failover": "OK"}, predict=True, write="fenced"),
    Exercise("20.2", 20, "watchdog", {"frozen": "OK", "failover": "OK"}, write="fenced"),
    Exercise("21.1", 15, "redlock", {"two_instances": "OVERSOLD", "minority_down": "OK"}, predict=True),
    Exercise("21.2", 15, "redlock", {"long_section": "OVERSOLD", "killed_holding": "OK"}, predict=True),
    Exercise("22.1", 25, "setnx", {"two_instances": "OK", "killed_holding": "DEADLOCK"}, predict=True),
    Exercise("22.2", 20, "setnx", {"two_instances": "OK", "killed_holding": "OK"}),
    Exercise("23.1", 25, "owner_lua", {"killed_holding": "OK", "forgotten": "DEADLOCK"}, predict=True),
    Exercise("23.2", 20, "owner_lua", {"frozen": "OK", "redis_empty": "OK"}, write="fenced"),
)}


class Result:
    """What an answer got. The file that a teacher collects holds all of it."""

    def __init__(self, exercise, name, code, got, predicted):
        self.exercise, self.name, self.code, self.got, self.predicted = exercise, name, code, got, predicted
        self.right = {name for name, word in exercise.expected.items() if got[name] == word}
        self.predicted_right = exercise.predict and predicted == list(exercise.expected.values())
        self.points = len(self.right) + self.predicted_right

    def write(self, folder):
        """Keeps the result and the code under the exercise's name, in place of those of an earlier try. The files."""
        result, code = folder / f"{self.exercise.number}.json", folder / f"{self.exercise.number}.c"
        try:
            before = json.loads(result.read_text(encoding="utf-8"))
            tries, best = before["tries"], before["best"]
        except (OSError, ValueError, KeyError):
            tries, best = 0, 0
        folder.mkdir(parents=True, exist_ok=True)
        code.write_text(self.code, encoding="utf-8")
        result.write_text(json.dumps({
            "exercise": self.exercise.number, "points": self.points, "of": self.exercise.points,
            "best": max(best, self.points), "tries": tries + 1,
            "verdicts": [{"scenario": name, "expected": word, "got": self.got[name]}
                         for name, word in self.exercise.expected.items()],
            "predicted": self.predicted, "rung": self.name, "code": self.code,
            "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }, indent=1) + "\n", encoding="utf-8")
        return result, code
