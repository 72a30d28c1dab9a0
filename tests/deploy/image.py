"""Build the Dockerfile, step by step, on a machine without a container engine.

buildah runs each step in a scratch root (`chroot` isolation). The Dockerfile's base image is a Debian with Python that
mmdebstrap has created in a directory, so that no image registry is needed.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).parents[2]
BASE: Final = "localhost/base"
IMAGE: Final = "localhost/mcp-gateway"
SECONDS: Final = 900
"""The timeout of a command. Most steps of a build download packages."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class ImageBuilder:
    """Builds images in a directory, which can be removed afterwards."""

    buildah: str
    folder: Path

    def words(self, *words: str) -> list[str]:
        storage = [*("--root", str(self.folder / "storage")), *("--runroot", str(self.folder / "run"))]
        return [self.buildah, *storage, "--storage-driver", self._driver, *words]

    @cached_property
    def _driver(self) -> str:
        """Return the storage driver: overlay if the kernel supports it, otherwise vfs, which copies all files."""
        probed = ("--root", str(self.folder / "probe"), "--runroot", str(self.folder / "probe-run"))
        probe = [self.buildah, *probed, "--storage-driver", "overlay", "info"]
        done = subprocess.run(probe, env=ENVIRON, capture_output=True, timeout=SECONDS, check=False)
        return "vfs" if done.returncode else "overlay"

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.words(*words), env=ENVIRON, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"buildah {' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def make_base(self, root: Path) -> None:
        """Create an image from a directory, with this machine's package sources."""
        container = self.run("from", "scratch")
        # Takes a third of the time of `buildah add`, which computes a digest of each file.
        subprocess.run(["cp", "-a", f"{root}/.", self.run("mount", container)], timeout=SECONDS, check=True)
        self.run("umount", container)
        given = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PIP_")]
        self.run("config", *(word for pair in [f"PATH={_PATH}", *given] for word in ("--env", pair)), container)
        self.run("commit", "-q", container, BASE)

    def build(self) -> None:
        self.run("bud", "--format", "docker", "--build-arg", f"BASE_IMAGE={BASE}", "-t", IMAGE, str(PROJECT))

    def clear(self) -> None:
        """Remove all images and containers, mounted ones too."""
        subprocess.run(self.words("umount", "--all"), env=ENVIRON, capture_output=True, timeout=SECONDS, check=False)
        subprocess.run(["rm", "-rf", str(self.folder)], check=False, timeout=SECONDS)

    def facts(self) -> dict[str, Any]:
        """Return the configuration of the image: User, Cmd, Entrypoint, Healthcheck."""
        inspected = json.loads(self.run("inspect", "--type", "image", IMAGE))
        facts: dict[str, Any] = inspected["Docker"]["config"]
        return facts

    def container(self) -> str:
        return self.run("from", "--pull-never", IMAGE)

    def inside(self, container: str, command: Sequence[str], *options: str) -> list[str]:
        """Return the command line to run a command in a container, as its user."""
        return self.words("run", "--user", "10001:10001", *options, container, "--", *command)


ENVIRON: Final = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
