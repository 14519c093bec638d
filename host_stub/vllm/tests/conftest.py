"""Where the library, the models and the configuration of all tests come from."""

import os
import sys
from pathlib import Path

import pytest

for name, value in {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # collective_rpc of test functions
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # the models are tiny
    "TORCHDYNAMO_DISABLE": "1",  # nothing is worth compiling either
    "PYTHONFAULTHANDLER": "1",  # an aborted process says where it was (watch.py)
}.items():
    os.environ.setdefault(name, value)

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(scope="session")
def library() -> str:
    path = os.environ.get("KVC_LIBRARY", str(ROOT / "build/dev/lib/libkvc_simple_cpu.so"))
    assert Path(path).exists(), f"{path} is missing: ./dev test-vllm builds it"
    return path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("KVC_TEST_MODELS")
    return Path(given) if given else tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def config(library: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """KVC_TEST_LOAD_DEADLINE_MS: a test waits for it, in steps that a recording all holds."""
    from connectors import connector_kind

    path = tmp_path_factory.mktemp("config") / "kvc.toml"
    deadline = os.environ.get("KVC_TEST_LOAD_DEADLINE_MS", "1000")
    path.write_text(f'[connector]\nkind = "{connector_kind(library)}"\n'
                    f'load_deadline_ms = {deadline}\n\n[host]\nbytes = "256MiB"\n')
    return str(path)
