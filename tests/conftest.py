# SPDX-License-Identifier: Apache-2.0
"""What holds for every test in Python."""
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that is skipped proves nothing: it fails."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped:
        report.outcome = "failed"
