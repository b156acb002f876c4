"""TFRecord files, against records that protobuf itself has written."""

import gzip
import importlib.util
import struct

import google_crc32c
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from seamline.core.errors import DataError, UnavailableError
from seamline.orca.data import DamagedFileError, read_tfrecord


def make_message():
    """tf.train.Example as TensorFlow defines it."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(name, *fields):
        added = file.message_type.add(name=name)
        for number, (field, kind, label, type_name) in enumerate(fields, 1):
            added.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
        return added

    one, many = types.LABEL_OPTIONAL, types.LABEL_REPEATED
    message("BytesList", ("value", types.TYPE_BYTES, many, None))
    message("FloatList", ("value", types.TYPE_FLOAT, many, None))
    message("Int64List", ("value", types.TYPE_INT64, many, None))
    lists = ("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")
    message("Feature", *((name, types.TYPE_MESSAGE, one, f".tensorflow.{kind}") for name, kind in lists))
    features = message("Features", ("feature", types.TYPE_MESSAGE, many, ".tensorflow.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=types.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=types.TYPE_MESSAGE, label=one, type_name=".tensorflow.Feature")
    message("Example", ("features", types.TYPE_MESSAGE, one, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example = make_message()


def encoded(number):
    example = Example()
    features = example.features.feature
    features["label"].int64_list.value.append(number - 5)
    features["numbers"].int64_list.value.extend([0, -1, 2**62, 300, -(2**63)])
    features["x"].float_list.value.extend([number / 2, -1.5, 3e38, 0])
    features["name"].bytes_list.value.append(f"größe {number}".encode())
    features["some"].float_list.value.extend([1.0] * number)
    features["nothing"].SetInParent()
    return example.SerializeToString()


def framed(data):
    def masked(part):
        crc = google_crc32c.value(part)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"".join(framed(encoded(number)) for number in range(10)))
    return tmp_path / "a.tfrecord"


FEATURES = {"label": (), "numbers": (5,), "x": (2, 2), "name": (), "some": None}


def test_records_become_arrays_of_the_shapes_that_were_named(path):
    shards = read_tfrecord(path, features=FEATURES, num_shards=3).collect()
    assert [len(shard["label"]) for shard in shards] == [4, 3, 3]
    label, x = (np.concatenate([shard[name] for shard in shards]) for name in ("label", "x"))
    assert label.dtype == np.int64
    assert label.tolist() == list(range(-5, 5))
    assert (x.dtype, x.shape) == (np.float32, (10, 2, 2))
    assert x[3].tolist() == [[1.5, -1.5], [np.float32(3e38), 0]]
    assert shards[0]["numbers"][2].tolist() == [0, -1, 2**62, 300, -(2**63)]
    assert shards[0]["name"].tolist()[1].decode() == "größe 1"
    assert [len(some) for some in shards[0]["some"]] == [0, 1, 2, 3]


def test_without_shapes_records_come_as_they_are(path):
    (records,) = read_tfrecord(path, num_shards=1).collect()
    assert len(records) == 10
    assert records[7]["name"] == ["größe 7".encode()]
    assert records[7]["some"].tolist() == [1.0] * 7
    assert records[7]["nothing"] == []


def test_compressed_files_and_empty_ones_are_read(path, tmp_path):
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "c.tfrecord").write_bytes(b"")
    shards = read_tfrecord(tmp_path, features={"label": ()}, num_shards=2).collect()
    assert sum(len(shard["label"]) for shard in shards) == 20
    (nothing,) = read_tfrecord(tmp_path / "c.tfrecord", features={"x": (2, 2)}, num_shards=1).collect()
    assert nothing["x"].shape == (0, 2, 2)


@pytest.mark.parametrize(("byte", "message"), [(2, "its length has another"), (30, "is damaged: its data has another")])
def test_a_changed_byte_is_found_by_its_checksum(path, byte, message):
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=rf"the record at byte 0 of .*a.tfrecord.*{message}"):
        read_tfrecord(path, num_shards=1).collect()


def test_a_file_that_is_cut_off_says_where(path):
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DamagedFileError, match=r"the record at byte \d+ of .*a.tfrecord is cut off"):
        read_tfrecord(path, verify=False).collect()


def test_what_a_record_lacks_is_named(path):
    with pytest.raises(DataError, match=r"a record has no feature 'y'; it has "):
        read_tfrecord(path, features={"y": ()}).collect()
    with pytest.raises(DataError, match=r"a record has 4 values of 'x', but shape \(3,\) takes 3"):
        read_tfrecord(path, features={"x": (3,)}).collect()
    path.write_bytes(framed(b"\x0a\xff"))
    with pytest.raises(DataError, match=r"a record is not a tf.train.Example"):
        read_tfrecord(path).collect()


def test_without_the_checksum_library_one_is_told_what_to_do(path, monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(
        "seamline.orca.data.tfrecord.find_spec", lambda name: None if name == "google_crc32c" else known(name)
    )
    with pytest.raises(UnavailableError, match=r'pip install "seamline\[tfrecord\]", or .* verify=False'):
        read_tfrecord(path)
    assert len(read_tfrecord(path, features={"label": ()}, verify=False, num_shards=1).collect()[0]["label"]) == 10
