"""Processes that share a folder share a nursery, for as long as the one lives that has started it."""

import json
import subprocess
import sys

import pytest

ASK = """
import json, os, sys
from pathlib import Path
from seamline.core import common_nursery
from seamline.core.nursery import Libraries, Wish
for line in sys.stdin:
    read, write = os.pipe()
    wish = Wish("nursery_tell", {}, {"answer": write}, {}, Libraries([], []))
    child = common_nursery.start(Path(sys.argv[1]), wish)
    os.close(write)
    print(os.fdopen(read).read(), flush=True)
    child.wait(10)
"""
TELL = """
import json, os, sys
def main():
    os.write(json.loads(sys.argv[1])["answer"], str(os.getppid()).encode())
"""


class Asker:
    """A program that has workers forked on demand."""

    def __init__(self, folder):
        words = [sys.executable, "-c", ASK, str(folder)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, text=True)

    def parent_of_a_fork(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def askers(tmp_path):
    (tmp_path / "nursery_tell.py").write_text(TELL)
    found = [Asker(tmp_path) for _ in range(3)]
    yield found
    for asker in found:
        asker.kill()


def test_it_is_one_for_all_until_its_first_process_ends(askers):
    first, second, third = askers
    born = first.parent_of_a_fork()
    assert [second.parent_of_a_fork(), third.parent_of_a_fork()] == [born, born]
    first.kill()
    again = second.parent_of_a_fork()
    assert again != born
    assert third.parent_of_a_fork() == again
