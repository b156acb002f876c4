"""Between images and tensors."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from seamline.nano.torch.vision import transforms
from seamline.nano.torch.vision.transforms import functional
from tests.nano.vision.photographs import small

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def pixels():
    return small()[1][:50, :70]


def test_tensors_are_between_0_and_1(pixels):
    expected = torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32)) / 255
    assert torch.equal(transforms.ToTensor()(pixels), expected)
    assert torch.equal(transforms.ToTensor()(Image.fromarray(pixels)), expected)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "I", "F", "1"])
def test_every_mode_has_its_tensor(pixels, mode):
    image = Image.fromarray(pixels).convert(mode)
    array = np.array(image.convert("L") if mode == "1" else image)
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    assert torch.equal(transforms.PILToTensor()(image), torch.from_numpy(array))
    scaled = torch.from_numpy(array.astype(np.float32)) / 255 if array.dtype == np.uint8 else torch.from_numpy(array)
    assert torch.equal(transforms.ToTensor()(image), scaled)


def test_there_and_back(pixels):
    for mode in ("L", "RGB", "RGBA", "F", "I"):
        image = Image.fromarray(pixels).convert(mode)
        back = (
            transforms.ToPILImage()(transforms.PILToTensor()(image))
            if mode != "F"
            else functional.to_pil_image(transforms.PILToTensor()(image), "F")
        )
        assert back.mode == mode
        assert np.array_equal(back, image)
    floats = transforms.ToTensor()(pixels)
    assert np.abs(np.asarray(transforms.ToPILImage()(floats), int) - pixels).max() <= 1


def test_what_is_no_image_is_refused():
    with pytest.raises(TypeError, match="5 channels"):
        transforms.ToPILImage()(np.zeros((3, 3, 5), np.uint8))
    with pytest.raises(TypeError, match="expected a PIL image or an array, but got Tensor"):
        transforms.ToTensor()(torch.zeros(3, 2, 2))
    with pytest.raises(TypeError, match="put ToTensor before it"):
        transforms.Normalize(MEAN, STD)(torch.zeros(3, 2, 2, dtype=torch.uint8))
    with pytest.raises(ValueError, match="contains zero"):
        transforms.Normalize(MEAN, (1, 0, 1))(torch.zeros(3, 2, 2))


def test_normalize_in_place_and_for_batches():
    tensor = torch.rand(2, 3, 4, 5)
    expected = (tensor - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    assert torch.equal(transforms.Normalize(MEAN, STD)(tensor), expected)
    assert transforms.Normalize(MEAN, STD, inplace=True)(tensor) is tensor
    assert torch.equal(tensor, expected)


def test_a_batch_normalised_at_once_is_what_its_images_are_alone(pixels):
    images = [pixels[:40, start : start + 30] for start in range(4)]
    alone = torch.stack([transforms.Normalize(MEAN, STD)(transforms.ToTensor()(image)) for image in images])
    samples = [(transforms.PILToTensor()(image), number) for number, image in enumerate(images)]
    together = transforms.NormalizeBatch(MEAN, STD)
    torch.testing.assert_close(together(torch.stack([image for image, _ in samples])), alone, atol=2e-6, rtol=0)
    batch, targets = next(iter(DataLoader(samples, batch_size=4, collate_fn=together.collate)))
    torch.testing.assert_close(batch, alone, atol=2e-6, rtol=0)
    assert targets.tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="let the pipeline end in PILToTensor"):
        together(alone)


def test_erasing_takes_one_rectangle_of_the_drawn_size():
    image = torch.rand(3, 60, 80) + 1
    torch.manual_seed(0)
    erased = transforms.RandomErasing(p=1, value=0)(image)
    gone = (erased == 0).all(0)
    rows, columns = gone.any(1).nonzero().flatten(), gone.any(0).nonzero().flatten()
    assert gone.sum() == len(rows) * len(columns)
    assert (rows.diff() == 1).all()
    assert (columns.diff() == 1).all()
    assert 0.015 < gone.float().mean() < 0.34
    assert torch.equal(erased[:, ~gone], image[:, ~gone])


def test_erasing_with_colours_noise_and_never():
    image = torch.zeros(3, 60, 80)
    assert torch.equal(transforms.RandomErasing(p=0)(image), image)
    coloured = transforms.RandomErasing(p=1, value=(1, 2, 3))(image)
    assert [sorted(channel.unique().tolist()) for channel in coloured] == [[0, 1], [0, 2], [0, 3]]
    noise = transforms.RandomErasing(p=1, scale=(0.3, 0.33), value="random")(image)
    assert 0.8 < noise[noise != 0].std() < 1.2
    assert image.sum() == 0
    transforms.RandomErasing(p=1, value=1, inplace=True)(image)
    assert image.sum() > 0
    with pytest.raises(TypeError, match="put ToTensor before it"):
        transforms.RandomErasing(p=1)(np.zeros((3, 3, 3)))


def test_batches_of_tensors_get_one_draw_for_all():
    batch = torch.rand(1, 3, 40, 50).repeat(4, 1, 1, 1)
    turned = transforms.RandomRotation(90)(batch)
    assert turned.shape == batch.shape
    assert all(torch.equal(turned[0], other) for other in turned)
    assert not torch.equal(turned, batch)


def test_half_precision_stays():
    assert transforms.Resize((4, 5))(torch.rand(3, 8, 9, dtype=torch.float16)).dtype == torch.float16


def test_sizes_are_told_for_every_form(pixels):
    for image in (pixels, Image.fromarray(pixels), functional.to_tensor(pixels)):
        assert functional.get_image_size(image) == [70, 50]
        assert functional.get_dimensions(image) == [3, 50, 70]
