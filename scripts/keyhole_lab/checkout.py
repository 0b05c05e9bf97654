# SPDX-License-Identifier: BSD-2-Clause
"""The checkout that this lab belongs to, and its private place in the cache."""

import hashlib
import pathlib

from . import host

TOP = pathlib.Path(__file__).resolve().parents[2]


def build_dir():
    """Where everything that is built from this checkout goes: outside of it, apart from other checkouts."""
    name = f"{TOP.name}-{hashlib.sha256(str(TOP).encode()).hexdigest()[:12]}"
    return host.cache_dir() / "builds" / name


def log(name):
    return build_dir() / "logs" / f"{name}.log"
