"""What moves pixels, beside Pillow and plain numpy."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from seamline.nano.torch.vision import transforms
from seamline.nano.torch.vision.transforms import InterpolationMode, functional
from tests.nano.vision.photographs import levels_apart, small

BILINEAR = InterpolationMode.BILINEAR


@pytest.fixture(scope="module")
def photograph():
    return Image.fromarray(small()[0]).resize((321, 214))


@pytest.fixture(scope="module")
def pixels(photograph):
    return np.asarray(photograph)


def inner(image, frame=24):
    """Without the edges, where OpenCV mixes the last pixel with what is outside and Pillow does not."""
    return np.asarray(image)[frame:-frame, frame:-frame]


def test_mirrors(photograph):
    assert np.array_equal(functional.hflip(photograph), ImageOps.mirror(photograph))
    assert np.array_equal(functional.vflip(photograph), ImageOps.flip(photograph))


def test_parts(pixels):
    assert np.array_equal(functional.crop(pixels, 10, 20, 30, 40), pixels[10:40, 20:60])
    assert np.array_equal(functional.center_crop(pixels, (100, 51)), pixels[57:157, 135:186])


def test_a_part_beyond_the_edge_is_black_there(photograph):
    theirs = photograph.crop((-5, 200, 60, 230))
    assert np.array_equal(functional.crop(photograph, 200, -5, 30, 65), theirs)


def test_the_middle_of_a_small_picture_is_framed(pixels):
    framed = functional.center_crop(pixels[:11, :20], (16, 30))
    assert framed.shape == (16, 30, 3)
    assert np.array_equal(framed[2:13, 5:25], pixels[:11, :20])
    assert framed.sum() == pixels[:11, :20].sum()


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
def test_frames_follow_the_picture(pixels, mode):
    ours = functional.pad(pixels, [3, 5, 7, 9], padding_mode=mode)
    assert np.array_equal(ours, np.pad(pixels, ((5, 9), (3, 7), (0, 0)), mode=mode))


def test_frames_of_a_colour(photograph):
    assert np.array_equal(functional.pad(photograph, 4, fill=(9, 8, 7)), ImageOps.expand(photograph, 4, (9, 8, 7)))
    assert np.array_equal(functional.pad(photograph, (1, 2), fill=5), ImageOps.expand(photograph, (1, 2), (5, 5, 5)))


@pytest.mark.parametrize("angle", [0, 90, 180, 270, -90])
@pytest.mark.parametrize("expand", [False, True])
def test_quarter_turns_are_exact(photograph, angle, expand):
    square = photograph if expand else photograph.crop((0, 0, 200, 200))
    assert np.array_equal(functional.rotate(square, angle, expand=expand), square.rotate(angle, expand=expand))


@pytest.mark.parametrize("angle", [13, -40, 135.5])
@pytest.mark.parametrize("options", [{}, {"expand": True}, {"center": (40, 70)}])
def test_turns(photograph, angle, options):
    ours = functional.rotate(photograph, angle, BILINEAR, **options)
    theirs = photograph.rotate(angle, Image.Resampling.BILINEAR, **options)
    assert ours.size == theirs.size
    assert levels_apart(inner(ours), inner(theirs)) < 1
    nearest, exact = functional.rotate(photograph, angle, **options), photograph.rotate(angle, **options)
    assert (np.asarray(nearest) == np.asarray(exact)).all(2).mean() > 0.99


def test_what_turns_in_from_outside_has_the_fill_colour(photograph):
    ours = functional.rotate(photograph, 45, fill=(10, 20, 30), expand=True)
    theirs = photograph.rotate(45, fillcolor=(10, 20, 30), expand=True)
    assert (np.asarray(ours)[0, 0] == (10, 20, 30)).all()
    assert (np.asarray(ours) == np.asarray(theirs)).all(2).mean() > 0.99


def pillow_affine(image, angle, translate, scale, shear):
    """From the definition: turn, shear along y, shear along x, scale, around the centre; then move."""
    angle, *shear = np.radians([angle, *shear])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    along_y = np.array([[1, 0], [-np.tan(shear[1]), 1]])
    along_x = np.array([[1, -np.tan(shear[0])], [0, 1]])
    back = np.linalg.inv(scale * turn @ along_y @ along_x)
    middle = np.array(image.size) / 2
    offset = middle - back @ (middle + translate)
    data = (*back[0], offset[0], *back[1], offset[1])
    return image.transform(image.size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)


@pytest.mark.parametrize(
    ("angle", "translate", "scale", "shear"),
    [(0, (5, -7), 1, (0, 0)), (20, (0, 0), 1, (0, 0)), (0, (0, 0), 0.7, (0, 0)), (-10, (8, 3), 1.3, (12, -5))],
)
def test_affine_maps(photograph, angle, translate, scale, shear):
    ours = functional.affine(photograph, angle, translate, scale, shear, BILINEAR)
    theirs = pillow_affine(photograph, angle, translate, scale, shear)
    assert levels_apart(inner(ours), inner(theirs)) < 1


def test_moving_by_whole_pixels_is_exact(pixels):
    moved = functional.affine(pixels, 0, (3, 2), 1.0, 0.0)
    assert np.array_equal(moved[2:, 3:], pixels[:-2, :-3])
    assert moved[:2].sum() == moved[:, :3].sum() == 0


def test_perspective(photograph):
    width, height = photograph.size
    starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    ends = [[20, 10], [width - 30, 5], [width - 1, height - 20], [10, height - 3]]
    rows, values = [], []
    for (x, y), (u, v) in zip(ends, starts, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    data = tuple(np.linalg.solve(np.array(rows, float), np.array(values, float)))
    theirs = photograph.transform((width, height), Image.Transform.PERSPECTIVE, data, Image.Resampling.BILINEAR)
    assert levels_apart(inner(functional.perspective(photograph, starts, ends), 40), inner(theirs, 40)) < 1


def test_a_random_part_is_a_part_of_the_picture(pixels):
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        ours = transforms.RandomCrop((50, 60))(pixels)
        torch.manual_seed(seed)
        top, left, height, width = transforms.RandomCrop.get_params(pixels, (50, 60))
        assert np.array_equal(ours, pixels[top : top + height, left : left + width])
        seen.add((top, left))
    assert len(seen) == 20


def test_a_random_part_draws_as_torchs_generator_says(pixels):
    torch.manual_seed(3)
    top, left, *_ = transforms.RandomCrop.get_params(pixels, (50, 60))
    torch.manual_seed(3)
    assert top == int(torch.randint(0, 214 - 50 + 1, (1,)))
    assert left == int(torch.randint(0, 321 - 60 + 1, (1,)))


def test_padding_before_a_random_part(pixels):
    small_one = pixels[:20, :20]
    ours = transforms.RandomCrop(28, padding=4)(small_one)
    assert np.array_equal(ours, np.pad(small_one, ((4, 4), (4, 4), (0, 0))))
    assert transforms.RandomCrop((40, 10), pad_if_needed=True)(small_one).shape == (40, 10, 3)
    with pytest.raises(ValueError, match="cannot cut 28 x 28 from an image of 20 x 20"):
        transforms.RandomCrop(28)(small_one)


def test_areas_and_shapes_of_random_parts_are_within_their_ranges(pixels):
    whole = 214 * 321
    parts = [transforms.RandomResizedCrop.get_params(pixels, (0.2, 0.5), (0.5, 2)) for _ in range(200)]
    areas = np.array([height * width / whole for _, _, height, width in parts])
    shapes = np.array([width / height for _, _, height, width in parts])
    assert 0.19 < areas.min() < 0.25
    assert 0.45 < areas.max() < 0.51
    assert 0.49 < shapes.min() < 0.7
    assert 1.4 < shapes.max() < 2.05


def test_a_shape_that_never_fits_takes_the_middle():
    part = transforms.RandomResizedCrop.get_params(np.zeros((10, 400, 3), np.uint8), (0.9, 1.0), (0.75, 1.25))
    assert part == (0, 194, 10, 12)


def test_probabilities_are_kept(pixels):
    flip = transforms.RandomHorizontalFlip(0.25)
    flipped = sum(not np.array_equal(flip(pixels[:4, :4]), pixels[:4, :4]) for _ in range(800))
    assert 140 < flipped < 260
    assert np.array_equal(transforms.RandomVerticalFlip(1)(pixels), pixels[::-1])
    assert transforms.RandomVerticalFlip(0)(pixels) is pixels


@pytest.mark.parametrize(
    "transform",
    [
        transforms.RandomRotation(30, expand=True),
        transforms.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (-5, 5, -3, 3), BILINEAR, fill=7),
        transforms.RandomPerspective(p=1),
        transforms.RandomResizedCrop(32),
    ],
)
def test_the_seed_of_torch_decides(photograph, transform):
    answers = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        answers.append(np.asarray(transform(photograph)))
    assert np.array_equal(answers[0], answers[1])
    assert answers[0].shape != answers[2].shape or not np.array_equal(answers[0], answers[2])


def test_ranges_that_make_no_sense_are_refused():
    for bad in (
        lambda: transforms.RandomRotation(-3),
        lambda: transforms.RandomAffine(3, translate=(2, 0)),
        lambda: transforms.RandomHorizontalFlip(1.5),
        lambda: transforms.RandomResizedCrop(3, scale=(1, 0.5)),
        lambda: transforms.Pad([1, 2, 3]),
    ):
        with pytest.raises(ValueError, match="but got"):
            bad()
