"""The processes that services have started, as the system sees them."""

import time

import psutil


def running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids, within_s):
    """Whether none of these processes runs any more after at most this long."""
    deadline = time.monotonic() + within_s
    while any(map(running, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def processes_of_workers():
    """Workers and their guards: forks of the nursery of this process, or forks of those."""
    living = [child for child in psutil.Process().children() if running(child.pid)]
    nurseries = [child for child in living if "core.forking" in " ".join(child.cmdline())]
    found = [fork for nursery in nurseries for fork in nursery.children(recursive=True)]
    return {fork.pid for fork in found if running(fork.pid)}
