"""Walking nested structures, and calling functions that make things."""

from collections import namedtuple

import pytest

from seamline.core import creator, rng, tree

Point = namedtuple("Point", "x y")


def test_structure_is_kept():
    value = {"a": [1, (2, None)], "p": Point(3, 4)}
    assert tree.map_leaves(lambda leaf: leaf * 10, value) == {"a": [10, (20, None)], "p": Point(30, 40)}
    assert list(tree.leaves(value)) == [1, 2, 3, 4]
    assert [name for name, _ in tree.paths(value, "x")] == ["x['a'][0]", "x['a'][1][0]", "x['p'][0]", "x['p'][1]"]
    assert tree.zip_leaves(sum, [value, value]) == {"a": [2, (4, None)], "p": Point(6, 8)}


def test_creators_get_the_arguments_that_they_want():
    assert creator.call(lambda: "none", 1, 2) == "none"
    assert creator.call(lambda model: model, 1, 2) == 1
    assert creator.call(lambda model, config: (model, config), 1, 2) == (1, 2)
    assert creator.call(lambda config=None: config, {"lr": 1}) == {"lr": 1}
    assert creator.call(lambda width=3: width, {"lr": 1}) == 3
    with pytest.raises(TypeError, match="needs 3 arguments, but a creator function gets 2 at most"):
        creator.call(lambda a, b, c: 0, 1, 2)


def test_derived_seeds_differ_and_repeat():
    seeds = {rng.derive(seed, step, rank) for seed in range(3) for step in range(50) for rank in range(4)}
    assert len(seeds) == 3 * 50 * 4
    assert rng.derive(1, 2, 3) == rng.derive(1, 2, 3)
    assert all(0 <= seed < 2**64 for seed in seeds)
