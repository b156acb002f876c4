"""What changes colours, beside Pillow's ``ImageEnhance``, ``ImageOps`` and ``ImageFilter``."""

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from seamline.nano.torch.vision import transforms
from seamline.nano.torch.vision.transforms import functional
from tests.nano.vision.photographs import levels_apart, small


@pytest.fixture(scope="module", params=[0, 1], ids=["china", "flower"])
def photograph(request):
    return Image.fromarray(small()[request.param]).resize((320, 213))


def furthest(ours, theirs):
    return np.abs(np.asarray(ours, int) - np.asarray(theirs, int)).max()


@pytest.mark.parametrize("factor", [0, 0.3, 1, 1.7])
@pytest.mark.parametrize(
    ("adjust", "enhance"),
    [
        (functional.adjust_brightness, ImageEnhance.Brightness),
        (functional.adjust_contrast, ImageEnhance.Contrast),
        (functional.adjust_saturation, ImageEnhance.Color),
        (functional.adjust_sharpness, ImageEnhance.Sharpness),
    ],
)
def test_enhancements_are_within_levels_of_pillows(photograph, adjust, enhance, factor):
    ours, theirs = adjust(photograph, factor), enhance(photograph).enhance(factor)
    assert furthest(ours, theirs) <= 2
    assert levels_apart(ours, theirs) < 0.6


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (functional.invert, ImageOps.invert),
        (functional.autocontrast, ImageOps.autocontrast),
        (functional.equalize, ImageOps.equalize),
        (lambda image: functional.posterize(image, 3), lambda image: ImageOps.posterize(image, 3)),
        (lambda image: functional.solarize(image, 100), lambda image: ImageOps.solarize(image, 100)),
    ],
    ids=["invert", "autocontrast", "equalize", "posterize", "solarize"],
)
def test_operations_are_exactly_pillows(photograph, ours, theirs):
    assert np.array_equal(ours(photograph), theirs(photograph))
    gray = photograph.convert("L")
    assert np.array_equal(ours(gray), theirs(gray))


def test_pictures_of_one_colour_survive():
    flat = Image.new("RGB", (8, 8), (9, 9, 9))
    for operation in (functional.autocontrast, functional.equalize):
        assert np.array_equal(operation(flat), np.asarray(flat))


def test_gray(photograph):
    assert furthest(functional.to_grayscale(photograph), photograph.convert("L")) <= 1
    three = functional.to_grayscale(photograph, 3)
    assert three.mode == "RGB"
    assert furthest(three, photograph.convert("L").convert("RGB")) <= 1


@pytest.mark.parametrize("turn", [-0.5, -0.2, 0.1, 0.37])
def test_hue_turns_as_python_says(turn):
    colors = np.random.default_rng(0).integers(0, 256, (200, 1, 3)).astype(np.uint8)
    expected = []
    for color in colors[:, 0] / 255:
        hue, saturation, value = colorsys.rgb_to_hsv(*color)
        expected.append(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value))
    theirs = 255 * np.array(expected)[:, None]
    assert levels_apart(functional.adjust_hue(colors, turn), theirs) < 2
    floats = functional.adjust_hue(torch.from_numpy(colors / 255).permute(2, 0, 1).float(), turn)
    assert levels_apart(255 * floats.permute(1, 2, 0), theirs) < 0.1


def test_hue_beside_pillow(photograph):
    def pillows(image, turn):
        hue, saturation, value = image.convert("HSV").split()
        moved = (np.asarray(hue, int) + int(turn * 255)) % 256
        return Image.merge("HSV", (Image.fromarray(moved.astype(np.uint8)), saturation, value)).convert("RGB")

    assert levels_apart(functional.adjust_hue(photograph, 0.2), pillows(photograph, 0.2)) < 2


def test_gamma(photograph):
    theirs = 255 * (np.asarray(photograph) / 255) ** 2.2
    assert np.abs(np.asarray(functional.adjust_gamma(photograph, 2.2)) - theirs).max() <= 1


def test_blur_is_the_sum_that_it_says():
    picture = small()[0][:40, :60].astype(np.float64)
    places = np.arange(-3, 4)
    weights = np.exp(-((places / 1.3) ** 2) / 2)
    weights /= weights.sum()
    framed = np.pad(picture, ((3, 3), (3, 3), (0, 0)), mode="reflect")
    down = sum(w * framed[3 + d : 43 + d] for w, d in zip(weights, places, strict=True))
    expected = sum(w * down[:, 3 + d : 63 + d] for w, d in zip(weights, places, strict=True))
    assert np.abs(functional.gaussian_blur(picture.astype(np.uint8), 7, 1.3) - expected).max() <= 1


@pytest.mark.parametrize(
    ("adjust", "arguments"),
    [
        (functional.adjust_brightness, (0.7,)),
        (functional.adjust_contrast, (1.5,)),
        (functional.adjust_saturation, (0.2,)),
        (functional.adjust_sharpness, (2.0,)),
        (functional.invert, ()),
        (functional.solarize, (0.5,)),
        (functional.autocontrast, ()),
        (functional.to_grayscale, ()),
        (functional.gaussian_blur, (5, 1.0)),
    ],
)
def test_floats_give_what_levels_give(photograph, adjust, arguments):
    levels = functional.pil_to_tensor(photograph)
    floats = adjust(levels / 255, *arguments)
    by_level = [128.0] if adjust is functional.solarize else arguments
    assert floats.dtype == torch.float32
    assert levels_apart(floats * 255, adjust(levels, *by_level)) < 1.5


def test_jitter_does_the_drawn_amounts_in_the_drawn_order(photograph):
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    torch.manual_seed(4)
    ours = jitter(photograph)
    torch.manual_seed(4)
    order, *amounts = transforms.ColorJitter.get_params(
        jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
    )
    theirs = photograph
    for number in order:
        adjust = (
            functional.adjust_brightness,
            functional.adjust_contrast,
            functional.adjust_saturation,
            functional.adjust_hue,
        )[number]
        theirs = adjust(theirs, amounts[number])
    assert np.array_equal(ours, theirs)
    assert all(0.6 <= amount <= 1.4 for amount in amounts[:3])
    assert -0.1 <= amounts[3] <= 0.1


def test_jitter_of_nothing_changes_nothing(photograph):
    assert np.array_equal(transforms.ColorJitter()(photograph), photograph)


@pytest.mark.parametrize(
    ("transform", "certain"),
    [
        (transforms.RandomGrayscale, lambda image: functional.to_grayscale(image, 3)),
        (transforms.RandomInvert, functional.invert),
        (transforms.RandomAutocontrast, functional.autocontrast),
        (transforms.RandomEqualize, functional.equalize),
        (lambda p: transforms.RandomPosterize(2, p), lambda image: functional.posterize(image, 2)),
        (lambda p: transforms.RandomSolarize(99, p), lambda image: functional.solarize(image, 99)),
        (lambda p: transforms.RandomAdjustSharpness(2, p), lambda image: functional.adjust_sharpness(image, 2)),
    ],
)
def test_with_certainty_it_is_the_function_and_with_none_the_picture(photograph, transform, certain):
    assert np.array_equal(transform(p=1)(photograph), certain(photograph))
    assert np.array_equal(transform(p=0)(photograph), photograph)


def test_amounts_that_make_no_sense_are_refused(photograph):
    for bad in (
        lambda: transforms.ColorJitter(brightness=-1),
        lambda: transforms.ColorJitter(hue=0.7),
        lambda: functional.adjust_hue(photograph, 0.6),
        lambda: functional.adjust_contrast(photograph, -1),
        lambda: functional.gaussian_blur(photograph, 4),
        lambda: transforms.GaussianBlur(3, (2, 1)),
        lambda: functional.posterize(photograph, 9),
    ):
        with pytest.raises(ValueError, match="but got"):
            bad()
    with pytest.raises(TypeError, match="uint8"):
        functional.equalize(functional.to_tensor(photograph))
