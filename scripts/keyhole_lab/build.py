# SPDX-License-Identifier: BSD-2-Clause
"""Builds: the very ones that a person without the lab would type, run in a room.

The checkout is read, never written: native builds lie in the cache, and the kernel module is built on a
copy of its few folders there, since kbuild writes beside its sources.
"""

import shutil

from . import checkout, host, lock, say
from .room import PRIVATE

RDMA_CORE = "/usr/src/rdma-core"
MODULE_FOLDERS = ("Kbuild", "kernel", "uapi")
GUEST_FOLDERS = ("device", "userspace", "examples", "Documentation/man", "tests/vm")  # what a VM needs
VARIANTS = {
    # What is installed is compiled source by source, as for a user.
    "plain": ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DKEYHOLE_UNITY_TESTS=ON"],
    "asan": ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1",
             "-DKEYHOLE_SANITIZE=address,undefined",
             # Several sources to a compilation: a third of the time, most of which goes into headers.
             "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=8"],
    "bookworm/plain": ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DKEYHOLE_UNITY_TESTS=ON"],  # in the other root, a place of its own
    "fuzz": ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
             "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1",
             "-DKEYHOLE_FUZZ=ON", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=8"],
    # Never built: its compile_commands.json tells those that read the sources what is compiled, fuzzers too, and how.
    "analysis": ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
                 "-DKEYHOLE_FUZZ=ON"],
    # Likewise, for clang-tidy: all sources of a target are one compilation.
    "tidy": ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
             "-DKEYHOLE_FUZZ=ON", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0"],
    "tsan": ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1 -g1", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1",
             "-DKEYHOLE_SANITIZE=thread", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=8"],
    "release": ["-DCMAKE_BUILD_TYPE=Release"],
}


def build_lock():
    return lock.held(checkout.build_dir() / "lock", "building from this checkout")


def compiler_cache():
    """The environment of a build whose results another checkout, or this one at another commit, may use.

    Paths below the checkout are taken relative to it, and the directory of the build does not count.
    """
    return {"CCACHE_DIR": str(host.compiler_cache_dir()), "CCACHE_BASEDIR": str(checkout.TOP),
            "CCACHE_NOHASHDIR": "1", "CCACHE_MAXSIZE": "4G"}


def native_dir(variant):
    return checkout.build_dir() / variant


def configure(place, variant, log):
    place.run_logged(["cmake", "-G", "Ninja", "-S", checkout.TOP, "-B", native_dir(variant),
                      "-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache",
                      "-DCMAKE_INSTALL_PREFIX=/usr", f"-DKEYHOLE_RDMA_CORE_SOURCE={RDMA_CORE}",
                      f"-DKEYHOLE_RDMA_CORE_INCLUDE={RDMA_CORE}/build/include",
                      "-DCMAKE_REQUIRE_FIND_PACKAGE_GTest=ON", *VARIANTS[variant]],
                     log, f"configuring the {variant} build")


def compile_commands(place):
    """The compile_commands.json of all that is compiled in user space, as of now."""
    configure(place, "analysis", checkout.log("analysis"))
    return native_dir("analysis") / "compile_commands.json"


def native(place, variant="plain", tests=True, only=()):
    """Configures and builds one variant of everything in user space, or all but the native tests; or `only` some targets."""
    directory = native_dir(variant)
    log = checkout.log(f"build-{variant}")
    with say.step(f"building device, provider and programs ({variant})"):
        if not (directory / "build.ninja").exists():
            configure(place, variant, log)
        if not only and not tests:
            only = [f"{folder}/all" for folder in GUEST_FOLDERS
                    if (checkout.TOP / folder / "CMakeLists.txt").exists()]
        targets = [f"--target={name}" for name in only]
        place.run_logged(["cmake", "--build", directory, "-j", host.cpus(), *targets],
                         log, f"the {variant} build", append=True, environment=compiler_cache())


def install_into_layer(place, variant="plain"):
    """Installs a variant into the room's layer: programs in the room then find it in its real place.

    A room does not see its own layer, so the way leads through the directory that it shares with us.
    """
    place.run_logged(["sh", "-euc", 'DESTDIR="$1" cmake --install "$2"', "sh", f"{PRIVATE}/installed",
                      native_dir(variant)],
                     checkout.log(f"install-{variant}"), f"installing the {variant} build")
    installed = place.directory / "installed"
    shutil.copytree(installed, place.layer, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(installed)


def module_dir(kernel):
    return checkout.build_dir() / f"module-{kernel.name}"


def module(place, kernel, warnings=False, sparse=False):
    """Builds keyhole.ko against a kernel; returns its path. With `warnings`, W=1 and none may be left."""
    checks = warnings or sparse
    directory = module_dir(kernel)
    if checks:  # of every file, not of those that changed: a build of its own, from nothing
        directory = directory.with_name(directory.name + "-checks")
        shutil.rmtree(directory, ignore_errors=True)
    log = checkout.log(directory.name)
    if not (checkout.TOP / "Kbuild").exists():
        raise say.LabError(f"{checkout.TOP} has no Kbuild: this checkout has no kernel module")
    with say.step(f"building keyhole.ko for {kernel.title}" + (" with W=1" if warnings else "")
                  + (" and sparse" if sparse else "")):
        directory.mkdir(parents=True, exist_ok=True)
        for name in MODULE_FOLDERS:
            source = checkout.TOP / name
            if source.is_dir():
                # Only what changed, by time and size, so that make has little to do; and what is gone, goes.
                place.run_logged(["rsync", "-a", "--delete", "--exclude=*.o", "--exclude=*.gcno", "--exclude=*.ko", "--exclude=.*.cmd",
                                  "--exclude=*.mod", "--exclude=*.mod.c", f"{source}/", f"{directory}/{name}/"],
                                 log, "copying the module's sources")
            else:
                shutil.copy2(source, directory / name)
        options = [*(["W=1"] if warnings else []), *(["C=2", "CHECK=sparse"] if sparse else []),
                   *(["KEYHOLE_GCOV=1"] if kernel.name == "debug" and not checks else [])]
        place.run_logged(["make", "-j", host.cpus(), "-C", kernel.build, f"M={directory}", *options, "modules"],
                         log, f"building keyhole.ko for {kernel.title}", append=True)
        if checks:
            found = [line for line in log.read_text(errors="replace").splitlines()
                     if ("warning:" in line or "error:" in line) and str(directory) in line]
            if found:
                raise say.LabError("the module's build has warnings:\n  " + "\n  ".join(found[:20])
                                   + f"\nThe whole log: {log}")
    return directory / "kernel/keyhole.ko"
