"""The driver asked for its cards: no driver, no card."""

import ctypes

import pytest

from live_probe.driver import DriverRefusesError, cuda_device_count


def test_without_a_driver_there_is_no_card():
    assert cuda_device_count("libno-such-driver.so.1") == 0


def test_the_driver_is_asked_and_what_it_refuses_is_said(monkeypatch):
    """cuInit answers 100 where a driver has no device; a broken one is no missing one."""

    class Driver:
        def __init__(self, started):
            self.cuInit = lambda _flags: started

        def cuDeviceGetCount(self, count):
            count._obj.value = 3
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver(0))
    assert cuda_device_count() == 3
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver(100))
    assert cuda_device_count() == 0
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver(802))
    with pytest.raises(DriverRefusesError, match=r"\(error 802\)$"):
        cuda_device_count()
