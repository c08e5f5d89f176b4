"""File systems of many kinds, mounted for a test: skipped where the machine does not allow that."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["KINDS", "mounted", "mounted_again"]

_SECONDS = 20.0


def _run(*command: object) -> None:
    """Run a command of the system; skip the test if it is missing or fails."""
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        pytest.skip(f"there is no {words[0]}")
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        pytest.skip(f"{' '.join(words)}: {done.stderr.strip()}")


def _image(folder: Path, place: Path, size: int, *make: object) -> None:
    """Mount a file as a disk; ``make`` is the command that formats it."""
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(size)
    _run(*make, image)
    _run("mount", "-o", "loop", image, place)


def _ext4(folder: Path, place: Path) -> None:
    _image(folder, place, 32 << 20, "mkfs.ext4", "-q", "-F")


def _xfs(folder: Path, place: Path) -> None:
    _image(folder, place, 320 << 20, "mkfs.xfs", "-q")


def _btrfs(folder: Path, place: Path) -> None:
    _image(folder, place, 128 << 20, "mkfs.btrfs", "-q")


def _tmpfs(folder: Path, place: Path) -> None:
    _run("mount", "-t", "tmpfs", "-o", "size=32m", "none", place)


def _layers(folder: Path) -> str:
    for name in ("lower", "upper", "work"):
        (folder / name).mkdir()
    return f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"


def _overlay(folder: Path, place: Path) -> None:
    _tmpfs(folder, folder)  # an overlay cannot lie upon another
    _run("mount", "-t", "overlay", "-o", _layers(folder), "none", place)


def _fuse_overlayfs(folder: Path, place: Path) -> None:
    _run("fuse-overlayfs", "-o", _layers(folder), place)


def _bindfs(folder: Path, place: Path) -> None:
    (folder / "behind").mkdir(exist_ok=True)
    _run("bindfs", folder / "behind", place)


def _sshfs(folder: Path, place: Path) -> None:
    """Mount by the protocol of sftp, spoken by a server that is a child, without a network."""
    server = Path("/usr/lib/openssh/sftp-server")
    if shutil.which("sshfs") is None or not server.exists():
        pytest.skip("there is no sshfs, or no sftp-server")
    (folder / "behind").mkdir(exist_ok=True)
    script = folder / "ssh"
    script.write_text(f"#!/bin/sh\nexec {server}\n")
    script.chmod(0o755)
    _run("sshfs", "-o", f"ssh_command={script}", f"here:{folder}/behind", place)


def _exfat(folder: Path, place: Path) -> None:
    """Mount a file system without links and without owners."""
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    _run("mkfs.exfat", image)
    _run("losetup", "--find", image)
    _run("mount.exfat-fuse", _device(image), place)


def _device(image: Path) -> str:
    """Return the loop device of an image, or an empty string."""
    if shutil.which("losetup") is None:
        return ""
    command = ["losetup", "--noheadings", "--output", "NAME", "--associated", str(image)]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "ext4": _ext4,
    "xfs": _xfs,
    "btrfs": _btrfs,
    "tmpfs": _tmpfs,
    "overlayfs": _overlay,
    "fuse-overlayfs": _fuse_overlayfs,
    "bindfs": _bindfs,
    "sshfs": _sshfs,
    "exfat-fuse": _exfat,
}


@contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    """Mount a file system of a kind below an empty folder, and unmount it at the end."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    place = folder / "mounted"
    behind = folder / "behind-it"
    place.mkdir()
    behind.mkdir()
    try:
        KINDS[kind](behind, place)
        yield place
    finally:
        _unmount(place)
        if device := _device(behind / "image"):
            subprocess.run(["losetup", "--detach", device], capture_output=True)
        _unmount(behind)


@contextmanager
def mounted_again(kind: str, place: Path) -> Iterator[Path]:
    """Mount what is behind ``place`` at a second place, as another machine does."""
    again = place.parent / "again"
    again.mkdir()
    try:
        KINDS[kind](place.parent / "behind-it", again)
        yield again
    finally:
        _unmount(again)


def _unmount(place: Path) -> None:
    """Unmount; what a failed test still holds open is let go of later."""
    end = time.monotonic() + 2.0
    while os.path.ismount(place):
        how = ["-l"] if time.monotonic() > end else []
        subprocess.run(["umount", *how, str(place)], capture_output=True, timeout=_SECONDS)
        if os.path.ismount(place):
            time.sleep(0.05)
        if time.monotonic() > end + _SECONDS:
            return
