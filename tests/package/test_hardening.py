# SPDX-License-Identifier: Apache-2.0
"""What is in the binaries against somebody who found a way to write where he should not."""
import os
import platform
import re
import subprocess

import pytest

BINARIES = ["INVENTORYD", "JUDGE", "LIBDLOCK"]


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(params=BINARIES)
def binary(request):
    return os.environ[request.param]


def test_its_address_is_random(binary):
    assert re.search(r"Type:\s+DYN ", readelf("-h", binary))


def test_its_tables_are_read_only(binary):
    """Full RELRO: what the dynamic linker fills in is complete before main, and sealed."""
    assert "GNU_RELRO" in readelf("-l", binary)
    assert re.search(r"\(FLAGS\).*BIND_NOW|\(BIND_NOW\)|\(FLAGS_1\).*NOW", readelf("-d", binary))


def test_its_stack_is_no_code(binary):
    stack = re.search(r"GNU_STACK.* (R\w*) +0x", readelf("-l", binary))
    assert stack.group(1) == "RW"


def test_its_stack_is_checked(binary):
    assert "__stack_chk_fail" in readelf("--dyn-syms", binary)


def test_its_buffers_are_checked(binary):
    assert re.search(r"__v?snprintf_chk", readelf("--dyn-syms", binary))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has endbr64")
@pytest.mark.parametrize("name,function", [("INVENTORYD", "main"), ("JUDGE", "main"), ("LIBDLOCK", "dlock_acquire")])
def test_its_functions_are_marked_as_targets(name, function):
    code = subprocess.run(["objdump", "-d", f"--disassemble={function}", os.environ[name]], check=True,
                          capture_output=True, text=True).stdout
    first = code.split(f"<{function}>:\n")[1].split("\n")[0]
    assert "endbr64" in first
