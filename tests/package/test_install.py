# SPDX-License-Identifier: Apache-2.0
"""Installs the library into a folder and uses it as a stranger would: by find_package and by
pkg-config, against a real Redis; and looks at what was installed."""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

import ladder
from redis_server import Redis

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
    """A redis-server of our own, on a unix socket."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield f"unix:{server.unix_socket}"
    server.kill()


def test_what_is_installed(prefix):
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert files == {
        "include/dlock.h",
        "lib/libdlock.so", "lib/libdlock.so.0.2", "lib/libdlock.so.0.2.0",
        "lib/pkgconfig/dlock.pc",
        "lib/cmake/dlock/dlock-config.cmake", "lib/cmake/dlock/dlock-config-release.cmake",
        "lib/cmake/dlock/dlock-config-version.cmake",
    }
    assert os.readlink(prefix / "lib/libdlock.so") == "libdlock.so.0.2"
    assert (prefix / "include/dlock.h").read_bytes() == (LOCK / "dlock.h").read_bytes()


def test_pkg_config_follows_what_was_installed_elsewhere(tmp_path):
    """cmake --install --prefix, and a folder that was moved."""
    run("cmake", "-S", LOCK, "-B", tmp_path / "build", "-D", "CMAKE_INSTALL_LIBDIR=lib/deep")
    run("cmake", "--build", tmp_path / "build")
    run("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "second")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(tmp_path / "second/lib/deep/pkgconfig")}
    for variable, folder in (("includedir", "include"), ("libdir", "lib/deep")):
        told = run("pkg-config", f"--variable={variable}", "dlock", env=environment).strip()
        assert pathlib.Path(told).resolve() == tmp_path / "second" / folder


def test_is_optimised_unless_told_otherwise(tmp_path):
    """As README.md builds it, without a build type."""
    run("cmake", "-S", LOCK, "-B", tmp_path, "-D", "CMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    assert len(commands) > 20 and all(" -O2 " in command["command"] for command in commands)


def test_exports_the_header_and_what_engines_need(prefix):
    """Of its private functions those that other packages call, under names that no program has."""
    declared = set(re.findall(r"^DLOCK_API\s[^;(]*?(\w+)\(", (LOCK / "dlock.h").read_text(), re.M))
    for path in LOCK.glob("*.h"):
        declared |= {f"dlock_private_{name}" for name in re.findall(r"\bEXPORTED_AS\((?!name)(\w+)\)", path.read_text())}
    table = run("nm", "--dynamic", "--defined-only", prefix / "lib/libdlock.so")
    exported = {line.split()[-1] for line in table.splitlines()}
    assert len(declared) > 25
    assert exported == declared


def test_needs_libc_alone_and_has_a_version(prefix):
    dynamic = run("readelf", "--dynamic", "--wide", prefix / "lib/libdlock.so")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert {re.sub(r"\.so.*|-linux.*", "", name) for name in needed} <= {"libc", "ld"}
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == ["libdlock.so.0.2"]
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic


def hiredis_functions():
    """The names of all functions that hiredis exports, as its static library lists them."""
    libdir = run("pkg-config", "--variable=libdir", "hiredis").strip()
    archive = next(pathlib.Path(libdir).rglob("libhiredis.a"))
    names = set(re.findall(r" T (\w+)$", run("nm", "--extern-only", "--defined-only", archive), re.M))
    assert {"redisConnect", "redisFree", "redisReaderFeed", "sdsnew"} <= names
    return names


def test_shows_and_needs_nothing_of_hiredis(prefix):
    """Neither what hiredis 0.14 exports nor what 1.x does."""
    table = run("nm", "--dynamic", prefix / "lib/libdlock.so")
    symbols = {line.split()[-1].partition("@")[0] for line in table.splitlines()}
    assert symbols & hiredis_functions() == set()
    assert [name for name in symbols if re.match(r"_*redis|sds|hi_|hiredis|freeReplyObject", name)] == []


def test_a_missing_static_hiredis_is_named(tmp_path):
    said = run("cmake", "-S", LOCK, "-B", tmp_path, "-D", "DLOCK_HIREDIS_ARCHIVE=", fails=True)
    assert "libhiredis.a was not found" in said and "libhiredis-dev" in said


def test_the_table_of_rungs_says_what_the_library_says(prefix):
    """docs/reference/ladder.md and scripts/rung read the rungs' sources; dlock_rungs() must agree."""
    fields = re.search(r"^struct dlock_rung \{\n(.*?)^\};", (LOCK / "dlock.h").read_text(), re.M | re.S).group(1)
    kinds = {"const char *": ctypes.c_char_p, "bool ": ctypes.c_bool}

    class Rung(ctypes.Structure):
        _fields_ = [(name, kinds[kind]) for kind, name in re.findall(r"^    (\D+?)(\w+);", fields, re.M)]
    library = ctypes.CDLL(str(prefix / "lib/libdlock.so"))
    library.dlock_rungs.restype = ctypes.POINTER(Rung)
    library.dlock_version.restype = ctypes.c_char_p
    count = ctypes.c_size_t()
    told = library.dlock_rungs(ctypes.byref(count))[:count.value]
    read = [rung for rung in ladder.rungs() if not rung.write] + ladder.others()
    assert library.dlock_version() == b"0.2.0"
    assert [one.name.decode() for one in told] == [one.name for one in read]
    for one, other in zip(told, read):
        assert one.flawed == other.flawed and one.engine.decode() == other.engine
        assert {name: getattr(one, name) for name in other.traits} == other.traits, other.name


def find_package(prefix, folder, version):
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "project(consumer C)\n"
        f"find_package(dlock {version} REQUIRED)\n"
        f"add_executable(consumer {HERE / 'consumer.c'})\n"
        "target_link_libraries(consumer PRIVATE dlock::dlock)\n")
    return ("cmake", "-S", folder, "-B", folder / "build", "-D", f"CMAKE_PREFIX_PATH={prefix}")


def test_by_find_package(prefix, redis, tmp_path):
    run(*find_package(prefix, tmp_path, "0.2"))
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build/consumer", redis)
    run(tmp_path / "build/consumer", "unix:/nobody/here", fails=True)


def test_another_version_is_not_found(prefix, tmp_path):
    assert "0.2.0" in run(*find_package(prefix, tmp_path, "0.3"), fails=True)


def test_by_pkg_config(prefix, redis, tmp_path):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"),
                       LD_LIBRARY_PATH=str(prefix / "lib"))
    assert run("pkg-config", "--modversion", "dlock", env=environment).strip() == "0.2.0"
    flags = run("pkg-config", "--cflags", "--libs", "dlock", env=environment).split()
    told = {flag[:2]: pathlib.Path(flag[2:]) for flag in flags}
    assert list(told) == ["-I", "-L", "-l"] and str(told["-l"]) == "dlock"
    assert told["-I"].resolve() == prefix / "include" and told["-L"].resolve() == prefix / "lib"
    consumer = tmp_path / "consumer"
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", HERE / "consumer.c", "-o", consumer,
        *flags)
    run(consumer, redis, env=environment)
    run(consumer, "nonsense", env=environment, fails=True)


@pytest.fixture(scope="session")
def compiled(prefix, tmp_path_factory):
    """A function that compiles one C file against what is installed; the program finds it by itself."""
    environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "dlock", env=environment).split()

    def program(source, *others):
        """others: what the linker takes before libdlock."""
        made = tmp_path_factory.mktemp("program") / source.stem
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", made, *others,
            *flags, f"-Wl,-rpath,{prefix}/lib")
        return made
    return program


@pytest.fixture(scope="session")
def other_hiredis(tmp_path_factory):
    """A shared library with the names of hiredis' functions; each of them aborts. Linker flags that
    load it before all that follows."""
    folder = tmp_path_factory.mktemp("other")
    source, library = folder / "other.c", folder / "libother_hiredis.so"
    source.write_text("#include <stdlib.h>\n" + "".join(
        f"void {name}(void);\nvoid {name}(void) {{ abort(); }}\n" for name in sorted(hiredis_functions())))
    run("cc", "-shared", "-fPIC", "-fno-builtin", source, "-o", library)
    return ("-Wl,--push-state,--no-as-needed", library, "-Wl,--pop-state", f"-Wl,-rpath,{folder}")


def test_beside_another_hiredis_that_aborts_when_called(compiled, other_hiredis, redis, tmp_path):
    run(compiled(HERE / "consumer.c", *other_hiredis), redis)
    control = tmp_path / "control.c"
    control.write_text("void redisFree(void);\nint main(void) { redisFree(); }\n")
    ended = subprocess.run([compiled(control, *other_hiredis)], check=False)
    assert ended.returncode == -signal.SIGABRT, "the control did not call the other hiredis"


def test_beside_the_hiredis_of_the_system(compiled, redis, tmp_path):
    """One program uses both, one after the other, in one process."""
    source = tmp_path / "both.c"
    source.write_text(f"""
        #include <hiredis/hiredis.h>
        #include <string.h>
        #define main hold_it
        #include "{HERE / 'consumer.c'}"
        #undef main
        int main(int argc, char **argv)
        {{
            redisContext *redis = redisConnectUnix(strchr(argv[1], ':') + 1);
            redisReply *before = redisCommand(redis, "INCR both");
            int failed = hold_it(argc, argv);
            redisReply *after = redisCommand(redis, "INCR both");
            failed = failed || redis->err || after->integer != before->integer + 1;
            freeReplyObject(before);
            freeReplyObject(after);
            redisFree(redis);
            return failed;
        }}""")
    flags = run("pkg-config", "--cflags", "--libs", "hiredis").split()
    run(compiled(source, *flags), redis)


def test_what_the_header_shows_works(compiled, redis, tmp_path):
    """The blocking use, and then the one in the caller's own loop, as they stand in its first comment."""
    head = (LOCK / "dlock.h").read_text().partition("*/")[0]
    lines = [line[7:] for line in head.split("\n") if line.startswith(" *     ") or line == " *"]
    code = re.sub(r"\.\.\. .* \.\.\.", 'puts("section");', "\n".join(lines))
    begin, end, function, loop = re.fullmatch(
        r"\s*(struct.*\n)(dlock_close.*?)\s+(void.*?\n}\n)(.*)", code, re.S).groups()
    begin = begin.replace("{ .size = sizeof options }", "{ .size = sizeof options, .own_loop = true,\n"
                          "    .servers = (const char *const[]){argv[1]}, .server_count = (size_t)argc - 1 }")
    source = tmp_path / "shown.c"
    source.write_text("#include <dlock.h>\n#include <err.h>\n#include <poll.h>\n#include <stdio.h>\n"
                      f"{function}int main(int argc, char **argv)\n{{\n{begin}{loop}\n{end}\n}}\n")
    assert run(compiled(source), redis) == "section\nsection\n"


def test_the_example_of_an_own_loop(compiled, redis):
    program = compiled(HERE.parents[1] / "examples/own_loop.c")
    silent, kept_open = os.pipe()
    assert re.fullmatch(r"held by [-0-9a-f]{36}:1\n", run(program, redis, stdin=silent))
    os.close(silent)
    os.close(kept_open)
    held = ("redis-cli", "-s", redis.removeprefix("unix:"))
    run(*held, "HSET", "lock:{me}", "another", "1")
    # The wait was cancelled, or before it the login.
    assert re.match(r"CANCELLED: (the wait for 'lock:\{me\}'|cancelled while connecting to unix:)",
                    run(program, redis, stdin=subprocess.DEVNULL))
    run(*held, "DEL", "lock:{me}")


@pytest.mark.parametrize("compiler, standard", [("c++", "c++11"), ("c++", "c++20"), ("cc", "c99"),
                                                ("cc", "c11")])
def test_the_header_alone_compiles(prefix, compiler, standard, tmp_path):
    source = tmp_path / "use"
    source.write_text('#include <dlock.h>\n'
                      'int use(void) { return dlock_status_definite(DLOCK_OK) ? 0 : 1; }\n'
                      'struct dlock_want want; struct dlock_options options;\n')
    run(compiler, "-x", compiler.replace("cc", "c"), f"-std={standard}", "-Wall", "-Wextra",
        "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{prefix}/include", source)
