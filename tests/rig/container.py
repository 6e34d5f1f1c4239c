"""An OCI image as a container in a namespace: unpacked by umoci, run by crun."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rig.net import Namespace, run, wait_until

USER = 10001
#: crun, with a view of control groups in which it finds one kind of them: it refuses a host that has both.
CRUN = (
    *("unshare", "--mount", "sh", "-c"),
    'mount -t cgroup2 none /sys/fs/cgroup && exec crun --cgroup-manager=disabled "$@"',
    "crun",
)


@dataclass
class Container:
    """A container with a name of its own, and no user but the image's."""

    space: Namespace
    folder: Path
    name: str
    capabilities: tuple[str, ...]
    process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / f"{self.name}.log"

    def unpack(self, image: str, config: str) -> None:
        """Unpack an image; give it a configuration, the namespace, and what Kubernetes gives a container."""
        bundle = self.folder / "bundle"
        run("umoci", "unpack", "--image", image, str(bundle))
        (bundle / "rootfs/etc/kaido/kaido.toml").write_text(config)
        file = bundle / "config.json"
        spec = json.loads(file.read_text())
        process = spec["process"]
        process["terminal"] = False
        # What Docker and Kubernetes give a container whose user is not root.
        none: list[str] = []
        process["capabilities"] = dict.fromkeys(("effective", "permitted", "inheritable", "ambient"), none)
        process["capabilities"]["bounding"] = [f"CAP_{name}" for name in self.capabilities]
        process["noNewPrivileges"] = False
        process["rlimits"] = []
        spec["root"]["readonly"] = True
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"]
        for mount in spec["mounts"]:
            if mount["destination"] in ("/run/kaido", "/var/lib/kaido"):
                mount["options"] += [f"uid={USER}", f"gid={USER}", "mode=0755"]
        for namespace in spec["linux"]["namespaces"]:
            if namespace["type"] == "network":
                namespace["path"] = f"/run/netns/{self.space.name}"
        file.write_text(json.dumps(spec))

    def start(self) -> None:
        """Run it until it is stopped."""
        bundle = str(self.folder / "bundle")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*CRUN, "run", "--bundle", bundle, self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program once more inside."""
        command = ("exec", "--user", f"{USER}:{USER}", self.name, "/usr/bin/kaido", *arguments)
        return run(*CRUN, *command, check=False)

    def wait(self) -> None:
        """Wait until the node inside answers."""
        assert self.process is not None
        process = self.process
        wait_until(
            lambda: process.poll() is not None or self.ask("status").returncode == 0,
            "the node in the container does not answer",
        )
        assert process.poll() is None, self.log.read_text()

    def stop(self) -> int:
        """Stop it as Kubernetes does; its exit status."""
        assert self.process is not None
        run(*CRUN, "kill", self.name, "TERM")
        return self.process.wait(timeout=60)

    def remove(self) -> None:
        """End what is left of it."""
        if self.process is not None and self.process.poll() is None:
            run(*CRUN, "kill", self.name, "KILL", check=False)
            self.process.wait(timeout=30)
        run(*CRUN, "delete", "--force", self.name, check=False)
