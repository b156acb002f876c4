"""Readers: files, wherever they lie, as shards on whichever engine is active."""

from seamline.orca.data.bad_rows import BadRowError, DroppedRowsWarning
from seamline.orca.data.column_types import MixedSchemasError
from seamline.orca.data.csv import read_csv
from seamline.orca.data.detection import VOC_CLASSES, read_coco, read_voc
from seamline.orca.data.images import read_images
from seamline.orca.data.json import read_json
from seamline.orca.data.parquet import read_parquet
from seamline.orca.data.parquet_dataset import FeatureType, ParquetDataset, SchemaField
from seamline.orca.data.pictures import DamagedFileError
from seamline.orca.data.tfrecord import read_tfrecord

__all__ = [
    "VOC_CLASSES",
    "BadRowError",
    "DamagedFileError",
    "DroppedRowsWarning",
    "FeatureType",
    "MixedSchemasError",
    "ParquetDataset",
    "SchemaField",
    "read_coco",
    "read_csv",
    "read_images",
    "read_json",
    "read_parquet",
    "read_tfrecord",
    "read_voc",
]
