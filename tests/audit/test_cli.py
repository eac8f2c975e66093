# SPDX-License-Identifier: Apache-2.0
"""The command: what it prints, what it answers with, what it refuses."""
import json
import os

import pytest
import shop
from judge import audit, verdict_of
from simulate import simulate


def ok(folder):
    return shop.clean(1, rung="watchdog", unknowns=0).write(str(folder))


def oversold(folder, **asked):
    return simulate(1, 60, rung="local", write="set", instances=["a", "b"], items={"phone": 40},
                    **asked).write(str(folder))


def inconclusive(folder):
    world = shop.clean(1)
    world.run["requests"] += 1
    return world.write(str(folder))


def test_help():
    done = audit("--help")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("usage: ladder-audit [--row] RUN_FOLDER...", "--head", "--row", "Exit code"):
        assert word in done.stdout


@pytest.mark.parametrize("option", ["--rows=1", "-x", "--verbose"])
def test_unknown_options(option):
    done = audit(option, "somewhere")
    assert done.returncode == 2 and done.stdout == ""
    assert "there is no option " + option in done.stderr
    assert "it must be one of --row, --head, --results, --help" in done.stderr


def test_the_results_that_a_run_may_have():
    done = audit("--results")
    assert done.returncode == 0
    assert done.stdout.split() == ["oversold", "stale", "unbalanced", "repeated", "lost_task", "stampede", "overlap", "overtaken",
                                   "deadlock", "unfinished", "undersold", "inconclusive", "ok"]


def test_no_folder():
    done = audit()
    assert done.returncode == 2
    assert done.stderr == "ladder-audit: no run folder; name at least one, or see --help\n"


def test_folder_that_is_not_there(tmp_path):
    done = audit(tmp_path / "nowhere")
    assert done.returncode == 2 and done.stdout == ""
    assert "nowhere/run.json: cannot be opened: No such file or directory" in done.stderr


def test_exit_code_and_last_line(tmp_path):
    done = audit(ok(tmp_path / "ok"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "expected OK, got OK")
    folder = oversold(tmp_path / "oversold")
    done = audit(folder)
    verdict = verdict_of(folder)
    assert done.returncode == 0 and verdict["agrees"]
    assert verdict["oversold"] == verdict["sold"] - 40 > 0
    assert done.stdout.splitlines()[-1] == \
        "expected OVERSOLD, got OVERSOLD (+%d)" % verdict["oversold"]
    done = audit(oversold(tmp_path / "surprise", expect=["ok"]))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("expected OK, got OVERSOLD (+")
    done = audit(inconclusive(tmp_path / "inconclusive"))
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1].endswith("got INCONCLUSIVE")


def test_several_folders(tmp_path):
    """Each is judged; the exit code is the worst one."""
    folders = [ok(tmp_path / "a"), inconclusive(tmp_path / "b"), ok(tmp_path / "c")]
    done = audit(*folders)
    assert done.returncode == 2
    assert [line for line in done.stdout.splitlines() if line.startswith("expected")][0::2] == \
        ["expected OK, got OK"] * 2
    assert all(os.path.exists(os.path.join(f, "verdict.json")) for f in folders)


def columns(line):
    return line.split()


def test_table(tmp_path):
    head = audit("--head")
    assert head.returncode == 0
    titles = head.stdout.splitlines()
    assert columns(titles[-1])[:6] == ["rung", "write", "requests", "sold", "left", "oversold"]
    done = audit("--row", ok(tmp_path / "a"), oversold(tmp_path / "b"))
    assert done.returncode == 0
    rows = done.stdout.splitlines()
    assert len(rows) == 2 and columns(rows[1])[:2] == ["local", "set"]
    verdict = verdict_of(tmp_path / "b")
    cells = columns(rows[1])
    assert cells[2:7] == [str(verdict[name]) for name in
                          ("requests", "sold", "left", "oversold", "overlaps")]
    assert cells[7] == "+".join(str(verdict["by_instance"][i]["sold"]) for i in "ab")
    assert cells[8] == "%d/%d" % (verdict["latency_ms"]["p50"], verdict["latency_ms"]["p99"])
    assert cells[9:] == ["OVERSOLD", "OVERSOLD", "(+%d)" % verdict["oversold"]]
    # The columns are in step, and a terminal of 124 columns holds them.
    for title, cell in (("requests", 2), ("sold", 3), ("oversold", 5)):
        end = titles[-1].index(title) + len(title)
        assert rows[1][:end].split()[-1] == cells[cell]
    for word in ("expected", "got"):
        assert rows[1][titles[-1].index(word):].startswith("OVERSOLD")
    assert max(len(line.rstrip()) for line in titles + rows) <= 124


def test_row_of_many_instances(tmp_path):
    names = list("abcdefgh")
    done = audit("--row", simulate(1, 80, rung="setnx", write="decr", instances=names,
                                   items={"phone": 64}).write(str(tmp_path / "run")))
    assert "8 x " in done.stdout and ".." in done.stdout, done.stdout


def test_verdict_file(tmp_path):
    """Every field that docs/reference/run.md names is there, and of its kind."""
    docs = os.path.join(os.path.dirname(__file__), "../../docs/reference/run.md")
    with open(docs, encoding="utf-8") as file:
        example = file.read().split("## verdict.json")[1].split("```json")[1].split("```")[0]
    named = json.loads(example.replace("…", "0").replace('"0"', '"x"'))
    verdict = verdict_of(audit_folder(tmp_path))
    assert set(named) == set(verdict)
    for name, value in named.items():
        if value is not None and verdict[name] is not None:
            kind = (int, float) if isinstance(value, (int, float)) else type(value)
            assert isinstance(verdict[name], kind), name


def audit_folder(tmp_path):
    folder = oversold(tmp_path / "run")
    audit(folder)
    return folder


def test_redis_commands_per_sale(tmp_path):
    world = shop.clean(1, unknowns=0)
    world.redis["before"]["commands"] = 100
    sold = sum(s["request"]["quantity"] for s in world.sales())
    world.redis["after"]["commands"] = 100 + 4 * sold
    folder = world.write(str(tmp_path / "run"))
    audit(folder)
    assert verdict_of(folder)["redis_commands_per_sale"] == 4


def test_a_redis_that_restarted_counts_no_commands(tmp_path):
    """Its counter began again."""
    world = shop.clean(1)
    world.redis["before"]["commands"], world.redis["after"]["commands"] = 100_000, 50
    folder = world.write(tmp_path / "run")
    audit(folder)
    assert verdict_of(folder)["redis_commands_per_sale"] is None


def test_judging_again_changes_nothing(tmp_path):
    folder = oversold(tmp_path / "run")
    first = audit(folder), verdict_of(folder)
    second = audit(folder), verdict_of(folder)
    assert first[0].stdout == second[0].stdout and first[1] == second[1]
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]


@pytest.mark.parametrize("text", ["{", None])
def test_an_earlier_verdict_does_not_stand_for_a_run_that_cannot_be_read(tmp_path, text):
    folder = ok(tmp_path / "run")
    assert audit(folder).returncode == 0
    os.remove(os.path.join(folder, "run.json"))
    if text is not None:
        (tmp_path / "run" / "run.json").write_text(text)
    names = sorted(os.listdir(folder))
    done = audit(folder)
    assert done.returncode == 2 and done.stdout == ""
    assert sorted(os.listdir(folder)) == [name for name in names if name not in ("verdict.json", "timeline.svg")]
    assert done.stderr.count("it was of an earlier judgement") == 2
    os.mkdir(os.path.join(folder, "verdict.json"))
    assert "verdict.json is of an earlier judgement, and cannot be removed" in audit(folder).stderr


def test_folder_that_cannot_be_written(tmp_path):
    folder = ok(tmp_path / "run")
    os.mkdir(os.path.join(folder, "verdict.json"))  # also stops root
    done = audit(folder)
    assert done.returncode == 2
    assert "verdict.json cannot be written" in done.stderr
    assert done.stdout.endswith("expected OK, got OK\n")
