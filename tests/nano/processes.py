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
    """Workers and their guards, found by the entry point on their command line."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if f"local.{'service'}_worker" in " ".join(process.info["cmdline"] or [])
    }
