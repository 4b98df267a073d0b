"""The probe as a whole: records, sharing, repetition, and a process that is killed in mid-step."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kvforensics.probe_cache import cache_plans
from live_probe import run
from live_probe.journal import Journal, read_journal
from live_probe.launch import LaunchOptions
from live_probe.measurement import DeviceProcess, Unread
from live_probe.sequence import Watchers
from live_probe.shape import UnsupportedModelError
from live_probe.sharing import SharedDeviceError, Sharing, others_hold

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]


def probe(config, device, version, options, **more):
    """Go through the start with its cache planned."""
    return run.probe(config, device, version, options, cache_plans(config, version, options), **more)


def test_a_record_says_what_was_simulated(config, make_device, options):
    """Figures, snapshots, processes and where they come from."""
    record = probe(config, make_device(used=8), "0.33.0", options)
    assert record.outcome == "ready"
    assert record.environment.simulated
    assert any("simulated" in note for note in record.environment.notes)
    assert record.processes == (DeviceProcess(0, 8 * MIB),)
    assert record.value("num_blocks") > 0
    assert {row["when"] for row in (s.row() for s in record.snapshots)} == {"before", "after"}


def test_one_rank_of_several_is_said_to_be_alone(config, make_device, options):
    """Half of what is split, and a block of half the size."""
    whole, half = (
        probe(config, make_device(), "0.20.0", options._replace(tensor_parallel_size=ranks)) for ranks in (1, 2)
    )
    assert any("one rank of 2" in note for note in half.environment.notes)
    assert not any("one rank" in note for note in whole.environment.notes)
    assert half.value("bytes_per_block") * 2 == whole.value("bytes_per_block")
    shared = 512 * 32 * 2 + 5 * 512 + 2 * 4 * 512  # rope cache, norms, scalars of attention
    assert (half.value("model_memory") - shared) * 2 == whole.value("model_memory") - shared


def test_a_release_newer_than_the_sources_read_is_noted(config, make_device, options):
    """The sequence of the last known one is used, and said so."""
    notes = probe(config, make_device(), "0.40.0", options).environment.notes
    assert any("0.33.0" in note for note in notes)


def test_everything_is_heard_as_it_is_taken(config, make_device, options):
    """Snapshots and figures reach the watchers before the record does."""
    snapshots, figures = [], []
    record = probe(config, make_device(), "0.33.0", options, watchers=Watchers(snapshots.append, figures.append))
    assert tuple(snapshots) == record.snapshots
    assert {figure.name for figure in figures} == {figure.name for figure in record.measurements}


def test_a_shared_card_is_refused_unless_allowed(config, make_device, options):
    """By what others hold together."""
    small = options._replace(gpu_memory_utilization=0.2)
    with pytest.raises(SharedDeviceError, match="--share"):
        probe(config, make_device(1024, used=400), "0.33.0", small, sharing=Sharing(limit=300 * MIB))
    shared = make_device(1024, used=400)
    assert probe(config, shared, "0.33.0", small, sharing=Sharing(allowed=True)).outcome == "ready"


def test_others_are_counted_by_the_drivers_list_or_by_what_is_in_use(make_device):
    """This process is not one of the others; a hidden size makes the list useless."""
    device = make_device(1024, used=400)
    mine = DeviceProcess(os.getpid(), 300 * MIB)
    assert others_hold(device, (mine, DeviceProcess(1, 5 * MIB))) == 5 * MIB
    assert others_hold(device, ()) == 0
    assert others_hold(device, (mine, DeviceProcess(1, Unread("hidden")))) == 400 * MIB
    assert others_hold(device, Unread("no NVML")) == 400 * MIB


@pytest.mark.parametrize("own", [os.getpid(), 7, None])
def test_what_a_container_hides_counts_as_others(make_device, own):
    """Whether it lists this process, by a number of its own or the host's, or no one: 3 GiB are gone from the card."""
    device = make_device(8192, used=3 * 1024, context=512 * MIB)
    listed = () if own is None else (DeviceProcess(own, 512 * MIB),)
    assert 2048 * MIB < others_hold(device, listed) <= 3072 * MIB


def test_an_unknown_model_is_refused_before_anything_is_allocated(config, make_device):
    """The card is untouched."""
    device = make_device()
    with pytest.raises(UnsupportedModelError):
        run.probe({**config, "model_type": "mamba"}, device, "0.33.0", LaunchOptions(), ())
    assert device.stats().reserved_peak == 0


def test_a_simulated_card_repeats_itself_to_the_byte(config, make_device, options):
    """Two runs, each on a device of its own."""
    one, other = (probe(config, make_device(), "0.20.0", options, run=n) for n in range(2))
    assert (one.run, other.run) == (0, 1)
    assert one.measurements == other.measurements


def test_a_killed_process_leaves_its_ledger(config, tmp_path):
    """SIGKILL in every step: the figures so far, the step, and nobody left to wait for."""
    steps = ("init_device", "profile_run", "initialize_kv_cache")
    few = LaunchOptions(max_num_batched_tokens=256)
    plans = cache_plans(config, "0.33.0", few)
    script = textwrap.dedent(f"""
        import gc, os, signal
        from pathlib import Path
        from live_probe.cache_plan import CachePlan
        from live_probe.cards import parse_card
        from live_probe.journal import Journal
        from live_probe.launch import LaunchOptions
        from live_probe.run import environment, probe
        from live_probe.sequence import Watchers
        from live_probe.simulated import SimulatedDevice

        def start_and_die_in(step):
            device = SimulatedDevice.from_card(parse_card("sim:512MiB"))
            journal = Journal(Path({str(tmp_path)!r}) / f"{{step}}.jsonl")
            journal.write(environment(device, "0.33.0"))

            def hear(snapshot):
                journal.write(snapshot)
                if (snapshot.step, snapshot.when) == (step, "before"):
                    os.kill(os.getpid(), signal.SIGKILL)

            options = LaunchOptions(max_num_batched_tokens=256, max_num_seqs=16, cudagraph_capture_sizes=(1,))
            probe({config!r}, device, "0.33.0", options, {plans!r}, watchers=Watchers(hear, journal.write))

        gc.freeze()
        for step in {steps!r}:
            child = os.fork()
            if child == 0:
                start_and_die_in(step)
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    """)
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)
    for step in steps:
        record = read_journal(tmp_path / f"{step}.jsonl")
        assert record.failure is not None
        assert (record.failure.step, record.failure.kind, record.failure.total) == (step, "killed", 512 * MIB)
        known = {measurement.name for measurement in record.measurements}
        assert ("model_memory" in known) == (step != "init_device")
        assert ("num_blocks" in known) == (step == "initialize_kv_cache")


def test_a_journal_holds_what_the_record_holds(config, make_device, options, tmp_path):
    """The way over the disk loses nothing."""
    journal = Journal(tmp_path / "rank-0.jsonl")
    device = make_device()
    watchers = Watchers(journal.write, journal.write)
    record = probe(config, device, "0.33.0", options, watchers=watchers)
    journal.write(record.environment)
    read = read_journal(tmp_path / "rank-0.jsonl")
    assert set(read.measurements) == set(record.measurements)
    assert read.snapshots == record.snapshots
