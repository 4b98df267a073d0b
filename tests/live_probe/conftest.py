"""A tiny decoder's config.json and simulated cards of any size."""

import gc

import pytest
import torch

from kvforensics.probe_cache import cache_plans
from live_probe.cards import EARLIER_WORKSPACE, Card
from live_probe.launch import LaunchOptions, resolve
from live_probe.sequence import StartUp, Watchers
from live_probe.shape import decoder_shape
from live_probe.simulated import SimulatedDevice
from tests.live_probe.tiny import TINY

MIB = 1 << 20


@pytest.fixture(autouse=True, scope="session")
def quick_torch():
    """Tensors this small need no thread pool, and collections need not walk all that was imported."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.ones(2, 2, device="meta").add(1).sort(dim=-1)  # torch imports its meta kernels on first use
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(before)


@pytest.fixture
def config():
    """A copy to change."""
    return dict(TINY)


@pytest.fixture
def options():
    """A small batch and few graphs."""
    return LaunchOptions(max_num_batched_tokens=256, max_num_seqs=16, cudagraph_capture_sizes=(16, 8, 1))


@pytest.fixture
def make_device():
    """A card of `mib` MiB with `used` MiB of others."""

    def make(mib=512, used=0, backing="meta", **fields):
        card = Card("test", mib * MIB, exact=True, context=0, libraries=0, blas_workspace=EARLIER_WORKSPACE)
        return SimulatedDevice(card._replace(**fields), used * MIB, backing)

    return make


@pytest.fixture
def start(config, options):
    """Run the sequence of a release on a device and give the result."""

    def run(device, version="0.33.0", config=config, options=options, on_snapshot=lambda _snapshot: None):
        shape = decoder_shape(config)
        plans = cache_plans(config, version, options)
        launch = resolve(options, version, shape, plans, device.name, device.memory().total)
        return StartUp(device, shape, launch, Watchers(on_snapshot=on_snapshot)).run()

    return run
