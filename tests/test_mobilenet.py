"""Chapter 4's MobileNet with trained weights: downloaded, not to be had, damaged. No test asks the network."""

from __future__ import annotations

from pathlib import Path
from socket import gaierror
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest

from autograder import reference
from autograder.chapters import text_sources
from underhood.engines import available

torch = pytest.importorskip("torch", reason="torch is not installed, so there is no MobileNet")
pytest.importorskip("torchvision", reason="torchvision is not installed, so there is no MobileNet")
if "x86" not in available():
    pytest.skip("this build of torch has no x86 engine, so there is no quantized MobileNet", allow_module_level=True)

from underhood import mobilenet  # noqa: E402 - it imports torch

CHAPTER = "04_quantization"
NAME = "mobilenet_v2-b0353104.pth"  # torchvision's


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch's cache of downloads, empty, on a machine without a network."""

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise URLError(gaierror(-3, "Temporary failure in name resolution"))

    monkeypatch.setattr(torch.hub, "urlopen", unreachable)
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def image() -> Any:
    rng = np.random.default_rng(3)
    return torch.from_numpy(rng.normal(size=(1, 3, 224, 224)).astype(np.float32))


@pytest.fixture(scope="module")
def downloaded(image: Any) -> dict[str, Any]:
    """What stands for the download: a float MobileNetV2 of another seed, its statistics taken from an image."""
    from torchvision.models import mobilenet_v2

    torch.manual_seed(77)
    model = mobilenet_v2(weights=None).train()
    with torch.no_grad():
        model(torch.cat([image, image.flip(3)]))
    return model.state_dict()


def test_without_a_network_one_sentence_says_so_and_the_weights_stay_random(cache, image, capsys):
    network = mobilenet.mobilenet_v2(image, pretrained=True)
    said = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("Downloading: ")]
    assert len(said) == 1 and "Temporary failure in name resolution" in said[0]
    assert "stay random. Next step: check the network, then run this cell again." in said[0]
    assert network.weights == "random"
    random = mobilenet.mobilenet_v2(image, pretrained=False)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), random.parameters(), strict=True))
    assert not list(cache.iterdir()), "half a download stays behind"


def test_a_wrong_file_is_no_download(cache, image, capsys, monkeypatch):
    class Headers(dict):
        def get_all(self, name: str) -> None:
            return None

    class Answer:
        """Anything but the weights: a login page of a wireless network."""

        def __init__(self) -> None:
            self.left = b"<html>Please log in</html>"

        def __enter__(self):
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def info(self):
            return Headers()

        def read(self, size: int) -> bytes:
            part, self.left = self.left, b""
            return part

    monkeypatch.setattr(torch.hub, "urlopen", lambda *args, **kwargs: Answer())
    assert mobilenet.mobilenet_v2(image, pretrained=True).weights == "random"
    out = capsys.readouterr().out
    assert "invalid hash value" in out and "Next step: check the network" in out


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 and no more"])
def test_a_damaged_file_in_the_cache_is_named(cache, image, capsys, content):
    (cache / NAME).write_bytes(content)
    assert mobilenet.mobilenet_v2(image, pretrained=True).weights == "random"
    assert f"Next step: delete {cache / NAME}, which is damaged" in capsys.readouterr().out


def test_downloaded_weights_are_the_networks(cache, image, downloaded, capsys):
    torch.save(downloaded, cache / NAME)
    network = mobilenet.mobilenet_v2(image, pretrained=True)
    assert network.weights == "trained on ImageNet" and "random" not in capsys.readouterr().out
    assert torch.equal(network.classifier[1].weight, downloaded["classifier.1.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("here", [True, False])
def test_the_notebooks_section_runs_to_its_end_with_the_switch_on(cache, downloaded, capsys, here):
    if here:
        torch.save(downloaded, cache / NAME)
    (source,) = text_sources(CHAPTER)
    cells = [cell.source for cell in reference.read(source).cells if cell.cell_type == "code"]
    start = next(i for i, cell in enumerate(cells) if cell.startswith("PRETRAINED = False"))
    stem = next(cell for cell in cells if cell.startswith("stem = "))
    names = reference.load(CHAPTER)
    ops = {name: names[name] for name in ("conv_acc", "requantize", "qadd", "avgpool")}
    namespace = names | {"OPS": ops, "NETWORK": ()}  # the reference needs no check before it runs
    section = [stem, cells[start].replace("PRETRAINED = False", "PRETRAINED = True"), *cells[start + 1 :]]
    for cell in section:
        exec(compile(cell, "<cell>", "exec"), namespace)
    out = capsys.readouterr().out
    assert out.count("weights: trained on ImageNet" if here else "weights: random") == 2
    assert out.count("Next step:") == (0 if here else 1)
    rates = namespace["rates"]
    assert set(rates) == {"8-bit activations", "7-bit activations"} and all(len(r) == 64 for r in rates.values())
    assert (
        min(rates["7-bit activations"]) > 0.9999
    )  # onednn, which x86 stands for on some CPUs, rounds in another order
