package main

import (
	"bytes"
	"net"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// cpFeatures are LOAD, OVRL, EPFAR and BUNDL, and in the second octet RPGUR (TS 29.244 8.2.58).
var cpFeatures = []uint8{0x17, 0x02}

// beforeAssociation looks at what works without an association, and at what does not.
func (w *world) beforeAssociation() {
	first := w.ask(message.NewHeartbeatRequest(w.next(), ie.NewRecoveryTimeStamp(w.started), nil))
	stamp := first.find(ie.RecoveryTimeStamp)
	_, answered := first.message.(*message.HeartbeatResponse)
	check("heartbeat/answered", answered && stamp != nil, "%s", first.message.MessageTypeName())
	second := w.ask(message.NewHeartbeatRequest(w.next(), ie.NewRecoveryTimeStamp(w.started), nil))
	same := stamp != nil && bytes.Equal(stamp.Payload, second.find(ie.RecoveryTimeStamp).Payload)
	check("heartbeat/one-recovery-time-stamp", same, "% x", second.raw)

	early := w.ask(w.establishment(w.rules(w.tunnel(downlinkTEID))))
	check("association/needed", early.cause() == ie.CauseNoEstablishedPFCPAssociation, "cause %d", early.cause())

	request := octets(message.NewHeartbeatRequest(w.next(), ie.NewRecoveryTimeStamp(w.started), nil))
	request[0] = 2<<5 | request[0]&0x1f
	w.sendRaw(request)
	answer := w.answer(w.sequence)
	_, unsupported := answer.message.(*message.VersionNotSupportedResponse)
	check("version/not-supported", unsupported, "%s", answer.message.MessageTypeName())
}

// setup associates, as a control plane that started at a time.
func (w *world) setup() *heard {
	return w.ask(message.NewAssociationSetupRequest(w.next(),
		w.nodeID(),
		ie.NewRecoveryTimeStamp(w.started),
		ie.NewCPFunctionFeatures(cpFeatures...),
	))
}

// association sets up, updates, and waits for the other side's heartbeats.
func (w *world) association() {
	answer := w.setup()
	features := answer.find(ie.UPFunctionFeatures)
	check("association/setup", answer.cause() == ie.CauseRequestAccepted, "cause %d", answer.cause())
	complete := answer.find(ie.NodeID) != nil && answer.find(ie.RecoveryTimeStamp) != nil && features != nil
	check("association/setup-tells-who", complete, "%d IEs", len(answer.ies))
	if features == nil {
		fatal("no UP Function Features")
	}
	all := features.HasFTUP() && features.HasUEIP() && features.HasEMPU() && features.HasBUNDL() &&
		features.HasMNOP() && features.HasPDIU() && features.HasQUOAC() && features.HasFRRT() && features.HasSSET()
	check("association/features", all, "% x", features.Payload)

	update := w.ask(message.NewAssociationUpdateRequest(w.next(), w.nodeID(), ie.NewCPFunctionFeatures(cpFeatures...)))
	check("association/update", update.cause() == ie.CauseRequestAccepted, "cause %d", update.cause())

	beat := w.request(10*time.Second, func(h *heard) bool {
		_, is := h.message.(*message.HeartbeatRequest)
		return is
	})
	check("heartbeat/asked-by-the-user-plane", beat != nil && beat.find(ie.RecoveryTimeStamp) != nil, "%v", beat != nil)
}

// paths has a session whose tunnel leads to where nobody is, and waits to be told.
func (w *world) paths() {
	w.forget()
	nobody := net.IPv4(w.gnb.local.To4()[0], w.gnb.local.To4()[1], w.gnb.local.To4()[2], 222)
	s := w.establish(w.rules([]*ie.IE{
		ie.NewDestinationInterface(ie.DstInterfaceAccess),
		ie.NewOuterHeaderCreation(0x0100, downlinkTEID, nobody.String(), "", 0, 0, 0),
	}))
	report := w.request(2*patience, func(h *heard) bool {
		_, is := h.message.(*message.NodeReportRequest)
		return is && h.find(ie.UserPlanePathFailureReport) != nil
	})
	if report == nil {
		check("node-report/path-failure", false, "no report")
		return
	}
	remote, err := report.find(ie.UserPlanePathFailureReport).RemoteGTPUPeer()
	check("node-report/path-failure", err == nil && remote.IPv4Address.Equal(nobody), "%+v", remote)
	w.remove(s)
}

// end takes over as a restarted control plane, which loses its sessions, and releases the association.
func (w *world) end() {
	lost := w.establish(w.rules(w.tunnel(downlinkTEID)))
	w.started = w.started.Add(5 * time.Second)
	again := w.setup()
	gone := w.ask(message.NewSessionDeletionRequest(0, 0, lost.theirs, w.next(), 0))
	ended := again.cause() == ie.CauseRequestAccepted && gone.cause() == ie.CauseSessionContextNotFound
	check("association/restart-ends-sessions", ended, "causes %d, %d", again.cause(), gone.cause())

	w.preparedRelease()
	release := w.ask(message.NewAssociationReleaseRequest(w.next(), w.nodeID()))
	check("association/release", release.cause() == ie.CauseRequestAccepted, "cause %d", release.cause())
	after := w.ask(w.establishment(w.rules(w.tunnel(downlinkTEID))))
	check("association/released", after.cause() == ie.CauseNoEstablishedPFCPAssociation, "cause %d", after.cause())
	w.invited()
}

// invited accepts the association that the user plane, which has us in its configuration, asks for now and again.
func (w *world) invited() {
	w.forget()
	w.accept()
	asked := w.request(4*patience, func(h *heard) bool {
		_, is := h.message.(*message.AssociationSetupRequest)
		return is
	})
	complete := asked != nil && asked.find(ie.UPFunctionFeatures) != nil && asked.find(ie.RecoveryTimeStamp) != nil
	check("association/asked-by-the-user-plane", complete, "%v", asked != nil)
	if asked != nil {
		s := w.establish(w.rules(w.tunnel(downlinkTEID)))
		check("association/by-the-user-plane", w.remove(s).cause() == ie.CauseRequestAccepted, "%+v", s)
	}
}
