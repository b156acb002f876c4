"""The package itself."""

import importlib
import sys

import pytest

from seamline.core.errors import UnavailableError
from seamline.nano.torch import vision


@pytest.mark.parametrize(
    ("module", "package"), [("cv2", "opencv-python-headless"), ("simplejpeg", "simplejpeg"), ("PIL", "pillow")]
)
def test_what_is_missing_is_named_with_the_command_that_brings_it(monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnavailableError, match=rf'{package} is not installed; pip install "seamline\[vision\]"'):
        importlib.reload(vision)


def test_every_public_name_is_there():
    for place in (vision, vision.datasets, vision.transforms, vision.transforms.functional):
        assert all(hasattr(place, name) for name in place.__all__)
