"""The Helm chart (deploy/helm): sound by Helm and by Kubernetes, and what it runs is what the image is."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from conftest import ROOT
from test_image import CAPABILITIES

CHART = ROOT / "deploy" / "helm" / "kaido"
EXAMPLES = sorted((ROOT / "deploy" / "helm" / "examples").glob("*.yaml"))
#: The oldest that the chart takes, one in between, and the newest that the validator knows.
VERSIONS = ("1.25.0", "1.31.0", kubernetes_validate.latest_version())
#: Those of operators, which Kubernetes has no schema of.
FOREIGN = {"NetworkAttachmentDefinition", "ServiceMonitor"}
#: The user of the image, and the folders that it writes to.
USER = 10001
RUN, STATE, CACHE = "/run/kaido", "/var/lib/kaido", "/var/cache/kaido"

CASES = [pytest.param((), id="default")] + [pytest.param((path,), id=path.stem) for path in EXAMPLES]


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm, which comes with Python's packages."""
    command = [str(Path(sys.executable).with_name("helm")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def rendered(values: tuple[Path, ...], *more: str) -> list[dict[str, Any]]:
    """What a release would be made of."""
    files = [argument for path in values for argument in ("--values", path)]
    made = helm("template", "upf", CHART, *files, *more)
    assert made.returncode == 0, made.stderr
    return [document for document in yaml.safe_load_all(made.stdout) if document]


def only(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one of a kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def pod(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod's template."""
    template: dict[str, Any] = only(documents, "StatefulSet")["spec"]["template"]
    return template


def attached(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The networks that Multus is asked for."""
    networks = pod(documents)["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
    found: list[dict[str, Any]] = json.loads(networks)
    return found


def config(documents: list[dict[str, Any]]) -> str:
    """The node's configuration."""
    text: str = only(documents, "ConfigMap")["data"]["kaido.toml"]
    return text


@pytest.mark.parametrize("values", CASES)
def test_helm_finds_no_fault(values: tuple[Path, ...]) -> None:
    """Not a warning either."""
    files = [argument for path in values for argument in ("--values", path)]
    linted = helm("lint", "--strict", CHART, *files)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize("values", CASES)
def test_kubernetes_takes_it(values: tuple[Path, ...]) -> None:
    """By the schemas of its API, where no property is that they do not know."""
    checked = 0
    for document in rendered(values):
        assert document["metadata"]["name"].startswith("upf-kaido")
        if document["kind"] in FOREIGN:
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
            checked += 1
    assert checked >= 3 * len(VERSIONS)


def test_a_property_that_is_none_is_found() -> None:
    """The validator sees what it is for."""
    broken = copy.deepcopy(only(rendered(()), "StatefulSet"))
    broken["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("values", CASES)
def test_the_node_takes_its_configuration(values: tuple[Path, ...], binary: Path, tmp_path: Path) -> None:
    """And has its ports on interfaces that the pod is given, its PFCP at an address of one of them."""
    documents = rendered(values)
    file = tmp_path / "kaido.toml"
    file.write_text(config(documents))
    checked = subprocess.run(
        [binary, "check", "-c", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stderr
    networks = attached(documents)
    node = tomllib.loads(config(documents))
    assert {port["interface"] for port in node["port"]} <= {network["interface"] for network in networks}
    own = {address.partition("/")[0] for network in networks for address in network.get("ips", [])}
    assert set(node.get("pfcp", {}).get("listen", [])) <= own
    (container,) = pod(documents)["spec"]["containers"]
    assert node["metrics"]["listen"] == f"0.0.0.0:{container['ports'][0]['containerPort']}"


@pytest.mark.parametrize("values", CASES)
def test_the_pod_is_what_the_image_needs(values: tuple[Path, ...]) -> None:
    """Its user, its capabilities and no more, the folders that it writes to, and time to stop."""
    documents = rendered(values)
    spec = pod(documents)["spec"]
    (container,) = spec["containers"]
    (check,) = spec["initContainers"]
    security = container["securityContext"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]) == (USER, USER)
    assert security["capabilities"] == {"drop": ["ALL"], "add": list(CAPABILITIES)}
    assert security["allowPrivilegeEscalation"] and security["readOnlyRootFilesystem"]
    assert check["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not check["securityContext"]["allowPrivilegeEscalation"]
    assert check["image"] == container["image"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert {RUN, STATE} <= mounts <= {RUN, STATE, CACHE}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (run,) = (mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == RUN)
    assert volumes[run]["emptyDir"]["medium"] == "Memory"
    service = (ROOT / "deploy" / "kaido.service").read_text()
    assert f"TimeoutStopSec={spec['terminationGracePeriodSeconds']}" in service.splitlines()
    startup = container["startupProbe"]
    seconds = startup["periodSeconds"] * startup["failureThreshold"]
    assert f"TimeoutStartSec={seconds}" in service.splitlines()


def test_networks_that_the_release_makes() -> None:
    """Virtual functions are asked for as often as they are attached; definitions are CNI configurations."""
    documents = rendered((ROOT / "deploy/helm/examples/sriov.yaml",))
    made = {doc["metadata"]["name"]: doc for doc in documents if doc["kind"] == "NetworkAttachmentDefinition"}
    assert {network["name"] for network in attached(documents)} == set(made)
    for name, definition in made.items():
        cni = json.loads(definition["spec"]["config"])
        assert cni["cniVersion"] and cni["type"] in {"sriov", "bridge"}, name
        # Addresses of the pod's are handed on to the plugin.
        assert cni["capabilities"] == {"ips": True}
    resources = pod(documents)["spec"]["containers"][0]["resources"]
    for of in (resources["requests"], resources["limits"]):
        assert (of["intel.com/sriov_n3"], of["intel.com/sriov_n6"]) == ("1", "1")
    # Whole CPUs and as much memory as is the limit: the pod is of the class Guaranteed.
    assert resources["requests"] == resources["limits"]


def test_two_networks_of_one_resource() -> None:
    """Both are counted."""
    one = "networkDefinitions.n3.resource=intel.com/vf,networkDefinitions.n6.resource=intel.com/vf"
    types = "networkDefinitions.n3.config.type=sriov,networkDefinitions.n6.config.type=sriov"
    limits = pod(rendered((), "--set", one, "--set", types))["spec"]["containers"][0]["resources"]["limits"]
    assert limits["intel.com/vf"] == "2"
    # One that is attached twice too; what nothing is attached to is not asked for.
    places = [("n3", "n3"), ("n3", "n3b"), ("n6", "n6")]
    twice = json.dumps([{"name": name, "interface": interface} for name, interface in places])
    unused = "networkDefinitions.spare.resource=intel.com/spare,networkDefinitions.spare.config.type=sriov"
    more = ("--set", one, "--set", types, "--set-json", f"networks={twice}", "--set", unused)
    limits = pod(rendered((), *more))["spec"]["containers"][0]["resources"]["limits"]
    assert limits["intel.com/vf"] == "3"
    assert "intel.com/spare" not in limits


def test_networks_of_another_namespace() -> None:
    """As Multus names them."""
    networks = attached(rendered((ROOT / "deploy/helm/examples/gre.yaml",)))
    assert [(network["namespace"], network["name"]) for network in networks] == [
        ("transport", "tunnels"),
        ("transport", "plain"),
    ]


def test_without_a_volume_or_with_a_cache() -> None:
    """State is in the pod then, and NDN's packets in a folder of theirs."""
    documents = rendered((), "--set", "persistence.enabled=false,cache.enabled=true")
    names = {volume["name"] for volume in pod(documents)["spec"]["volumes"]}
    assert {"state", "cache"} <= names
    assert "volumeClaimTemplates" not in only(documents, "StatefulSet")["spec"]
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_another_configuration_is_another_pod() -> None:
    """A changed configuration starts the node anew."""

    def checksum(*more: str) -> object:
        return pod(rendered((), *more))["metadata"]["annotations"]["checksum/config"]

    assert checksum() == checksum()
    assert checksum() != checksum("--set", "metrics.port=9200")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("networks[0].name=n3,networks[0].interface=an-interface-too-long", "networks.0.interface"),
        ("capabilities={SYS_ADMIN}", "capabilities.0"),
        ("metrics.port=0", "metrics.port"),
        ("image.tags=1", "tags"),
        ("startSeconds=1", "startSeconds"),
    ],
)
def test_mistakes_are_said(setting: str, named: str) -> None:
    """Before anything is made, by the name of the value."""
    refused = helm("template", "upf", CHART, "--set", setting)
    assert refused.returncode != 0
    assert named in refused.stderr


def test_its_version_is_the_programs() -> None:
    """Of one release."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
