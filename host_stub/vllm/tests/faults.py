"""Fault points of the loaded library (extension kvc.test/1)."""

import ctypes

from kvc_vllm import lib

NAME = b"kvc.test/1"


class _TestApi(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
        ("set_fault", ctypes.CFUNCTYPE(ctypes.c_int32, lib.TYPES["bytes"], ctypes.c_uint64)),
        ("clear_faults", ctypes.CFUNCTYPE(None)),
        ("tripped", ctypes.CFUNCTYPE(ctypes.c_int32)),
    ]


class Faults:
    def __init__(self, library: str) -> None:
        api = lib.make("plugin_api")
        entry = ctypes.CDLL(library).kvc_plugin_entry_v1
        entry.argtypes = (ctypes.c_uint32, ctypes.c_void_p)
        assert entry(lib.MINOR, ctypes.addressof(api)) == 0
        extension = ctypes.CFUNCTYPE(ctypes.c_void_p, lib.TYPES["bytes"])(api.extension)
        address = extension(lib.bytes_of(NAME))
        assert address, f"{library} has no fault points: use the dev preset"
        self._api = _TestApi.from_address(address)

    def arm(self, point: str, countdown: int = 0) -> None:
        assert self._api.set_fault(lib.bytes_of(point.encode()), countdown) == 0

    def clear(self) -> None:
        self._api.clear_faults()

    def tripped(self) -> bool:
        return self._api.tripped() == 1
