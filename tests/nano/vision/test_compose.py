"""The way of an image through several transforms, ours and others'."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from seamline.nano.torch.vision import transforms
from seamline.nano.torch.vision.transforms import functional
from tests.nano.vision.photographs import small

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def photograph():
    return Image.fromarray(small()[0]).resize((90, 60))


class Foreign:
    """A transform of another library, which knows PIL images and tensors."""

    def __init__(self):
        self.seen = []

    def __call__(self, image):
        self.seen.append(type(image))
        return image


def test_a_picture_comes_back_in_the_form_in_which_it_came(photograph):
    compose = transforms.Compose([transforms.Resize(20), transforms.CenterCrop(16), transforms.Grayscale()])
    picture = compose(photograph)
    assert (type(picture), picture.mode, picture.size) == (Image.Image, "L", (16, 16))
    assert compose(np.asarray(photograph)).shape == (16, 16, 1)
    tensor = compose(functional.pil_to_tensor(photograph))
    assert (tensor.shape, tensor.dtype) == ((1, 16, 16), torch.uint8)
    assert np.array_equal(tensor[0], picture)


def test_others_get_pil_images_between_ours(photograph):
    foreign = Foreign()
    compose = transforms.Compose([transforms.Resize(20), foreign, transforms.ToTensor(), foreign])
    compose(photograph)
    assert foreign.seen == [Image.Image, torch.Tensor]


def test_ours_work_within_others(photograph):
    steps = [transforms.Resize(20), transforms.RandomHorizontalFlip(1), transforms.ToTensor()]
    image = photograph
    for step in steps:
        image = step(image)
    assert torch.equal(image, transforms.Compose(steps)(photograph))


def test_to_tensor_then_normalize_in_one_pass_is_both(photograph):
    array = np.asarray(photograph, np.float64).transpose(2, 0, 1) / 255
    expected = (array - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    fused = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])(photograph)
    apart = transforms.Normalize(MEAN, STD)(transforms.ToTensor()(photograph))
    assert fused.dtype == torch.float32
    assert fused.is_contiguous()
    torch.testing.assert_close(fused, torch.from_numpy(expected).float(), atol=2e-6, rtol=0)
    torch.testing.assert_close(fused, apart, atol=2e-6, rtol=0)


def test_a_transform_put_in_later_is_used(photograph):
    compose = transforms.Compose([transforms.ToTensor()])
    compose.transforms.insert(0, transforms.Resize((7, 8)))
    assert compose(photograph).shape == (3, 7, 8)


def test_choices_orders_and_chances(photograph):
    add, double = transforms.Lambda(lambda x: x + 3), transforms.Lambda(lambda x: x * 2)
    assert {transforms.RandomOrder([add, double])(1) for _ in range(30)} == {5, 8}
    assert {transforms.RandomChoice([add, double])(5) for _ in range(30)} == {8, 10}
    assert {transforms.RandomChoice([add, double], p=[0, 1])(5) for _ in range(30)} == {10}
    assert {transforms.RandomApply([add, double], p=0.5)(1) for _ in range(30)} == {1, 8}
    assert transforms.RandomApply([transforms.Resize(9)], p=1)(photograph).size == (13, 9)
    with pytest.raises(ValueError, match="1 weights for 2 transforms"):
        transforms.RandomChoice([add, double], p=[1])


@pytest.mark.parametrize(
    ("transform", "answer"),
    [
        (None, True),
        (transforms.Resize(3), True),
        (transforms.Compose([transforms.Resize(3), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]), True),
        (transforms.Compose([transforms.Resize(3), transforms.RandomHorizontalFlip()]), False),
        (transforms.Compose([transforms.Compose([transforms.RandomCrop(3)])]), False),
        (transforms.RandomHorizontalFlip(p=0), True),
        (transforms.ColorJitter(), True),
        (transforms.ColorJitter(0.1), False),
        (transforms.GaussianBlur(3, 1.0), True),
        (transforms.GaussianBlur(3), False),
        (transforms.RandomApply([transforms.Resize(3)]), False),
        (transforms.RandAugment(), False),
        (transforms.RandomErasing(), False),
        (transforms.Lambda(lambda image: image), False),
        (Foreign(), False),
    ],
)
def test_whether_a_transform_is_free_of_randomness(transform, answer):
    assert transforms.is_deterministic(transform) is answer


def test_a_function_may_say_that_it_is_free_of_randomness():
    def half(image):
        return image

    half.deterministic = True
    assert transforms.is_deterministic(transforms.Compose([half, transforms.Lambda(half)]))


def test_pipelines_can_be_sent_to_workers(photograph):
    compose = transforms.Compose(
        [transforms.RandAugment(), transforms.AutoAugment(), transforms.Resize(20), transforms.ToTensor()]
    )
    torch.manual_seed(0)
    expected = compose(photograph)
    torch.manual_seed(0)
    assert torch.equal(pickle.loads(pickle.dumps(compose))(photograph), expected)


def test_a_pipeline_shows_what_is_in_it():
    shown = repr(transforms.Compose([transforms.CenterCrop(3), transforms.RandomApply([transforms.ToTensor()])]))
    assert shown == "Compose(\n    CenterCrop(size=(3, 3))\n    RandomApply(\n        ToTensor()\n    )\n)"


def test_images_without_colours_are_refused(photograph):
    with pytest.raises(TypeError, match="convert"):
        transforms.Resize(3)(photograph.convert("P"))
    with pytest.raises(TypeError, match="but got str"):
        transforms.Compose([transforms.Resize(3)])("image.jpg")
