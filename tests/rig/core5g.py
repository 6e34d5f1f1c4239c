"""A real SMF in a namespace, with its neighbours on the service-based interface played by tests/peers/sbi.

It is free5GC's where no other is named. It speaks PFCP on 10.100.4.2; what it serves and asks on HTTP stays
on the namespace's loopback. The tests are the AMF: they set up, idle, wake, hand over and release sessions,
for a gNB made of `rig.gtpu`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.net import PATIENCE_S, Namespace, NetError, wait_until

#: free5GC's SMF sends a request again after some seconds; three times fit.
ANSWER_S = 60

#: The slice of each data network.
SLICES = {"internet": {"sst": 1, "sd": "010203"}, "factory": {"sst": 2, "sd": "112233"}}

#: Types of PDU session (TS 24.501 9.11.4.11).
IPV4, IPV6, IPV4V6 = 1, 2, 3

#: A default flow that may be pre-empted by anything (TS 29.571 5.5.2).
ARP = {"priorityLevel": 8, "preemptCap": "NOT_PREEMPT", "preemptVuln": "NOT_PREEMPTABLE"}
DEFAULT_QOS = {"5qi": 9, "arp": ARP, "priorityLevel": 8}

#: After how many octets in a direction the SMF wants to hear of usage.
VOLUME_THRESHOLD = 50_000

#: One user plane between the gNB and both data networks.
ONE_UPF = """\
  userplaneInformation:
    upNodes:
      gNB1: {type: AN}
      UPF:
        type: UPF
        nodeID: 10.100.4.1
        addr: 10.100.4.1
        sNssaiUpfInfos:
          - sNssai: {sst: 1, sd: "010203"}
            dnnUpfInfoList:
              - {dnn: internet, pools: [{cidr: 10.60.0.0/18}]}
          - sNssai: {sst: 2, sd: "112233"}
            dnnUpfInfoList:
              - {dnn: factory, pools: [{cidr: 10.60.64.0/18}]}
        interfaces:
          - {interfaceType: N3, endpoints: [10.100.3.1], networkInstances: [internet, factory]}
    links: [{A: gNB1, B: UPF}]
"""

FREE5GC = f"""\
info: {{version: 1.0.7, description: tests}}
configuration:
  smfName: SMF
  sbi: {{scheme: http, registerIPv4: 127.0.0.2, bindingIPv4: 127.0.0.2, port: 8000}}
  serviceNameList: [nsmf-pdusession, nsmf-event-exposure, nsmf-oam]
  snssaiInfos:
    - sNssai: {{sst: 1, sd: "010203"}}
      dnnInfos: [{{dnn: internet, dns: {{ipv4: 10.100.6.2}}}}]
    - sNssai: {{sst: 2, sd: "112233"}}
      dnnInfos: [{{dnn: factory, dns: {{ipv4: 10.100.6.2}}}}]
  plmnList: [{{mcc: "208", mnc: "93"}}]
  locality: area1
  pfcp:
    nodeID: 10.100.4.2
    listenAddr: 10.100.4.2
    externalAddr: 10.100.4.2
    assocFailAlertInterval: 10s
    assocFailRetryInterval: 1s
    heartbeatInterval: 1s
{{PLANE}}  t3591: {{enable: true, expireTime: 16s, maxRetryTimes: 3}}
  t3592: {{enable: true, expireTime: 16s, maxRetryTimes: 3}}
  nrfUri: http://127.0.0.10:8000
  urrPeriod: 1
  urrThreshold: {VOLUME_THRESHOLD}
  requestedUnit: 1000
logger: {{enable: true, level: debug, reportCaller: false}}
"""

ROUTES = """\
info: {version: 1.0.7, description: tests}
ueRoutingInfo:
"""


class Refused(Exception):
    """What the SMF did not do, in its words."""


def ambr(uplink: str, downlink: str) -> dict[str, str]:
    """A session AMBR, such as "5 Mbps" (TS 29.571 5.5.4.4)."""
    return {"uplink": uplink, "downlink": downlink}


def policy(rate: dict[str, str], **more: object) -> dict[str, object]:
    """A PCF's decision: the default flow within a rate, and further rules (TS 29.512 5.6.2.4)."""
    rule = {"sessRuleId": "default", "authSessAmbr": rate, "authDefQos": DEFAULT_QOS}
    return {"sessRules": {"default": rule}, "suppFeat": "000f"} | more


#: A session AMBR that no test reaches.
RATE = ambr("1 Gbps", "1 Gbps")


def flow_policy(description: str, charging: dict[str, object] | None = None) -> dict[str, object]:
    """A decision with a flow of guaranteed rate for some traffic, charged or not."""
    rule: dict[str, object] = {
        "pccRuleId": "flow",
        "precedence": 100,
        "flowInfos": [{"flowDescription": description, "flowDirection": "BIDIRECTIONAL", "packFiltId": "1"}],
        "refQosData": ["video"],
    }
    rates = dict.fromkeys(("maxbrUl", "maxbrDl", "gbrUl", "gbrDl"), "100 Mbps")
    video = {"qosId": "video", "5qi": 2, "arp": ARP, **rates}
    more: dict[str, object] = {"pccRules": {"flow": rule}, "qosDecs": {"video": video}}
    if charging:
        rule["refChgData"] = ["money"]
        more["chgDecs"] = {"money": {"chgId": "money", "ratingGroup": 7, **charging}}
    return policy(RATE, **more)


def subscription(rate: dict[str, str], *kinds: str) -> dict[str, object]:
    """What a UE may do in the data network (TS 29.503 6.1.6.2.9)."""
    return {
        "pduSessionTypes": {"defaultSessionType": kinds[0], "allowedSessionTypes": kinds},
        "sscModes": {"defaultSscMode": "SSC_MODE_1", "allowedSscModes": ["SSC_MODE_1"]},
        "5gQosProfile": DEFAULT_QOS,
        "sessionAmbr": rate,
    }


@dataclass(frozen=True)
class Session:
    """What the SMF told the UE and the gNB of a session."""

    supi: str
    number: int
    #: The address of IPv4, and the interface identifier of IPv6, in hexadecimal; what there is not is empty.
    ue: str
    identifier: str
    upf: str
    teid: int
    qfis: list[int]


@dataclass
class Core:
    """The SMF and its neighbours as processes."""

    space: Namespace
    neighbours: Path
    smf: Path
    folder: Path
    #: The user planes, and the UEs that have paths of their own, as free5GC's SMF is told of them.
    plane: str = ONE_UPF
    routes: str = " {}\n"
    #: What kinds of session a subscriber may have, the usual one first.
    kinds: tuple[str, ...] = ("IPV4",)
    process: subprocess.Popen[str] | None = None
    around: subprocess.Popen[str] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)
    answers: dict[int, queue.Queue[dict[str, Any]]] = field(default_factory=dict)
    asked: int = 0

    @property
    def log(self) -> Path:
        """Where the SMF's log goes."""
        return self.folder / "smf.log"

    def start(self, rate: dict[str, str] | None = None, granted: int = 0) -> Core:
        """Start all, and wait until the SMF has an association. With a volume granted there is a CHF."""
        with (self.folder / "sbi.log").open("a") as log:
            self.around = self.space.start(
                str(self.neighbours), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self.event("listening")
        self.configure(rate or RATE, granted=granted)
        return self.start_smf()

    def start_smf(self) -> Core:
        """Start the SMF, and wait until it has an association."""
        before = self.associations()
        command = self.command()
        # The namespace hands the environment on.
        release = os.environ | {"GIN_MODE": "release"}
        with self.log.open("a") as log:
            self.process = self.space.start(*command, cwd=self.folder, env=release, stdout=log, stderr=log)
        self.event("registered")
        user_planes = self.plane.count("type: UPF")
        wait_until(lambda: self.associations() >= before + user_planes, "the SMF has its associations")
        return self

    def command(self) -> list[str]:
        """Write the SMF's configuration; how it is started."""
        told = (
            ("smfcfg.yaml", FREE5GC.replace("{PLANE}", self.plane)),
            ("uerouting.yaml", ROUTES + self.routes),
        )
        for name, text in told:
            (self.folder / name).write_text(text)
        command = [str(self.smf), "-c", str(self.folder / "smfcfg.yaml")]
        return [*command, "-u", str(self.folder / "uerouting.yaml")]

    def associations(self) -> int:
        """How often the SMF was given an association."""
        log = self.log.read_text() if self.log.exists() else ""
        return log.count("Received PFCP Association Setup Accepted Response")

    def configure(
        self, rate: dict[str, str], decision: dict[str, object] | None = None, granted: int = 0
    ) -> None:
        """Say what UDM, PCF and CHF know from now on."""
        network = subscription(rate, *self.kinds)
        self.ask("configure", network=network, decision=decision or policy(rate), granted=granted)

    def stop(self) -> None:
        """End all."""
        for process in (self.process, self.around):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(timeout=30)

    def kill_smf(self) -> None:
        """End the SMF as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=30)

    def send(self, do: str, **more: object) -> int:
        """Send a command; its answer is taken by its number."""
        assert self.around is not None
        assert self.around.stdin is not None
        self.asked += 1
        self.answers[self.asked] = queue.Queue()
        self.around.stdin.write(json.dumps({"id": self.asked, "do": do, **more}) + "\n")
        self.around.stdin.flush()
        return self.asked

    def take(self, number: int) -> dict[str, Any]:
        """The answer to a command."""
        try:
            answer = self.answers[number].get(timeout=ANSWER_S)
        except queue.Empty:
            raise NetError(f"the core does not answer; its log:\n{self.tail()}") from None
        if error := answer.get("error"):
            raise Refused(f"{error}; the SMF's log:\n{self.tail()}")
        return answer

    def ask(self, do: str, **more: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        return self.take(self.send(do, **more))

    def tail(self) -> str:
        """The end of the SMF's log."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def event(self, kind: str, seconds: float = PATIENCE_S, **wanted: object) -> dict[str, Any]:
        """The next event of a kind, taken out of those that came."""
        deadline = time.monotonic() + seconds
        with self.arrived:
            while True:
                for place, event in enumerate(self.events):
                    if event.get("event") == kind and wanted.items() <= event.items():
                        return self.events.pop(place)
                if not self.arrived.wait(deadline - time.monotonic()):
                    raise NetError(f"no event {kind!r}; the SMF's log:\n{self.tail()}")

    def _listen(self) -> None:
        assert self.around is not None
        assert self.around.stdout is not None
        for line in self.around.stdout:
            said = json.loads(line)
            if "id" in said:
                self.answers[said["id"]].put(said)
                continue
            with self.arrived:
                self.events.append(said)
                self.arrived.notify_all()

    def create(self, *ues: int, dnn: str = "internet", number: int = 1, kind: int = IPV4) -> list[Session]:
        """Set up a session for each UE, all at once; the gNB's end is not known yet."""
        asked = [self._create(supi(ue), number, dnn, kind) for ue in ues]
        found = []
        for ue, command in zip(ues, asked, strict=True):
            told = self.take(command)["told"]
            upf = told["upf"]
            addresses = told.get("ue", ""), told.get("identifier", "")
            found.append(Session(supi(ue), number, *addresses, upf["address"], upf["teid"], told["qfis"]))
        return found

    def _create(self, name: str, number: int, dnn: str, kind: int) -> int:
        return self.send("create", supi=name, session=number, dnn=dnn, slice=SLICES[dnn], type=kind)

    def order(self, do: str, session: Session, **more: object) -> dict[str, Any]:
        """Do something with a session."""
        return self.ask(do, supi=session.supi, session=session.number, **more)

    def activate(self, session: Session, teid: int, gnb: str = "10.100.3.2") -> None:
        """Tell the gNB's end of the tunnel."""
        self.order("activate", session, gnb={"address": gnb, "teid": teid})


def supi(ue: int) -> str:
    """The name of a UE."""
    return f"imsi-20893{ue:010}"
