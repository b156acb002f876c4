"""A folder of images: classes, damaged files, and the same draws whoever loads them."""

import pickle
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

from seamline.nano.torch.vision import UnreadableImageError, datasets, transforms
from tests.nano.vision.photographs import jpeg, small

WITH_WORKERS = [0, 1, 2]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    pictures = small()
    for name, picture in zip(("dog", "cat"), pictures, strict=True):
        (root / name / "deeper").mkdir(parents=True)
        for number in range(5):
            cut = picture[10 * number : 10 * number + 120, 5 * number : 5 * number + 150]
            folder = root / name / "deeper" if number == 4 else root / name
            (folder / f"{number}.jpg").write_bytes(jpeg(cut))
        (root / name / "notes.txt").write_text("no image")
    return root


@pytest.fixture
def damaged(tmp_path):
    (tmp_path / "all").mkdir()
    whole = jpeg(small()[0])
    for number in range(6):
        (tmp_path / "all" / f"{number}.jpg").write_bytes(whole if number not in (1, 2, 5) else whole[:3000])
    return tmp_path


def by_pillow(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def random_pipeline():
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(24),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
            transforms.ToTensor(),
            transforms.Normalize((0.5,) * 3, (0.5,) * 3),
            transforms.RandomErasing(value="random"),
        ]
    )


def test_the_attributes_are_torchvisions(root):
    folder = datasets.ImageFolder(root)
    assert folder.classes == ["cat", "dog"]
    assert folder.class_to_idx == {"cat": 0, "dog": 1}
    assert folder.targets == [0] * 5 + [1] * 5
    assert folder.samples == folder.imgs
    relative = [path.removeprefix(f"{root}/") for path, _ in folder.samples[:5]]
    assert relative == ["cat/0.jpg", "cat/1.jpg", "cat/2.jpg", "cat/3.jpg", "cat/deeper/4.jpg"]
    assert len(folder) == 10
    assert "10 images of 2 classes" in repr(folder)


def test_without_a_transform_an_image_is_a_pil_image(root):
    folder = datasets.ImageFolder(root, target_transform=lambda target: target + 10)
    image, target = folder[7]
    assert isinstance(image, Image.Image)
    assert np.array_equal(image, Image.open(folder.samples[7][0]))
    assert target == 11
    assert np.array_equal(folder[-1][0], folder[9][0])
    with pytest.raises(IndexError):
        folder[10]


def test_a_loader_and_a_choice_of_files_may_be_the_users(root):
    folder = datasets.ImageFolder(root, loader=lambda path: path, is_valid_file=lambda path: path.endswith(".txt"))
    assert [folder[number][0] for number in range(2)] == [f"{root}/cat/notes.txt", f"{root}/dog/notes.txt"]


@pytest.mark.parametrize("kind", ["png", "bmp", "webp", "gray.jpg", "cmyk.jpg", "palette.png"])
def test_every_kind_of_file_is_read_as_pillow_reads_it(tmp_path, kind):
    (tmp_path / "one").mkdir()
    mode = {"gray.jpg": "L", "cmyk.jpg": "CMYK", "palette.png": "P"}.get(kind, "RGB")
    path = tmp_path / "one" / f"image.{kind}"
    Image.fromarray(small()[0][:90, :120]).convert(mode).save(path)
    theirs = Image.open(path).convert("RGB")
    assert np.array_equal(datasets.ImageFolder(tmp_path)[0][0], theirs)
    resized = datasets.ImageFolder(tmp_path, transforms.Compose([transforms.Resize((9, 12)), np.asarray]))[0][0]
    assert np.abs(resized.astype(int) - np.asarray(theirs.resize((12, 9), Image.Resampling.BILINEAR))).mean() < 1


def test_empty_classes_are_named(root, tmp_path):
    for name in ("full", "bare", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "a.jpg").write_bytes(jpeg(small()[0]))
    (tmp_path / "bare" / "a.txt").write_text("no image")
    with pytest.raises(FileNotFoundError, match=r"no images .*bare, .*empty; add some"):
        datasets.ImageFolder(tmp_path)
    folder = datasets.ImageFolder(tmp_path, allow_empty=True)
    assert (folder.classes, folder.targets) == (["bare", "empty", "full"], [2])
    with pytest.raises(FileNotFoundError, match="has no folders"):
        datasets.ImageFolder(tmp_path / "empty")


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"not an image", jpeg(small()[0])[:5000]])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, content):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "broken.jpg").write_bytes(content)
    for transform in (None, random_pipeline(), transforms.Resize(8)):
        with pytest.raises(UnreadableImageError, match=r"one/broken.jpg is not an image, or is damaged"):
            datasets.ImageFolder(tmp_path, transform)[0]
    with pytest.raises(UnreadableImageError, match=r"broken.jpg"):
        datasets.ImageFolder(tmp_path, loader=by_pillow)[0]


def test_a_damaged_file_is_named_when_a_worker_meets_it(damaged):
    loader = DataLoader(datasets.ImageFolder(damaged, transforms.PILToTensor()), num_workers=1)
    with pytest.raises(UnreadableImageError, match=r"all/1.jpg is not an image, or is damaged"):
        list(loader)


def test_a_file_that_others_read_with_a_warning_is_read(tmp_path):
    (tmp_path / "one").mkdir()
    whole = jpeg(small()[0])
    scan = whole.index(b"\xff\xda")
    (tmp_path / "one" / "odd.jpg").write_bytes(whole[:scan] + b"\x00\x00\x00" + whole[scan:])
    theirs = Image.open(tmp_path / "one" / "odd.jpg").convert("RGB")
    assert np.array_equal(datasets.ImageFolder(tmp_path)[0][0], theirs)


def test_skipping_takes_the_next_good_sample_and_counts(damaged):
    def names(path):
        by_pillow(path)
        return path[-5]

    folder = datasets.ImageFolder(damaged, loader=names, on_error="skip")
    with pytest.warns(UserWarning, match=r"skipped: .*1.jpg"):
        seen = [folder[index][0] for index in range(6)]
    assert seen == ["0", "3", "3", "3", "4", "0"]
    assert folder.skipped == 3
    assert [path[-5:] for path in folder.skipped_files] == ["1.jpg", "2.jpg", "5.jpg"]


@pytest.mark.filterwarnings("ignore:skipped")
@pytest.mark.parametrize("workers", WITH_WORKERS)
def test_what_loading_workers_skip_is_counted_here(damaged, workers):
    folder = datasets.ImageFolder(damaged, transforms.PILToTensor(), on_error="skip")
    assert sum(len(images) for images, _ in DataLoader(folder, batch_size=1, num_workers=workers)) == 6
    assert folder.skipped == 3


@pytest.mark.filterwarnings("ignore:skipped")
def test_nothing_but_damaged_files_is_an_error(damaged):
    folder = Subset(datasets.ImageFolder(damaged, on_error="skip"), [1])
    folder.dataset.samples = [folder.dataset.samples[number] for number in (1, 2, 5)]
    with pytest.raises(UnreadableImageError, match="none of the 3 files"):
        folder[0]


def epochs(folder, workers, count=3, before_epoch=lambda epoch: None, **options):
    """All images of some epochs, each in an order of its own, put back in the order of the samples."""
    if workers:
        options = {"persistent_workers": True, **options}
    order = torch.Generator().manual_seed(1)
    numbered = Numbered(folder)
    loader = DataLoader(numbered, batch_size=3, shuffle=True, generator=order, num_workers=workers, **options)
    answers = []
    for epoch in range(count):
        before_epoch(epoch)
        batches = [(images, numbers) for images, numbers in loader]
        images, numbers = (torch.cat(part) for part in zip(*batches, strict=True))
        answers.append(images[numbers.argsort()])
    return torch.stack(answers)


class Numbered(torch.utils.data.Dataset):
    """The images of a data set with their numbers."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index][0], index


@pytest.mark.parametrize("options", [{}, {"persistent_workers": False}], ids=["staying", "new"])
def test_any_number_of_workers_gives_the_same_images_which_differ_in_every_epoch(root, options):
    answers = []
    for workers in WITH_WORKERS:
        folder = datasets.ImageFolder(root, random_pipeline(), seed=5)
        answers.append(epochs(folder, workers, **(options if workers else {})))
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])
    first, second, third = answers[0]
    for sample in range(len(first)):
        assert not torch.equal(first[sample], second[sample])
        assert not torch.equal(second[sample], third[sample])


@pytest.mark.slow
def test_a_spawned_worker_gives_the_same_images_too(root):
    alone = epochs(datasets.ImageFolder(root, random_pipeline(), seed=5), 0, count=2)
    folder = datasets.ImageFolder(root, random_pipeline(), seed=5)
    assert torch.equal(alone, epochs(folder, 1, count=2, multiprocessing_context="spawn"))


@pytest.mark.parametrize("workers", WITH_WORKERS)
def test_an_epoch_that_is_set_is_the_same_in_every_run(root, workers):
    whole = epochs(datasets.ImageFolder(root, random_pipeline(), seed=5), 0)
    folder = datasets.ImageFolder(root, random_pipeline(), seed=5)
    resumed = epochs(folder, workers, count=2, before_epoch=lambda epoch: folder.set_epoch(epoch + 1))
    assert torch.equal(resumed, whole[1:])
    with pytest.raises(ValueError, match="must not be negative"):
        folder.set_epoch(-1)


def test_another_seed_gives_other_images_and_torchs_is_the_usual_one(root):
    first, second = (datasets.ImageFolder(root, random_pipeline(), seed=seed)[0][0] for seed in (1, 2))
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(datasets.ImageFolder(root, random_pipeline())[0][0], first)


def test_transforms_of_others_draw_from_the_sample_too(root):
    def noise(image):
        return torch.rand(2), np.random.rand(2), transforms.RandomCrop(9)(image).size

    torch.manual_seed(0)
    folder = datasets.ImageFolder(root, transforms.Compose([transforms.Resize(9), noise]), seed=5)
    again = datasets.ImageFolder(root, transforms.Compose([transforms.Resize(9), noise]), seed=5)
    state = torch.random.get_rng_state()
    first, second = folder[0][0], folder[1][0]
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random numbers are the caller's"
    torch.rand(10)
    assert torch.equal(again[1][0][0], second[0])
    assert np.array_equal(again[0][0][1], first[1])
    assert not torch.equal(first[0], second[0])


def test_a_target_transform_of_others_draws_from_the_sample_too(root):
    def noise(target):
        return target, torch.rand(1).item(), np.random.rand(), random.random()

    folder = datasets.ImageFolder(root, random_pipeline(), noise, seed=5)
    again = datasets.ImageFolder(root, random_pipeline(), noise, seed=5)
    states = torch.random.get_rng_state(), np.random.get_state()[1], random.getstate()
    first, second = folder[0][1], folder[1][1]
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]
    assert (again[1][1], again[0][1]) == (second, first)
    assert not set(first[1:]) & set(second[1:])


def test_loading_leaves_the_callers_random_numbers_alone(root):
    folder = datasets.ImageFolder(root, random_pipeline(), seed=5)
    state = torch.random.get_rng_state()
    folder[0]
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_copy_goes_on_where_the_original_was(root):
    folder = datasets.ImageFolder(root, random_pipeline(), seed=5)
    folder[0]
    copy = pickle.loads(pickle.dumps(folder))
    assert torch.equal(copy[0][0], folder[0][0])
    copy.set_epoch(0)
    assert not torch.equal(copy[0][0], folder[0][0])


def test_a_file_and_the_picture_in_it_give_the_same(root):
    path = datasets.ImageFolder(root).samples[0][0]
    transform = random_pipeline()
    folder = datasets.ImageFolder(root, transform, seed=5, loader=by_pillow)
    torch.testing.assert_close(folder[0][0], datasets.ImageFolder(root, transform, seed=5)[0][0], atol=0.05, rtol=0)
    assert path.endswith("cat/0.jpg")


def test_a_wish_for_errors_that_nobody_knows_is_refused(root):
    with pytest.raises(ValueError, match='on_error is "raise" or "skip", but got \'ignore\''):
        datasets.ImageFolder(root, on_error="ignore")
