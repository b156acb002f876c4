"""Resizing keeps its pixel budget beside Pillow, with the whole picture decoded or only a part of it."""

import numpy as np
import pytest
import torch
from PIL import Image

from seamline.nano.torch.vision import transforms
from seamline.nano.torch.vision.encoded import Detail, Encoded
from seamline.nano.torch.vision.transforms import InterpolationMode, functional
from tests.nano.vision.photographs import fetched, levels_apart, small

BUDGET = 1.0  # levels of 255, on average over the pixels of each photograph


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return fetched(tmp_path_factory.mktemp("photographs"))


@pytest.fixture(scope="module")
def photographs():
    return [Image.fromarray(array) for array in small()]


@pytest.mark.parametrize("size", [(256, 384), (100, 90), (17, 500), (600, 900)])
@pytest.mark.parametrize("mode", ["BILINEAR", "BICUBIC"])
def test_a_decoded_picture_is_resized_as_pillow_does_it(photographs, size, mode):
    for image in photographs:
        theirs = image.resize(size[::-1], Image.Resampling[mode])
        ours = functional.resize(image, size, InterpolationMode[mode])
        assert levels_apart(ours, theirs) < 0.2
        assert np.abs(np.asarray(ours, int) - np.asarray(theirs, int)).max() <= 2


@pytest.mark.parametrize("mode", ["BOX", "HAMMING", "LANCZOS"])
def test_the_other_ways_to_interpolate_are_pillows(photographs, mode):
    ours = functional.resize(photographs[0], (123, 211), InterpolationMode[mode])
    theirs = photographs[0].resize((211, 123), Image.Resampling[mode])
    assert np.array_equal(np.asarray(ours), np.asarray(theirs))


def test_the_nearest_pixel_is_pillows_but_for_ties(photographs):
    ours = functional.resize(photographs[0], (123, 211), InterpolationMode.NEAREST)
    theirs = photographs[0].resize((211, 123), Image.Resampling.NEAREST)
    assert (np.asarray(ours) == np.asarray(theirs)).mean() > 0.99


@pytest.mark.parametrize("mode", ["BILINEAR", "BICUBIC"])
@pytest.mark.parametrize("shrink", [1, 2, 4, 8])
def test_a_file_keeps_the_budget_however_far_it_is_shrunk_while_decoding(files, shrink, mode):
    for path in files:
        whole = Image.open(path).convert("RGB")
        size = tuple(int(side / (shrink * 2.5)) for side in (whole.height, whole.width))
        assert Detail.enough_for(size, whole.height, whole.width).shrink == shrink
        ours = transforms.Resize(size, InterpolationMode[mode]).read(Encoded(path))
        assert levels_apart(ours, whole.resize(size[::-1], Image.Resampling[mode])) < BUDGET, path.name


@pytest.mark.parametrize("target", [64, 96, 224])
def test_the_shorter_side_of_a_file_keeps_the_budget(files, target):
    for path in files:
        whole = Image.open(path).convert("RGB")
        ours = transforms.Resize(target).read(Encoded(path))
        theirs = whole.resize((ours.shape[1], ours.shape[0]), Image.Resampling.BILINEAR)
        assert min(ours.shape[:2]) == target
        assert levels_apart(ours, theirs) < BUDGET, path.name


def test_random_parts_of_a_file_keep_the_budget(files):
    shrunk = 0
    for seed, path in enumerate(files * 3):
        whole = Image.open(path).convert("RGB")
        transform = transforms.RandomResizedCrop(48, scale=(0.5, 1.0))
        torch.manual_seed(seed)
        ours = transform.read(Encoded(path))
        torch.manual_seed(seed)
        (top, left, height, width), detail = transform._choose(whole.height, whole.width)
        part = whole.crop((left, top, left + width, top + height))
        assert levels_apart(ours, part.resize((48, 48), Image.Resampling.BILINEAR)) < BUDGET, path.name
        shrunk += detail.shrink > 1
    assert shrunk > len(files), "otherwise this says little about pictures that are decoded smaller"


def test_a_part_on_the_grid_is_close_to_the_part_that_was_drawn():
    transform = transforms.RandomResizedCrop(224)
    for seed in range(20):
        torch.manual_seed(seed)
        drawn = transforms.RandomResizedCrop.get_params(np.zeros((3000, 4000, 3), np.uint8), (0.08, 1), (3 / 4, 4 / 3))
        torch.manual_seed(seed)
        part, detail = transform._choose(3000, 4000)
        steps = np.array([drawn[2], drawn[3]] * 2) / 224
        assert all(side % detail.shrink == 0 for side in part)
        assert (np.abs(np.subtract(drawn, part)) < 0.4 * steps).all()


def test_nothing_is_shrunk_below_what_is_needed():
    for height, width, needed in [(1000, 1000, 224), (500, 375, 256), (4000, 3000, 256), (225, 4000, 224)]:
        shrink = Detail.enough_for((needed, needed), height, width).shrink
        assert shrink == 1 or min(height, width) / shrink >= 2.5 * needed
    assert Detail.enough_for((256, 256), 4000, 3000) == Detail(4, coarse=True)
    assert Detail.enough_for((256, 256), 300, 400) == Detail(1, coarse=False)


def test_without_antialiasing_a_file_is_read_whole(files):
    ours = transforms.Resize((40, 40), antialias=False).read(Encoded(files[0]))
    theirs = functional.resize(np.asarray(Image.open(files[0])), (40, 40), antialias=False)
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("given", "size", "max_size", "expected"),
    [
        ((427, 640), 256, None, (256, 383)),
        ((640, 427), 256, None, (383, 256)),
        ((427, 640), [256], None, (256, 383)),
        ((427, 640), (100, 50), None, (100, 50)),
        ((100, 400), 80, 160, (40, 160)),
    ],
)
def test_a_number_is_for_the_shorter_side(given, size, max_size, expected):
    image = np.zeros((*given, 3), np.uint8)
    assert transforms.Resize(size, max_size=max_size)(image).shape[:2] == expected


def test_a_tensor_of_floats_is_resized_like_the_picture(photographs):
    picture = np.asarray(photographs[0])
    floats = functional.resize(functional.to_tensor(picture), (120, 180))
    assert levels_apart(floats.permute(1, 2, 0) * 255, functional.resize(picture, (120, 180))) < 0.5


def test_bad_sizes_and_names_say_what_is_possible():
    with pytest.raises(ValueError, match="there are NEAREST"):
        transforms.Resize(10, interpolation="sharp")
    with pytest.raises(ValueError, match="max_size=100 must be greater than size=200"):
        transforms.Resize(200, max_size=100)(np.zeros((300, 300, 3), np.uint8))
    with pytest.raises(ValueError, match="resizing only"):
        functional.rotate(np.zeros((30, 30, 3), np.uint8), 10, InterpolationMode.LANCZOS)
