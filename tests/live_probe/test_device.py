"""CudaDevice without a GPU: only that each name of the protocol reaches the right name of torch and NVML."""

import sys
import types
from unittest import mock

import pytest
import torch

from live_probe.device import AllocatorStats, CudaDevice, DeviceMemoryError, MemoryInfo
from live_probe.measurement import DeviceProcess, Snapshot, Unread
from live_probe.nvml import compute_processes, driver_version
from live_probe.proc import available_ram


@pytest.fixture
def cuda(monkeypatch):
    """A torch.cuda that answers with recognisable numbers."""
    fake = mock.MagicMock()
    fake.is_available.return_value = True
    fake.device_count.return_value = 2
    fake.get_device_properties.return_value = types.SimpleNamespace(
        name="Card X", is_integrated=0, uuid="abc", multi_processor_count=132
    )
    fake.mem_get_info.return_value = (11, 99)
    fake.memory_stats.return_value = {
        "allocated_bytes.all.current": 1,
        "allocated_bytes.all.peak": 2,
        "reserved_bytes.all.current": 3,
        "reserved_bytes.all.peak": 4,
    }
    fake.get_allocator_backend.return_value = "native"
    fake.OutOfMemoryError = torch.cuda.OutOfMemoryError
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


def test_memory_and_stats_are_read_for_the_chosen_card(cuda):
    """mem_get_info, memory_stats."""
    device = CudaDevice(1)
    assert (device.name, device.multiprocessors) == ("Card X", 132)
    assert device.memory() == MemoryInfo(free=11, total=99)
    assert device.stats() == AllocatorStats(allocated=1, reserved=3, allocated_peak=2, reserved_peak=4)
    cuda.mem_get_info.assert_called_with(1)
    cuda.memory_stats.assert_called_with(1)


def test_an_empty_allocator_has_no_counters_yet(cuda):
    """torch gives an empty dict before the first allocation."""
    cuda.memory_stats.return_value = {}
    assert CudaDevice().stats() == AllocatorStats(0, 0, 0, 0)


def test_reset_empty_and_synchronise_reach_torch(cuda):
    """The three commands."""
    device = CudaDevice(1)
    device.reset_peak()
    device.empty_cache()
    device.synchronize()
    cuda.reset_peak_memory_stats.assert_called_once_with(1)
    cuda.empty_cache.assert_called_once_with()
    cuda.synchronize.assert_called_once_with(1)


def test_a_shared_memory_device_reports_available_ram(cuda, monkeypatch):
    """UMA: cudaMemGetInfo under-reports what the system can give."""
    cuda.get_device_properties.return_value = types.SimpleNamespace(
        name="GB10", is_integrated=1, multi_processor_count=48
    )
    monkeypatch.setattr("live_probe.device.available_ram", lambda: 77)
    assert CudaDevice().memory() == MemoryInfo(free=77, total=99)


def test_available_ram_is_memavailable_in_bytes(tmp_path):
    """/proc/meminfo counts KiB."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 10 kB\nMemAvailable:    4 kB\n")
    assert available_ram(tmp_path) == 4096
    meminfo.write_text("MemTotal: 10 kB\n")
    with pytest.raises(LookupError, match="MemAvailable"):
        available_ram(tmp_path)


def test_the_split_limit_is_added_to_the_settings_and_taken_back(cuda, monkeypatch):
    """The setter resets whatever it is not told again, so the old options are repeated."""
    calls = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", calls.append)
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: "backend:native,")
    with pytest.raises(KeyError), CudaDevice().split_limit(20):
        raise KeyError
    assert calls == ["backend:native,max_split_size_mb:20", "backend:native,"]


def test_a_foreign_allocator_is_left_alone(cuda, monkeypatch):
    """cudaMallocAsync has no such option."""
    cuda.get_allocator_backend.return_value = "cudaMallocAsync"
    calls = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", calls.append)
    with CudaDevice().split_limit(20):
        pass
    assert calls == []


def test_an_older_torch_gets_its_settings_from_the_environment(cuda, monkeypatch):
    """2.10 and 2.11 have no getter; the general name goes first, and a torch that has no setter says so."""
    calls = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", calls.append, raising=False)
    monkeypatch.delattr(torch._C, "_accelerator_getAllocatorSettings", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "old:1")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "roundup_power2_divisions:8")
    with CudaDevice().split_limit(20) as limited:
        assert limited
    assert calls == ["roundup_power2_divisions:8,max_split_size_mb:20", "roundup_power2_divisions:8"]
    monkeypatch.delattr(torch._C, "_accelerator_setAllocatorSettings")
    with CudaDevice().split_limit(20) as limited:
        assert not limited


def test_torch_out_of_memory_becomes_ours(cuda):
    """One line, with the cause kept."""
    with pytest.raises(DeviceMemoryError, match=r"first line$") as caught, CudaDevice().running():
        raise torch.cuda.OutOfMemoryError("first line\nsecond")
    assert isinstance(caught.value.__cause__, torch.cuda.OutOfMemoryError)


def test_graphs_are_captured_into_one_pool(cuda):
    """graph_pool_handle once, then one CUDAGraph per capture."""
    cuda.graph_pool_handle.return_value = "pool"
    ran = []
    pool = CudaDevice().graph_pool()
    pool.capture(lambda: ran.append(1))
    pool.capture(lambda: ran.append(2))
    pool.release()
    assert ran == [1, 2]
    assert cuda.graph_pool_handle.call_count == 1
    assert [call.kwargs["pool"] for call in cuda.graph.call_args_list] == ["pool", "pool"]


def test_a_missing_card_is_refused_with_a_way_out(cuda):
    """No device 2 of 2."""
    with pytest.raises(LookupError, match="sim:"):
        CudaDevice(2)


@pytest.fixture
def nvml(monkeypatch):
    """An NVML binding with two processes, one of hidden size."""
    fake = types.ModuleType("pynvml")
    fake.NVMLError = type("NVMLError", (Exception,), {})
    fake.closed = 0
    fake.nvmlInit = lambda: None
    fake.nvmlShutdown = lambda: setattr(fake, "closed", fake.closed + 1)
    fake.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    fake.nvmlSystemGetDriverVersion = lambda: b"550.1"
    fake.nvmlDeviceGetComputeRunningProcesses = lambda handle: [
        types.SimpleNamespace(pid=7, usedGpuMemory=5),
        types.SimpleNamespace(pid=8, usedGpuMemory=None),
    ]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_processes_come_from_nvml_with_reasons_for_hidden_sizes(cuda, nvml):
    """usedGpuMemory is None on WSL and MIG."""
    seen, hidden = CudaDevice().processes()
    assert seen == DeviceProcess(7, 5)
    assert isinstance(hidden.used, Unread)
    assert driver_version() == "550.1"
    assert nvml.closed == 2


def test_nvml_errors_and_absence_are_reasons_not_numbers(nvml, monkeypatch):
    """No exception leaves the module, NVML is shut down all the same."""

    def refuse(_uuid):
        raise nvml.NVMLError("not permitted")

    nvml.nvmlDeviceGetHandleByUUID = refuse
    assert compute_processes("GPU-abc") == Unread("NVML: not permitted")
    assert nvml.closed == 1
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert isinstance(compute_processes("GPU-abc"), Unread)
    assert isinstance(driver_version(), Unread)


def test_a_snapshot_becomes_a_json_row():
    """Every field by its name, seconds to the millisecond; non-torch memory is what is left over."""
    snapshot = Snapshot("load_model", "after", "rank 0", 40, 100, 10, 20, 15, 1.23456)
    assert snapshot.row() == {
        "step": "load_model", "when": "after", "rank": "rank 0", "free": 40, "total": 100, "allocated": 10, "reserved": 20,
        "peak": 15, "seconds": 1.235,
    }  # fmt: skip
    assert snapshot.non_torch == 40
