# SPDX-License-Identifier: BSD-2-Clause
"""What the lab needs of the machine it runs on, and what it learns from it.

Only what makes and enters a Debian root: everything else lives in that root, so that a Debian 12, a
Debian 13 and an Ubuntu build and run the same thing. dpkg is asked first: a warm run never calls apt.
"""

import functools
import os
import pathlib
import shutil
import subprocess

from . import say

PACKAGES = ["mmdebstrap", "debian-archive-keyring"]


def cache_dir():
    path = os.environ.get("KEYHOLE_CACHE")
    if not path:
        path = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "keyhole")
    if any(c in path for c in ",:\\\n"):
        raise say.LabError(f"the cache's path {path!r} has a comma, a colon or a backslash in it, which "
                           "overlayfs cannot take: set KEYHOLE_CACHE to another place")
    return pathlib.Path(os.path.abspath(path))


def compiler_cache_dir():
    return cache_dir() / "ccache"


def require_root():
    if os.geteuid() != 0:
        raise say.LabError("the lab makes and enters a root directory and needs to be root: use sudo")


def missing_packages():
    known = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *PACKAGES],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    installed = {line.split()[0] for line in known.splitlines() if line.split()[1:] == ["ii"]}
    return [package for package in PACKAGES if package not in installed]


def install_missing(log):
    """Installs what the host lacks. Does nothing, in no time, where all is there."""
    if not shutil.which("dpkg-query"):
        raise say.LabError("the lab sets itself up on Debian and Ubuntu only; README.md tells how to go without it")
    missing = missing_packages()
    if not missing:
        return
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    with say.step(f"installing {', '.join(missing)} on this machine"):
        # A failing update is no reason to stop: the lists that are there may do.
        subprocess.run(["apt-get", "update", "-q"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=environment)
        say.run_logged(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing],
                       log, "installing packages", env=environment)


def os_release():
    values = {}
    for line in pathlib.Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        values[key] = value.strip('"')
    return values


def debian_mirror():
    """The URI of the Debian mirror this machine uses, or None where it is not a Debian."""
    release = os_release()
    if release.get("ID") != "debian":
        return None
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
         "Created-By: Packages"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    suites = {release.get("VERSION_CODENAME"), "stable", "oldstable", "testing"}
    for line in targets.splitlines():
        uri, suite, component = (line.split() + ["", "", ""])[:3]
        if suite in suites and component == "main" and uri.startswith(("http://", "https://")):
            return uri
    return None


def apt_options():
    """The host's apt options that decide how a mirror is reached: proxies, checks, retries."""
    dump = subprocess.run(["apt-config", "dump"], stdout=subprocess.PIPE, text=True).stdout
    wanted = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries",
              "Acquire::AllowInsecureRepositories", "Acquire::ForceIPv4")
    return [line for line in dump.splitlines()
            if line.startswith(wanted) and '""' not in line]


@functools.lru_cache
def cpus():
    return len(os.sched_getaffinity(0))
