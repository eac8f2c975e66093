# SPDX-License-Identifier: Apache-2.0
"""What holds for every test in Python."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "support"), str(TESTS.parent / "flaws")]
ALL_SKIPPED = 77  # what CTest takes for a skip; see pytest.cmake


def pytest_terminal_summary(terminalreporter):
    """A line each for what was skipped; scripts/test reads them."""
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"SKIPPED: {report.nodeid.partition('::')[2]}: {reason}")


def pytest_sessionfinish(session, exitstatus):
    """A file whose tests were all skipped has not passed."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == 0 and stats.get("skipped") and not stats.get("passed"):
        session.exitstatus = ALL_SKIPPED
