"""Where `--out` writes: a whole file or none, and nothing in the place of what is no file."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvforensics.errors import UsageFault
from kvforensics.output_file import check_writable, write_whole

ROOT = Path(__file__).resolve().parents[2]
WRITES = "import sys; from pathlib import Path; from kvforensics.output_file import *; p = Path(sys.argv[1]); "
WRITES += "check_writable(p); write_whole(p, 'new')"


def test_a_link_stays_a_link(tmp_path):
    """The file that it leads to is the one that is replaced."""
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("there/target")
    check_writable(link)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    assert list(target.parent.iterdir()) == [target]


def test_a_pipe_is_written_to(tmp_path):
    """And is a pipe afterwards."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    write_whole(pipe, "new")
    assert os.read(reader, 99) == b"new\n"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_file_is_gone_on_with(tmp_path, name):
    """`>> FILE` with `--out /dev/stdout` keeps what the file held, and the name stays the system's."""
    if not Path(name).exists():
        pytest.skip(f"no {name} here")
    before = Path(name).readlink() if name == "/dev/stdout" else None
    (tmp_path / "log").write_text("old\n")
    with (tmp_path / "log").open("a") as log:
        subprocess.run([sys.executable, "-c", WRITES, name], cwd=ROOT, stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "old\nnew\n"
    assert before is None or Path(name).readlink() == before


def test_a_device_that_is_full_is_one_error():
    """The device is there afterwards."""
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("no /dev/full here")
    check_writable(full)
    with pytest.raises(UsageFault, match="No space left"):
        write_whole(full, "new")
    assert full.is_char_device()


@pytest.mark.parametrize("name", ["/proc/answer.json", "/sys/answer.json", "/nowhere/answer.json", "/"])
def test_what_cannot_be_written_is_refused_before_anything_is_begun(name):
    """Whatever the permissions say: root may write everywhere, it seems."""
    if not Path(name).parent.is_dir() and "nowhere" not in name:
        pytest.skip(f"no {name} here")
    with pytest.raises(UsageFault, match="--out"):
        check_writable(Path(name))
