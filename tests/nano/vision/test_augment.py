"""Published policies of augmentation: what they draw, how strong it is, and what is done."""

from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from seamline.nano.torch.vision import transforms
from seamline.nano.torch.vision.transforms import augment
from tests.nano.vision.photographs import levels_apart, small

CANVAS = augment.Canvas(331, 662, transforms.InterpolationMode.NEAREST, None)


@pytest.fixture(scope="module")
def photograph():
    return Image.fromarray(small()[0]).resize((120, 80))


def draws(policy, times):
    torch.manual_seed(0)
    return [step for _ in range(times) for step in policy.drawn(CANVAS)]


def strengths(drawn):
    found = {}
    for name, strength in drawn:
        found.setdefault(name, set()).add(round(strength, 6))
    return found


def test_rand_augment_draws_every_operation_equally_often_at_one_strength():
    drawn = draws(transforms.RandAugment(num_ops=2, magnitude=15), 2000)
    counts = Counter(name for name, _ in drawn)
    assert len(drawn) == 4000
    assert len(counts) == 14
    assert min(counts.values()) > 200
    found = strengths(drawn)
    assert found["Rotate"] == {-15, 15}
    assert found["ShearX"] == {-0.15, 0.15}
    assert found["TranslateX"] == {-150, 150}
    assert found["TranslateY"] == {-75, 75}
    assert found["Color"] == {-0.45, 0.45}
    assert found["Posterize"] == {6}
    assert found["Solarize"] == {127.5}
    assert found["Identity"] == {0}


def test_trivial_augment_draws_one_operation_at_any_strength():
    drawn = draws(transforms.TrivialAugmentWide(), 4000)
    found = strengths(drawn)
    assert len(drawn) == 4000
    assert (min(found["Rotate"]), max(found["Rotate"]), len(found["Rotate"])) == (-135, 135, 61)
    assert (min(found["TranslateY"]), max(found["TranslateY"])) == (-32, 32)
    assert max(found["Brightness"]) == 0.99
    assert found["Posterize"] == {2, 3, 4, 5, 6, 7, 8}


def test_auto_augment_draws_pairs_of_the_published_table():
    drawn = draws(transforms.AutoAugment(), 4000)
    found = strengths(drawn)
    colours = {"Posterize", "Solarize", "AutoContrast", "Equalize", "Color", "Invert", "Contrast", "Sharpness"}
    assert set(found) == {*colours, "Rotate", "ShearX"}
    assert {abs(angle) for angle in found["Rotate"]} == {10, round(30 * 8 / 9, 6), 30}
    assert found["Posterize"] == {8 - round(4 * magnitude / 9) for magnitude in (5, 6, 7, 8)}
    # Each of 25 pairs is as likely; the probabilities of the table add up to what is done per image.
    expected = sum(probability for pair in augment._IMAGENET for _, probability, _ in pair) / 25
    assert abs(len(drawn) / 4000 - expected) < 0.05
    with pytest.raises(ValueError, match="IMAGENET"):
        transforms.AutoAugment("svhn")


@pytest.mark.parametrize(
    ("name", "strength", "theirs"),
    [
        ("Identity", 0, lambda image: image),
        ("Brightness", 0.5, lambda image: ImageEnhance.Brightness(image).enhance(1.5)),
        ("Color", -0.5, lambda image: ImageEnhance.Color(image).enhance(0.5)),
        ("Contrast", 0.3, lambda image: ImageEnhance.Contrast(image).enhance(1.3)),
        ("Sharpness", 0.9, lambda image: ImageEnhance.Sharpness(image).enhance(1.9)),
        ("Posterize", 4, lambda image: ImageOps.posterize(image, 4)),
        ("Solarize", 128, lambda image: ImageOps.solarize(image, 128)),
        ("AutoContrast", 0, ImageOps.autocontrast),
        ("Equalize", 0, ImageOps.equalize),
        ("Invert", 0, ImageOps.invert),
        ("Rotate", 20, lambda image: image.rotate(20)),
        ("TranslateX", 9.7, lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0, -9, 0, 1, 0))),
        ("TranslateY", -9, lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, 0, 1, 9))),
        ("ShearX", 0.21, lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0.21, 0, 0, 1, 0))),
        ("ShearY", -0.21, lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, -0.21, 1, 0))),
    ],
)
def test_each_operation_is_pillows(photograph, name, strength, theirs):
    canvas = augment.Canvas(80, 120, transforms.InterpolationMode.NEAREST, None)
    ours = augment._WORK[name](canvas, strength)(np.asarray(photograph))
    assert levels_apart(ours, theirs(photograph)) < 1


@pytest.mark.parametrize(
    "policy", [transforms.RandAugment(3, fill=9), transforms.TrivialAugmentWide(), transforms.AutoAugment()]
)
def test_policies_follow_torchs_seed_and_change_pictures(photograph, policy):
    answers = []
    for seed in (*range(8), *range(8)):
        torch.manual_seed(seed)
        answers.append(np.asarray(policy(photograph)))
    assert all(answer.shape == (80, 120, 3) for answer in answers)
    assert all(np.array_equal(one, two) for one, two in zip(answers[:8], answers[8:], strict=True))
    assert sum(not np.array_equal(answer, photograph) for answer in answers) > 6
