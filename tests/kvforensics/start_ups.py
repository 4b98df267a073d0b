"""A start-up with round figures, for tests that change one of them."""

from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import Captures, Rank
from tests.render.truth import Truth


def rank(**terms):
    numbers = {
        "total_memory": 80 * GIB,
        "initial_free_memory": 79 * GIB,
        "model_memory": 15 * GIB,
        "torch_peak_increase": 2 * GIB,
        "non_torch_increase": 256 * MIB,
        "bytes_per_block": 917504,
        "total_consumed": 15 * GIB + 512 * MIB,
        "transient_peak_headroom": 2 * GIB,
        "captures": Captures(100 * MIB, 10 * MIB, 200 * MIB, 2 * MIB),
    }
    return Rank(**(numbers | terms))


def start(version="0.19.0", u=0.9, **options):
    """A start-up of Qwen2.5-7B, whose block the catalogue knows; of one `rank`, or of `ranks`."""
    return Truth(version, options.pop("ranks", None) or (options.pop("rank", rank()),), u, **options)
