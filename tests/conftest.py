"""What every test stands on."""

import signal


def pytest_configure():
    """Let Ctrl-C mean something to the programs that tests start, also where the suite runs in the background.

    A shell makes its background jobs ignore it, and whatever they start ignores it too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
