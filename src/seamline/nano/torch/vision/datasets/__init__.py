"""Data sets with torchvision's names, arguments and attributes."""

from seamline.nano.torch.vision.datasets.folder import IMG_EXTENSIONS, ImageFolder

__all__ = ["IMG_EXTENSIONS", "ImageFolder"]
