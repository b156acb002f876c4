"""Real photographs that ship inside packages: scikit-learn's two, and scikit-image's as JPEG files of several sizes."""

import io

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.wheels import unpacked

NAMES = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg")


def small():
    """Two photographs as arrays, without fetching anything."""
    return [np.asarray(image) for image in load_sample_images().images]


def fetched(folder):
    """JPEG files of all photographs; those that are not JPEG already are saved with quality 92."""
    source = unpacked("scikit-image", folder) / "skimage" / "data"
    paths = []
    for number, array in enumerate(small()):
        paths.append(folder / f"scene{number}.jpg")
        paths[-1].write_bytes(jpeg(array))
    for name in NAMES:
        paths.append((folder / name).with_suffix(".jpg"))
        whole = (source / name).read_bytes()
        paths[-1].write_bytes(whole if name.endswith(".jpg") else jpeg(np.asarray(Image.open(io.BytesIO(whole)))))
    return paths


def jpeg(array, quality=92):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def levels_apart(ours, theirs):
    """The mean distance of two pictures, in levels of 255."""
    return float(np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).mean())
