"""What cannot travel is named."""

import functools
import threading

import pytest

from seamline.core import pickling
from seamline.core.errors import UnpicklableError


class Holder:
    def __init__(self):
        self.connection = threading.Lock()


def in_a_closure():
    lock = threading.Lock()
    return lambda: lock


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (in_a_closure(), "'lock'"),
        (functools.partial(print, end=threading.Lock()), "'end'"),
        ({"data": [1, threading.Lock()]}, "'data.item 1'"),
        (Holder(), "'connection'"),
        (functools.partial(in_a_closure(), holder=Holder()), "'holder.connection'"),
    ],
)
def test_the_variable_that_cannot_travel_is_named(value, name):
    with pytest.raises(UnpicklableError, match=f"the task cannot be sent .*held by {name}"):
        pickling.dumps(value, "the task")
