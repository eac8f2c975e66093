# SPDX-License-Identifier: Apache-2.0
"""Installs the library into a folder and uses it as a stranger would: by find_package and by
pkg-config, against a real Redis; and looks at what was installed."""
import os
import pathlib
import re
import socket
import subprocess
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
LOCK = HERE.parents[1] / "lock"


def run(*command, fails=False, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=240, **options)
    assert (done.returncode != 0) == fails, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """lock/ configured alone, built and installed."""
    folder = tmp_path_factory.mktemp("installed")
    build = tmp_path_factory.mktemp("build")
    run("cmake", "-S", LOCK, "-B", build, "-D", "CMAKE_BUILD_TYPE=Release",
        "-D", f"CMAKE_INSTALL_PREFIX={folder}", "-D", "CMAKE_INSTALL_LIBDIR=lib",
        "-D", "CMAKE_C_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", build)
    run("cmake", "--install", build)
    return folder


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    """A redis-server of our own on a unix socket, ended by its pid."""
    folder = tmp_path_factory.mktemp("redis")
    path = folder / "redis.sock"
    process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "",
                                "--dir", folder, "--logfile", "log"])
    patience = time.monotonic() + 60
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(path)) == 0:
                break
        assert process.poll() is None and time.monotonic() < patience
        time.sleep(0.01)
    yield f"unix:{path}"
    process.terminate()
    process.wait()


def test_what_is_installed(prefix):
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert files == {
        "include/dlock.h",
        "lib/libdlock.so", "lib/libdlock.so.0", "lib/libdlock.so.0.1.0",
        "lib/pkgconfig/dlock.pc",
        "lib/cmake/dlock/dlock-config.cmake", "lib/cmake/dlock/dlock-config-release.cmake",
        "lib/cmake/dlock/dlock-config-version.cmake",
    }
    assert os.readlink(prefix / "lib/libdlock.so") == "libdlock.so.0"
    assert (prefix / "include/dlock.h").read_bytes() == (LOCK / "dlock.h").read_bytes()


def test_exports_the_header_and_nothing_else(prefix):
    declared = set(re.findall(r"^DLOCK_API\s[^;(]*?(\w+)\(", (LOCK / "dlock.h").read_text(), re.M))
    table = run("nm", "--dynamic", "--defined-only", prefix / "lib/libdlock.so")
    exported = {line.split()[-1] for line in table.splitlines()}
    assert len(declared) > 25
    assert exported == declared


def test_needs_hiredis_alone_and_has_a_version(prefix):
    dynamic = run("readelf", "--dynamic", "--wide", prefix / "lib/libdlock.so")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    assert {re.sub(r"\.so.*|-linux.*", "", name) for name in needed} <= {"libhiredis", "libc", "ld"}
    assert any(name.startswith("libhiredis") for name in needed)
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == ["libdlock.so.0"]
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic


def find_package(prefix, folder, version):
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "project(consumer C)\n"
        f"find_package(dlock {version} REQUIRED)\n"
        f"add_executable(consumer {HERE / 'consumer.c'})\n"
        "target_link_libraries(consumer PRIVATE dlock::dlock)\n")
    return ("cmake", "-S", folder, "-B", folder / "build", "-D", f"CMAKE_PREFIX_PATH={prefix}")


def test_by_find_package(prefix, redis, tmp_path):
    run(*find_package(prefix, tmp_path, "0.1"))
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build/consumer", redis)
    run(tmp_path / "build/consumer", "unix:/nobody/here", fails=True)


def test_another_version_is_not_found(prefix, tmp_path):
    assert "0.1.0" in run(*find_package(prefix, tmp_path, "0.2"), fails=True)


def test_by_pkg_config(prefix, redis, tmp_path):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"),
                       LD_LIBRARY_PATH=str(prefix / "lib"))
    assert run("pkg-config", "--modversion", "dlock", env=environment).strip() == "0.1.0"
    flags = run("pkg-config", "--cflags", "--libs", "dlock", env=environment).split()
    assert set(flags) == {f"-I{prefix}/include", f"-L{prefix}/lib", "-ldlock"}
    consumer = tmp_path / "consumer"
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", HERE / "consumer.c", "-o", consumer,
        *flags)
    run(consumer, redis, env=environment)
    run(consumer, "nonsense", env=environment, fails=True)


@pytest.mark.parametrize("compiler, standard", [("c++", "c++11"), ("c++", "c++20"), ("cc", "c99"),
                                                ("cc", "c11")])
def test_the_header_alone_compiles(prefix, compiler, standard, tmp_path):
    source = tmp_path / "use"
    source.write_text('#include <dlock.h>\n'
                      'int use(void) { return dlock_status_definite(DLOCK_OK) ? 0 : 1; }\n'
                      'struct dlock_want want; struct dlock_options options;\n')
    run(compiler, "-x", compiler.replace("cc", "c"), f"-std={standard}", "-Wall", "-Wextra",
        "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{prefix}/include", source)
