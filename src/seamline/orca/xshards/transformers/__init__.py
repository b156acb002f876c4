"""Columns made ready for a model: ``fit`` looks at all shards, ``transform`` changes each where it lies.

The names, the arithmetic and the learned attributes are scikit-learn's wherever it has the same thing.
"""

from seamline.orca.xshards.transformers.bucketizer import Bucketizer
from seamline.orca.xshards.transformers.categories import OneHot, StringIndexer
from seamline.orca.xshards.transformers.partial_fit import PartialFit
from seamline.orca.xshards.transformers.scalers import MinMaxScaler, StandardScaler

__all__ = ["Bucketizer", "MinMaxScaler", "OneHot", "PartialFit", "StandardScaler", "StringIndexer"]
