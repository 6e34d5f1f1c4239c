package main

import (
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// Causes that are not among go-pfcp's (TS 29.244 8.2.1).
const (
	causeRuleUnknown        = 80
	causeApplicationUnknown = 81
)

// applications provisions what an application is known by, and has a rule drop it.
func (w *world) applications() {
	const name = "gopfcp-echo"
	provision := func(flow string) *heard {
		return w.ask(message.NewPFDManagementRequest(w.next(), ie.NewApplicationIDsPFDs(
			ie.NewApplicationID(name),
			ie.NewPFDContext(ie.NewPFDContents(flow, "", "", "", "", nil, nil, nil)),
		)))
	}
	to := w.echo.IP.String()
	s := w.establish(w.rules(w.tunnel(downlinkTEID)))
	drop := func(application string) *heard {
		return w.modify(s,
			ie.NewCreatePDR(ie.NewPDRID(3), ie.NewPrecedence(10), ie.NewPDI(
				ie.NewSourceInterface(ie.SrcInterfaceCore),
				ie.NewNetworkInstance("internet"),
				ie.NewUEIPAddress(0x06, s.ue.String(), "", 0, 0),
				ie.NewApplicationID(application),
			), ie.NewFARID(3)),
			ie.NewCreateFAR(ie.NewFARID(3), ie.NewApplyAction(applyDrop)))
	}
	unknown := drop("gopfcp-nobody")
	check("application/unknown", unknown.cause() == causeApplicationUnknown, "cause %d", unknown.cause())
	provisioned := provision("permit out 17 from " + to + " 7 to assigned")
	check("application/provisioned", provisioned.cause() == ie.CauseRequestAccepted, "cause %d", provisioned.cause())
	named := drop(name)
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte("detected"))
	check("application/detected", named.cause() == 1 && w.gnb.receive(gtpGPDU, time.Second) == nil, "cause %d", named.cause())
	replaced := provision("permit out 17 from " + to + " 8 to assigned")
	check("application/replaced", replaced.cause() == 1 && w.echoes(s, "not this one") != nil, "cause %d", replaced.cause())
	wrong := provision("permit in 17 from anywhere")
	check("application/incorrect", wrong.cause() == ie.CauseMandatoryIEIncorrect && wrong.find(ie.OffendingIE) != nil, "cause %d", wrong.cause())
	w.remove(s)
	none := w.ask(message.NewPFDManagementRequest(w.next()))
	check("application/all-removed", none.cause() == ie.CauseRequestAccepted, "cause %d", none.cause())
}

// predefined switches a rule of the node's own configuration on, which drops the echo, and off again.
func (w *world) predefined() {
	s := w.establish(w.rules(w.tunnel(downlinkTEID)))
	activate := func(name string) *heard {
		return w.modify(s, ie.NewCreatePDR(ie.NewPDRID(3), ie.NewPrecedence(10), ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceCore),
			ie.NewNetworkInstance("internet"),
			ie.NewUEIPAddress(0x06, s.ue.String(), "", 0, 0),
		), ie.NewFARID(2), ie.NewActivatePredefinedRules(name)))
	}
	unknown := activate("gopfcp-nothing")
	check("predefined/unknown", unknown.cause() == causeRuleUnknown, "cause %d", unknown.cause())
	on := activate(w.rule)
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte("dropped"))
	check("predefined/activated", on.cause() == 1 && w.gnb.receive(gtpGPDU, time.Second) == nil, "cause %d", on.cause())
	off := w.modify(s, ie.NewUpdatePDR(ie.NewPDRID(3), ie.NewDeactivatePredefinedRules(w.rule)))
	check("predefined/deactivated", off.cause() == 1 && w.echoes(s, "let through") != nil, "cause %d", off.cause())
	w.remove(s)
}
