"""kvc.h for Python: structs, the table of a library, one handle per role. Knows nothing of vLLM."""

import array
import contextlib
import ctypes
import pathlib
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

MINOR = 0
OK, MORE, LATER = 0, 1, 2
E_ARG, E_STATE, E_FULL, E_INTERNAL = -1, -2, -5, -127
NO_LIMIT = (1 << 64) - 1
JOB_LOAD = 1
HOST_RANK_VERDICTS, HOST_NO_DEVICE_CACHE = 4, 8
PEER_FAULT = 4

# Struct name without "kvc_" -> ctypes class; slot of kvc_plugin_api -> result and arguments.
TYPES: dict[str, Any] = {
    "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64, "status": ctypes.c_int32,
    "job": ctypes.c_uint64, "void": None,
}
SLOTS: dict[str, tuple[Any, ...]] = {}
_DECLARATION = re.compile(r"(?:const )?(?:kvc_)?(\w+) (\**)(\w+)(\[\w+\])?$")
_FUNCTION = re.compile(r"(?:const )?(?:kvc_)?(\w+) (\*?)\(\*(\w+)\)\((.*)\)")


def _type_of(declaration: str) -> tuple[str, Any]:
    kind, pointer, name, array_of = _DECLARATION.match(declaration).groups()
    found = ctypes.c_void_p if pointer else TYPES[kind]
    return name, found * 32 if array_of else found  # the only arrays are keys


def _read_header(text: str) -> None:
    """The structs of kvc.h: one declaration a statement, by the rules of that header."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for struct_name, body in re.findall(r"typedef struct kvc_(\w+) \{(.*?)\} kvc_\1;", text, re.S):
        fields = []
        for line in (" ".join(s.split()) for s in body.split(";")):
            if slot := _FUNCTION.match(line):
                kind, pointer, name, arguments = slot.groups()
                fields.append((name, ctypes.c_void_p))
                if struct_name == "plugin_api":
                    SLOTS[name] = (ctypes.c_void_p if pointer else TYPES[kind], *(
                        _type_of(a.strip())[1] for a in arguments.split(",")))
            elif line:
                fields.append(_type_of(line))
        TYPES[struct_name] = type("kvc_" + struct_name, (ctypes.Structure,), {"_fields_": fields})


_read_header(pathlib.Path(__file__).with_name("kvc_h").read_text(encoding="utf-8"))
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, TYPES["bytes"])


class KvcError(RuntimeError):
    """A kvc library refused something; the text is the library's own where there is one."""


def make(name: str, **fields: Any) -> Any:
    """A struct with struct_size set."""
    kind = TYPES[name]
    return kind(ctypes.sizeof(kind), **fields)


def bytes_of(data: bytes) -> Any:
    """kvc_bytes over `data`, which the caller keeps alive."""
    return TYPES["bytes"](ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))


def list_of(items: Any, count: int) -> Any:
    """kvc_list over the first `count` elements of a ctypes array."""
    kind = items._type_
    return TYPES["list"](ctypes.addressof(items), count, ctypes.sizeof(kind), 0)


def packed(data: bytes, stride: int) -> Any:
    """kvc_list over elements that lie in `data`."""
    return TYPES["list"](ctypes.cast(data, ctypes.c_void_p), len(data) // stride, stride, 0)


def elements(kind: str, items: Any) -> Iterator[Any]:
    """Copies of the elements of a kvc_list; what the library did not fill is 0."""
    size = min(items.stride, ctypes.sizeof(TYPES[kind]))
    for i in range(items.count):
        out = TYPES[kind]()
        ctypes.memmove(ctypes.addressof(out), items.data + i * items.stride, size)
        yield out


def words_of(data: int, count: int, stride: int) -> array.array:
    """The elements of a kvc_list as 64-bit words, in one copy; stride // 8 of them an element."""
    return array.array("q", ctypes.string_at(data, count * stride))


def block_ids(items: Any) -> array.array:
    """Block ids of a list of kvc_block."""
    return words_of(items.data, items.count, items.stride)[1 :: items.stride // 8]


def text_of(data: Any) -> str:
    return ctypes.string_at(data.data, data.size).decode("utf-8", "replace") if data.size else ""


class Library:
    """A loaded kvc library: every slot as a callable attribute. Threads: any."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            entry = ctypes.CDLL(path).kvc_plugin_entry_v1
        except (OSError, AttributeError) as e:
            raise KvcError(f"kvc library {path}: {e}") from e
        entry.argtypes, entry.restype = (ctypes.c_uint32, ctypes.c_void_p), ctypes.c_int32
        api = make("plugin_api")
        status = entry(MINOR, ctypes.addressof(api))
        if status < 0:
            raise KvcError(f"kvc library {path}: kvc_plugin_entry_v1 answered {status}")
        for name, signature in SLOTS.items():
            at = getattr(type(api), name).offset
            address = getattr(api, name) if at + 8 <= api.struct_size else None
            setattr(self, name, ctypes.CFUNCTYPE(*signature)(address) if address else None)


class Handle:
    """One role of a library. Threads: one caller at a time; log from any thread.

    Owns the handle and what the library may call or read until close.
    """

    def __init__(self, library: Library, role: str, opened: Any, caps: int, log: Callable) -> None:
        self.library, self.role = library, role
        errors: list[str] = []
        opening = True

        def on_log(_host: int, level: int, text: Any) -> None:
            with contextlib.suppress(Exception):  # never into the library
                if opening and level == 3:
                    errors.append(text_of(text))
                else:
                    log(level, text_of(text))

        self._log = _LOG(on_log)
        self._host = make("host_api", abi_minor=MINOR, caps=caps)
        self._host.log = ctypes.cast(self._log, ctypes.c_void_p).value
        out, opening_slot = ctypes.c_void_p(), getattr(library, "open_" + role)
        status = opening_slot(*map(ctypes.addressof, (self._host, opened, out)))
        opening = False
        if status < 0 or not out.value:
            why = "; ".join(errors) or "no text"
            raise KvcError(f"kvc library {library.path}: open_{role} answered {status}: {why}")
        self.address: int | None = out.value

    def call(self, slot: str, *given: Any) -> int:
        """The slot's status; ctypes objects go by address, numbers and kvc_bytes as they are."""
        by_value = (int, TYPES["bytes"])
        return getattr(self.library, slot)(
            self.address, *(g if isinstance(g, by_value) else ctypes.addressof(g) for g in given))

    def error(self) -> str:
        """Text of the last failed call of this handle."""
        text, needed = ctypes.create_string_buffer(2048), ctypes.c_uint64()
        status = self.call("last_error_" + self.role, text, len(text), needed)
        return text.raw[: needed.value].decode("utf-8", "replace") if status == OK else ""

    def check(self, slot: str, *given: Any) -> None:
        """As call; a negative status is a KvcError with the library's text."""
        if (status := self.call(slot, *given)) < 0:
            raise KvcError(f"kvc library {self.library.path}: {slot} answered {status}: "
                           + self.error())

    def close(self) -> None:
        """From its return the library touches no memory for this handle."""
        address, self.address = self.address, None
        if address is not None:
            getattr(self.library, "close_" + self.role)(address)


TABLE = struct.Struct("<IIQQQ")
HANDOFF = struct.Struct("<IIQqQ")
ALLOC_IN = struct.Struct("<IIQQQQII")
ALLOC_OUT = struct.Struct("<IIQQQIIQQII")
LOOKUP_IN = struct.Struct("<IIQQQQ")
LOOKUP_OUT = struct.Struct("<IIQiI")
