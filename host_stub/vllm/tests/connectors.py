"""Which connector a library is."""

import os
from pathlib import Path


def connector_kind(library: str) -> str:
    """The word for it in its options; behind the layer it is the next library's."""
    path = os.environ["KVC_LAYER_NEXT"] if "libkvc_validate" in library else library
    return Path(path).stem.removeprefix("libkvc_")
