# SPDX-License-Identifier: Apache-2.0
"""Some thousand cases of fuzz_evidence.py, the same each time but for the runs that it records."""
import os

import bases
import fuzz_evidence

CASES = int(os.environ.get("LADDER_FUZZ_CASES", "1500"))
REAL = {("crowd", "watchdog"), ("two_instances", "local")}  # a good one and a bad one


def test_whatever_is_changed_a_bad_run_is_never_ok_and_a_good_one_never_accused(tmp_path):
    folder, kept = tmp_path / "runs", tmp_path / "failed"
    bases.record(folder, fuzz_evidence.INVENTORYD, fuzz_evidence.JUDGE, print, REAL)
    runs = bases.recorded(folder)
    assert {run.is_bad for run in runs} == {True, False}
    wrong = fuzz_evidence.fuzz(1, CASES, runs, str(kept))
    assert not wrong, "\n".join(fuzz_evidence.describe(answer, folder, kept) for answer in wrong)


def test_the_same_seed_makes_the_same_case():
    for seed in range(50):
        one, other = fuzz_evidence.Case(seed, []), fuzz_evidence.Case(seed, [])
        assert (one.files, one.may) == (other.files, other.may)


def test_a_judge_that_says_ok_of_everything_is_caught(tmp_path, monkeypatch):
    """So is one that accuses everybody, and one that dies: each judge is a script here."""
    verdict = '{"result":"%s","expected":["%s"],"agrees":true}'
    for name, script, found in (("ok", verdict % ("ok", "ok"), "OK about a bad run"),
                                ("accuser", verdict % ("oversold", "oversold"), "oversold about a good run"),
                                ("dies", None, "ended with -11")):
        judge = tmp_path / name
        judge.write_text("#!/bin/sh\n" + (f"echo '{script}' >\"$1/verdict.json\"\n" if script else "kill -SEGV $$\n"))
        judge.chmod(0o755)
        monkeypatch.setattr(fuzz_evidence, "JUDGE", str(judge))
        wrong = fuzz_evidence.fuzz(1, 40, [], str(tmp_path / "failed"))
        assert any(found in answer[1] for answer in wrong), (name, wrong)
        seed = wrong[0][0]
        assert (tmp_path / "failed" / f"seed-{seed}" / "run.json").exists() or "run.json" in wrong[0][2]
