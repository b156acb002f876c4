"""A part of a resized picture is made without the rest, and is what cutting it out of the whole would give."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from seamline.nano.torch.vision import datasets, transforms
from seamline.nano.torch.vision.encoded import Detail
from seamline.nano.torch.vision.resampling import InterpolationMode, resize
from seamline.nano.torch.vision.transforms import functional
from seamline.nano.torch.vision.window import NEAR, Axis, span
from tests.nano.vision.photographs import jpeg, levels_apart, small

SIZES = [
    ((375, 500), (256, 341)),
    ((400, 600), (224, 336)),
    ((427, 640), (100, 150)),
    ((300, 200), (91, 61)),
    ((100, 150), (256, 384)),
    ((90, 60), (97, 65)),
    ((80, 120), (40, 300)),
]
MODES = [InterpolationMode.BILINEAR, InterpolationMode.BICUBIC]


def places(size, part):
    """The corners, the middle, one step away from each border, and some others."""
    draw = np.random.default_rng(0)
    free = [whole - kept for whole, kept in zip(size, part, strict=True)]
    edges = [sorted({0, min(1, far), far // 2, max(far - 1, 0), far}) for far in free]
    others = [tuple(int(draw.integers(far + 1)) for far in free) for _ in range(9)]
    return [*itertools.product(*edges), *others]


def assert_close(part, expected):
    """The same picture, to a reader of its pixels: most are equal, hardly any is more than one level away."""
    off = np.abs(np.asarray(part, int) - np.asarray(expected, int))
    assert off.shape == np.shape(expected)
    assert off.mean() < 0.25
    assert off.max() <= 6
    assert (off > 1).mean() < 0.02


def photograph(height, width):
    return resize(small()[0], (height, width)).copy()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_a_part_is_the_part_of_the_whole(old, new, mode):
    pixels = photograph(*old)
    whole = resize(pixels, new, mode)
    kept = tuple(side * 2 // 3 for side in new)
    for top, left in places(new, kept):
        part = resize(pixels, new, mode, part=(top, left, *kept))
        assert_close(part, whole[top : top + kept[0], left : left + kept[1]])


@pytest.mark.parametrize(("mode", "slope"), [(MODES[0], 2), (MODES[1], 3)], ids=("bilinear", "bicubic"))
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_the_sharpest_edges_move_by_no_more_than_was_allowed(old, new, mode, slope):
    """Along both axes an edge changes by at most 255 in one pixel, with a cubic filter by a little more."""
    noise = np.random.default_rng(0).integers(0, 2, (*old, 3), np.uint8) * 255  # black beside white everywhere
    whole = resize(noise, new, mode).astype(int)
    kept = tuple(side // 2 for side in new)
    for top, left in places(new, kept):
        part = resize(noise, new, mode, part=(top, left, *kept))
        off = np.abs(part - whole[top : top + kept[0], left : left + kept[1]])
        assert off.max() <= slope * 255 * NEAR + 1, (top, left)


@pytest.mark.parametrize(("old", "new"), [(30, 32), (40, 41), (60, 65), (90, 97)])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_part_of_as_many_pixels_as_it_is_made_of_is_resized_all_the_same(old, new, mode):
    pixels = photograph(old, old)
    whole = resize(pixels, (new, new), mode).astype(int)
    for length in range(1, new + 1):
        part = resize(pixels, (new, new), mode, part=(0, 0, length, length))
        assert np.abs(part - whole[:length, :length]).max() <= 1, length


def test_a_part_at_the_upper_left_and_the_whole_are_exact():
    pixels = photograph(375, 500)
    whole = resize(pixels, (256, 341))
    assert np.array_equal(resize(pixels, (256, 341), part=(0, 0, 256, 341)), whole)
    assert np.abs(resize(pixels, (256, 341), part=(0, 0, 50, 60)) - whole[:50, :60].astype(int)).max() <= 1
    floats = pixels.astype(np.float32) / 255
    ours = resize(floats, (256, 341), part=(0, 0, 50, 60))
    np.testing.assert_allclose(ours, resize(floats, (256, 341))[:50, :60], atol=1e-6)


def test_where_steps_are_whole_a_part_is_exact_anywhere():
    floats = photograph(300, 300).astype(np.float32) / 255
    whole = resize(floats, (200, 150))
    for top, left in places((200, 150), (70, 80)):
        ours = resize(floats, (200, 150), part=(top, left, 70, 80))
        np.testing.assert_allclose(ours, whole[top : top + 70, left : left + 80], atol=1e-6)


def test_little_is_read_beside_a_part():
    """For the usual sizes of photographs: 256 on the shorter side, 224 of it."""
    for old, new in [(375, 256), (500, 341), (480, 256), (640, 341), (333, 256), (1200, 256), (768, 256)]:
        axis = Axis(old, new, old, 1)
        early = []
        for first in range(new - 224 + 1):
            found = span(axis, first, 224)
            assert 0 <= found.start < found.stop <= old
            assert found.count == 224 + found.early
            assert abs(found.start - (first - found.early) * old / new) <= NEAR * old / new
            early.append(found.early)
        assert np.mean(early) < 20


@pytest.mark.parametrize(
    "interpolation", [mode for mode in InterpolationMode if mode not in MODES], ids=lambda mode: mode.value
)
def test_the_other_ways_to_interpolate_cut_the_part_out(interpolation):
    pixels = photograph(120, 150)
    whole = resize(pixels, (60, 70), interpolation)
    assert np.array_equal(resize(pixels, (60, 70), interpolation, part=(5, 7, 40, 50)), whole[5:45, 7:57])
    whole = resize(pixels, (60, 70), antialias=False)
    assert np.array_equal(resize(pixels, (60, 70), antialias=False, part=(5, 7, 40, 50)), whole[5:45, 7:57])
    assert np.array_equal(resize(pixels, (120, 150), part=(5, 7, 40, 50)), pixels[5:45, 7:57])


CROPS = {
    "random": transforms.RandomCrop(48),
    "random, oblong": transforms.RandomCrop((30, 60)),
    "random, padded": transforms.RandomCrop(48, padding=4),
    "random, padded if needed": transforms.RandomCrop(80, pad_if_needed=True),
    "centre": transforms.CenterCrop(48),
    "centre, all of one side": transforms.CenterCrop((64, 20)),
    "centre, larger than the picture": transforms.CenterCrop(110),
    "none, but a flip": transforms.RandomHorizontalFlip(),
}
RESIZES = {
    "shorter side": transforms.Resize(64),
    "pair": transforms.Resize((64, 64)),
    "cubic": transforms.Resize(64, InterpolationMode.BICUBIC),
    "limited": transforms.Resize(80, max_size=96),
    "without antialiasing": transforms.Resize(64, antialias=False),
    "nearest": transforms.Resize(64, InterpolationMode.NEAREST),
}


@pytest.mark.parametrize("resizing", RESIZES.values(), ids=RESIZES)
@pytest.mark.parametrize("crop", CROPS.values(), ids=CROPS)
def test_a_pipeline_gives_what_its_transforms_give_one_by_one(resizing, crop):
    image = Image.fromarray(photograph(150, 210))
    compose = transforms.Compose([resizing, crop, transforms.RandomVerticalFlip()])
    for seed in range(5):
        torch.manual_seed(seed)
        expected = transforms.RandomVerticalFlip()(crop(resizing(image)))
        torch.manual_seed(seed)
        assert_close(compose(image), expected)


def test_a_part_that_does_not_fit_is_refused_as_before():
    image = photograph(150, 210)
    with pytest.raises(ValueError, match="cannot cut 80 x 80 from an image of 64 x 89"):
        transforms.Compose([transforms.Resize(64), transforms.RandomCrop(80)])(image)


def test_resizing_twice_and_cutting_twice_is_done_in_order():
    image = photograph(150, 210)
    steps = [transforms.Resize(120), transforms.Resize(64), transforms.CenterCrop(50), transforms.CenterCrop(30)]
    expected = image
    for step in steps:
        expected = step(expected)
    assert np.abs(transforms.Compose(steps)(image).astype(int) - expected).max() <= 2


def test_others_see_the_resized_picture():
    compose = transforms.Compose([transforms.Resize(20), lambda image: image.size])
    assert compose(Image.fromarray(photograph(40, 60))) == (30, 20)
    tensor = transforms.Compose([transforms.Resize(20), transforms.PILToTensor()])(photograph(40, 60))
    assert torch.equal(tensor, functional.pil_to_tensor(transforms.Resize(20)(photograph(40, 60))))


@pytest.fixture(scope="module", params=[1, 2, 4, 9], ids=["a photograph", "mosaic of 2 x 2", "of 4 x 4", "of 9 x 9"])
def mosaics(request, tmp_path_factory):
    """Files with sides that no shrinking divides evenly."""
    root = tmp_path_factory.mktemp("mosaics")
    (root / "all").mkdir()
    for number, scene in enumerate(small()):
        array = np.tile(scene, (request.param, request.param, 1))[:-3, :-5]
        (root / "all" / f"{number}.jpg").write_bytes(jpeg(array))
        detail = Detail.enough_for((90, 90), *array.shape[:2])
        assert detail.shrink == {1: 1, 2: 2, 4: 4, 9: 8}[request.param]
    return root


def test_a_random_part_of_a_file_is_the_part_of_the_whole(mosaics):
    resizing, crop = transforms.Resize(90), transforms.RandomCrop(64)
    folder = datasets.ImageFolder(mosaics, transforms.Compose([resizing, crop]), seed=3)
    apart = datasets.ImageFolder(mosaics, transforms.Compose([resizing, lambda image: crop(image)]), seed=3)
    for _, index in itertools.product(range(6), range(len(folder))):  # another part each time
        assert_close(folder[index][0], apart[index][0])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_part_of_a_file_keeps_the_budget_beside_pillow(mosaics, mode):
    pipeline = transforms.Compose([transforms.Resize((90, 135), mode), transforms.CenterCrop((61, 80))])
    folder = datasets.ImageFolder(mosaics, pipeline)
    for index, (path, _) in enumerate(folder.samples):
        theirs = Image.open(path).resize((135, 90), Image.Resampling[mode.name])
        assert levels_apart(folder[index][0], np.asarray(theirs)[14:75, 28:108]) < 1
