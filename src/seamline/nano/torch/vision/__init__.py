"""Images for training: torchvision's ``datasets`` and ``transforms`` on OpenCV, libjpeg-turbo and torch.

Torchvision is not needed and may be there: images, tensors and transforms of both mix freely.
"""

import importlib.util

from seamline.core.errors import UnavailableError

for _module, _package in (("cv2", "opencv-python-headless"), ("simplejpeg", "simplejpeg"), ("PIL", "pillow")):
    if importlib.util.find_spec(_module) is None:
        raise UnavailableError.needs(_package, "vision")

from seamline.nano.torch.vision import datasets, transforms  # noqa: E402
from seamline.nano.torch.vision.encoded import UnreadableImageError  # noqa: E402

__all__ = ["UnreadableImageError", "datasets", "transforms"]
