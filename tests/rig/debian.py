"""A bare Debian 12 whose systemd runs: process 1 of its own namespaces, in a network namespace of a test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from rig.net import Namespace, NetError, run, wait_until

#: What Kaido's package depends on beside the C library, and what runs and looks at a service.
PACKAGES = ("adduser", "iproute2", "libelf1", "systemd", "zlib1g")

#: `LimitMEMLOCK=` of a service holds only where systemd has this capability, which not every machine of a
#: test allows.
CAP_SYS_RESOURCE = 24

#: $1 is the folder of the machine, $2 its cgroup, $3 the bare system. What changes lies over that,
#: which stays. The cgroup is made before the namespaces, so that it is the root of what is seen inside.
BOOT = """
cd "$1"
mkdir -p changes work root cgroup
mount -t cgroup2 cgroup2 cgroup
mkdir cgroup/$2
echo $$ > cgroup/$2/cgroup.procs
mount -t overlay overlay -o "lowerdir=$3,upperdir=$PWD/changes,workdir=$PWD/work" root
exec unshare --mount --pid --fork --kill-child --uts --ipc --cgroup sh -ec '
mount -t proc proc root/proc
mount -t sysfs sysfs root/sys
mount -t cgroup2 cgroup2 root/sys/fs/cgroup
mount -t bpf -o nosuid,nodev,noexec,mode=700 bpf root/sys/fs/bpf
mount -t tmpfs -o mode=755 tmpfs root/run
mount -t tmpfs -o mode=755 tmpfs root/dev
mkdir root/dev/net root/dev/pts root/dev/shm
for device in null zero full random urandom tty net/tun; do
    touch root/dev/$device
    mount --bind /dev/$device root/dev/$device
done
mount -t tmpfs tmpfs root/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts root/dev/pts
ln -s pts/ptmx root/dev/ptmx
ln -s /proc/self/fd root/dev/fd
cd root
mkdir .before
pivot_root . .before
umount -l .before
exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system
'
"""


#: What a machine is made of, tried in the folder $1.
TRY = """
cd "$1"
mkdir lower changes work root
mount -t overlay overlay -o "lowerdir=$PWD/lower,upperdir=$PWD/changes,workdir=$PWD/work" root
mkdir cgroup
mount -t cgroup2 cgroup2 cgroup
mkdir cgroup/kaido-test-$$
rmdir cgroup/kaido-test-$$
"""


def what_is_missing(folder: Path) -> str | None:
    """Why this host cannot boot a machine with files in an empty folder: a container may be too narrow."""
    spaces = ("--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup")
    tried = run("unshare", *spaces, "sh", "-ec", TRY, "try", str(folder), check=False)
    return tried.stderr.strip() if tried.returncode != 0 else None


def make_bare(root: Path) -> None:
    """Make a system with nothing but what is essential and PACKAGES."""
    include = f"--include={','.join(PACKAGES)}"
    run("mmdebstrap", "--quiet", "--variant=apt", include, "bookworm", str(root), timeout=400)


class Debian:
    """A machine that has been booted."""

    def __init__(self, bare: Path, space: Namespace, folder: Path) -> None:
        """Boot a copy of a bare system; what changes goes into `folder`."""
        self.folder, self.cgroup = folder, f"kaido-test-{os.getpid()}"
        self.log = folder / "boot.log"
        boot = ("unshare", "--mount", "sh", "-ec", BOOT, "boot", str(folder), self.cgroup, str(bare))
        with self.log.open("w") as log:
            self.process = space.start(*boot, stdout=log, stderr=log)
        state = ("systemctl", "is-system-running")
        wait_until(
            lambda: self.ended() or self.run(*state, check=False).stdout.strip() in ("running", "degraded"),
            "systemd runs",
        )
        if self.ended():
            raise NetError(f"the machine has not booted: {self.log.read_text()}")

    def ended(self) -> bool:
        """Whether the machine has been switched off."""
        return self.process.poll() is not None

    def _inside(self) -> list[str]:
        """What is put before a command so that it runs inside."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) != 1:
            raise NetError("the machine has no process 1")
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--root", "--wd")
        environment = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive")
        return ["nsenter", "--target", children[0], *spaces, "env", "-i", *environment]

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root."""
        try:
            return run(*self._inside(), *command, check=check, timeout=300)
        except NetError:
            if check:
                raise
            return subprocess.CompletedProcess(command, 1, "", "the machine is not there")

    def shell(self, script: str, check: bool = True) -> str:
        """Run a script inside, and return what it printed."""
        return self.run("sh", "-ec", script, check=check).stdout

    def property(self, name: str) -> str:
        """What systemd says of the service."""
        return self.shell(f"systemctl show kaido --property={name} --value").strip()

    def files(self) -> set[str]:
        """What is there now, without what package management keeps for itself."""
        folders = "etc lib/systemd opt run usr var"
        found = self.shell(f"cd /; find {folders} -xdev -mindepth 1").splitlines()
        quiet = re.compile(
            r"^run/(adduser|log|systemd)|^var/(cache|log|tmp|lib/(apt|dpkg|systemd))|^usr/share/doc|-$|\.bak$"
        )
        return {name for name in found if not quiet.search(name)}

    def copy(self, file: Path) -> str:
        """Put a file inside, and say where it is there."""
        shutil.copy(file, self.folder / "changes" / "var" / file.name)
        return f"/var/{file.name}"

    def lift_memlock(self) -> None:
        """Have the service's `LimitMEMLOCK=infinity` hold where systemd may not raise limits."""
        capabilities = re.search(r"^CapEff:\s+(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
        if capabilities and int(capabilities.group(1), 16) >> CAP_SYS_RESOURCE & 1:
            return
        folder = "/etc/systemd/system/kaido.service.d"
        lines = r"[Service]\nAmbientCapabilities=CAP_IPC_LOCK\nCapabilityBoundingSet=CAP_IPC_LOCK\n"
        self.shell(f"mkdir -p {folder}; printf '{lines}' > {folder}/memlock.conf; systemctl daemon-reload")

    def switch_off(self) -> None:
        """End all that runs in it."""
        self.process.kill()
        self.process.wait()
        # The kernel has removed what was mounted. The cgroups are empty once the last process has gone.
        mounted = self.folder / "cgroup"
        script = (
            f'mount -t cgroup2 cgroup2 "$1"; for n in $(seq 100); do '
            f'find "$1/{self.cgroup}" -depth -type d -delete 2>/dev/null && exit; sleep 0.1; done'
        )
        run("unshare", "--mount", "sh", "-ec", script, "off", str(mounted))
