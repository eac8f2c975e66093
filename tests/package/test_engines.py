# SPDX-License-Identifier: Apache-2.0
"""The packages of engines, installed beside the library, and used as a stranger would."""
import os
import pathlib
import re
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
LOCK = HERE.parents[1] / "lock"
ENGINES = {"zookeeper": {"servers": "zk://127.0.0.1:1", "needs": {"libzookeeper_mt"}},
           "etcd": {"servers": "etcd://127.0.0.1:1", "needs": {"libcurl", "libcjson"}}}
USER = """
#include <dlock_%s.h>
#include <stdio.h>
int main(void)
{
    const char *servers[] = {"%s"};
    struct dlock_options options = {.size = sizeof options, .engine = dlock_%s(), .servers = servers,
                                    .server_count = 1, .connect_timeout_ms = 50};
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    if (dlock_client_open(&options, &client) || dlock_open(client, NULL, "lock:{me}", &lock))
        return puts(dlock_error());
    printf("%%s %%s", dlock_rung_of(lock)->name, dlock_status_name(dlock_acquire(lock, NULL, &hold)));
    dlock_close(lock);
    dlock_client_close(client);
    return 0;
}
"""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """lock/ configured alone, with all engines, built and installed."""
    folder, build = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("build")
    run("cmake", "-S", LOCK, "-B", build, "-D", f"CMAKE_INSTALL_PREFIX={folder}", "-D", "CMAKE_INSTALL_LIBDIR=lib",
        "-D", "CMAKE_C_FLAGS=-Wall -Wextra -Werror", *(f"-DDLOCK_{engine.upper()}=ON" for engine in ENGINES))
    run("cmake", "--build", build)
    run("cmake", "--install", build)
    return folder


def needs(library):
    return re.findall(r"\(NEEDED\).*\[(.*?)\.so", run("readelf", "--dynamic", "--wide", library))


def test_the_library_itself_needs_none_of_them(prefix):
    assert set(needs(prefix / "lib/libdlock.so")) <= {"libc", "ld-linux-x86-64", "ld-linux-aarch64"}


@pytest.mark.parametrize("engine", ENGINES)
def test_it_exports_its_one_function(prefix, engine):
    library = prefix / f"lib/libdlock-{engine}.so"
    table = run("nm", "--dynamic", "--defined-only", library)
    assert {line.split()[-1] for line in table.splitlines()} == {f"dlock_{engine}"}
    assert {"libdlock", *ENGINES[engine]["needs"]} <= set(needs(library))
    assert os.readlink(library) == f"libdlock-{engine}.so.0.2"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_program_hands_it_to_its_client(prefix, engine, tmp_path):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")}
    flags = run("pkg-config", "--cflags", "--libs", f"dlock-{engine}", env=environment).split()
    (tmp_path / "user.c").write_text(USER % (engine, ENGINES[engine]["servers"], engine))
    run("cc", "-Wall", "-Wextra", "-Werror", tmp_path / "user.c", "-o", tmp_path / "user", *flags)
    assert run(tmp_path / "user", env=environment) == f"{engine} UNREACHABLE"
