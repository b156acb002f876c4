"""Transforms with torchvision's names, arguments and meaning; ``functional`` has the functions they stand on."""

from seamline.nano.torch.vision.resampling import InterpolationMode
from seamline.nano.torch.vision.transforms import functional
from seamline.nano.torch.vision.transforms.augment import (
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TrivialAugmentWide,
)
from seamline.nano.torch.vision.transforms.color import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from seamline.nano.torch.vision.transforms.compose import Compose, Lambda, RandomApply, RandomChoice, RandomOrder
from seamline.nano.torch.vision.transforms.conversion import (
    Normalize,
    NormalizeBatch,
    PILToTensor,
    ToPILImage,
    ToTensor,
)
from seamline.nano.torch.vision.transforms.erasing import RandomErasing
from seamline.nano.torch.vision.transforms.geometry import (
    CenterCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
)
from seamline.nano.torch.vision.transforms.resize import Resize
from seamline.nano.torch.vision.transforms.transform import is_deterministic

__all__ = [
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "GaussianBlur",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "NormalizeBatch",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ToPILImage",
    "ToTensor",
    "TrivialAugmentWide",
    "functional",
    "is_deterministic",
]
