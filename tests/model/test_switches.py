"""What the agent tells of torch's switches, which are of all threads."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from probing.agent.sources.torch_switches import switches
from tests.harness.fake_cuda import FakeCuda

torch: Any = pytest.importorskip("torch")


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_what_torch_compile_switches_on_while_it_traces_is_no_setting() -> None:
    """Anomaly detection without its check is the compiler's; with it, it is the script's."""
    importlib.import_module("torch._dynamo.convert_frame")
    found = {}
    for name, check in (("compiler", False), ("script", True)):
        with torch.autograd.detect_anomaly(check_nan=check):
            found[name] = switches()["anomaly_detection"]
    assert found == {"compiler": "False", "script": "True"}
    assert switches()["anomaly_detection"] == "False"


def test_to_ask_for_switches_begins_to_use_no_device() -> None:
    """The version of cuDNN does: a child that is forked later could use no device any more."""
    from tests.harness.fake_torch import installed

    with installed(FakeCuda()) as cuda:
        assert "cudnn" not in switches()
        assert not cuda.is_on
        cuda.start()
        assert switches()["cudnn"] == "91900"
