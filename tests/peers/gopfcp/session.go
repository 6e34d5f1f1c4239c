package main

import (
	"net"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

const (
	// downlinkTEID is the access network's.
	downlinkTEID = 0x5678
	// patience is for what a packet, or a timer of a second or two, brings about.
	patience = 10 * time.Second
	// qosFlow is the QFI of the sessions' only flow.
	qosFlow = 9
)

// Apply Action (TS 29.244 8.2.26).
const (
	applyDrop    = 1 << 0
	applyForward = 1 << 1
	applyBuffer  = 1 << 2
	applyNotify  = 1 << 3
)

// session is one that lives: our SEID, theirs, and what the user plane chose.
type session struct {
	ours, theirs uint64
	teid         uint32
	ue           net.IP
}

// tunnel are the parts of forwarding parameters that lead to the access network.
func (w *world) tunnel(teid uint32) []*ie.IE {
	return []*ie.IE{
		ie.NewDestinationInterface(ie.DstInterfaceAccess),
		ie.NewNetworkInstance("access"),
		ie.NewOuterHeaderCreation(0x0100, teid, w.gnb.local.String(), "", 0, 0, 0),
	}
}

// uplinkPDR matches what comes through a tunnel whose F-TEID the user plane chooses (CH and V4).
func uplinkPDR(more ...*ie.IE) *ie.IE {
	return ie.NewCreatePDR(append([]*ie.IE{
		ie.NewPDRID(1),
		ie.NewPrecedence(100),
		ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceAccess),
			ie.NewFTEID(0x05, 0, nil, nil, 0),
			ie.NewNetworkInstance("access"),
		),
		ie.NewOuterHeaderRemoval(0, 0),
		ie.NewFARID(1),
		ie.NewQERID(1),
	}, more...)...)
}

// downlinkPDR matches what goes to a UE whose address the user plane chooses (CHV4 and S/D).
func downlinkPDR(more ...*ie.IE) *ie.IE {
	return ie.NewCreatePDR(append([]*ie.IE{
		ie.NewPDRID(2),
		ie.NewPrecedence(100),
		ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceCore),
			ie.NewNetworkInstance("internet"),
			ie.NewUEIPAddress(0x14, "", "", 0, 0),
		),
		ie.NewFARID(2),
		ie.NewQERID(1),
	}, more...)...)
}

func uplinkFAR() *ie.IE {
	return ie.NewCreateFAR(
		ie.NewFARID(1),
		ie.NewApplyAction(applyForward),
		ie.NewForwardingParameters(
			ie.NewDestinationInterface(ie.DstInterfaceCore),
			ie.NewNetworkInstance("internet"),
		),
	)
}

// qer marks the flow and limits it far above what is sent here: 100 Mbit/s each way.
func qer() *ie.IE {
	return ie.NewCreateQER(
		ie.NewQERID(1),
		ie.NewGateStatus(ie.GateStatusOpen, ie.GateStatusOpen),
		ie.NewMBR(100_000, 100_000),
		ie.NewQFI(qosFlow),
	)
}

// rules are those of an ordinary session, with the far end of its downlink.
func (w *world) rules(far2 []*ie.IE) []*ie.IE {
	return []*ie.IE{
		uplinkPDR(), downlinkPDR(), uplinkFAR(), qer(),
		ie.NewCreateFAR(ie.NewFARID(2), ie.NewApplyAction(applyForward), ie.NewForwardingParameters(far2...)),
	}
}

// metered are the rules of a session whose PDRs count into a URR; far2 is the whole of the downlink's FAR but its ID.
func (w *world) metered(urr *ie.IE, far2 ...*ie.IE) []*ie.IE {
	return []*ie.IE{
		uplinkPDR(ie.NewURRID(1)), downlinkPDR(ie.NewURRID(1)), uplinkFAR(), qer(), urr,
		ie.NewCreateFAR(append([]*ie.IE{ie.NewFARID(2)}, far2...)...),
	}
}

// forwarding are a FAR's parts that send into the tunnel.
func (w *world) forwarding() []*ie.IE {
	return []*ie.IE{
		ie.NewApplyAction(applyForward),
		ie.NewForwardingParameters(w.tunnel(downlinkTEID)...),
	}
}

// establishment is the request with these rules. Our SEID is 0x1000 and its sequence number.
func (w *world) establishment(rules []*ie.IE) *message.SessionEstablishmentRequest {
	sequence := w.next()
	all := append([]*ie.IE{
		w.nodeID(),
		ie.NewFSEID(uint64(0x1000+sequence), w.local, nil),
		ie.NewPDNType(ie.PDNTypeIPv4),
	}, rules...)
	return message.NewSessionEstablishmentRequest(0, 0, 0, sequence, 0, all...)
}

// establish sets a session up, which must succeed for the rest to say anything.
func (w *world) establish(rules []*ie.IE) *session {
	request := w.establishment(rules)
	answer := w.ask(request)
	if answer.cause() != ie.CauseRequestAccepted {
		fatal("establishment: cause %d in % x", answer.cause(), answer.raw)
	}
	return w.take(request, answer)
}

// take reads what an establishment's answer says of a session.
func (w *world) take(request message.Message, answer *heard) *session {
	s := &session{ours: uint64(0x1000 + request.Sequence())}
	if id := answer.find(ie.FSEID); id != nil {
		fields, err := id.FSEID()
		if err != nil {
			fatal("F-SEID: %v", err)
		}
		s.theirs = fields.SEID
	}
	for _, created := range answer.children(ie.CreatedPDR) {
		if id := find(created, ie.FTEID); id != nil {
			fields, err := id.FTEID()
			if err != nil {
				fatal("F-TEID: %v", err)
			}
			s.teid = fields.TEID
		}
		if address := find(created, ie.UEIPAddress); address != nil {
			fields, err := address.UEIPAddress()
			if err != nil {
				fatal("UE IP address: %v", err)
			}
			s.ue = fields.IPv4Address
		}
	}
	w.lock.Lock()
	w.seids[s.ours] = s.theirs
	w.lock.Unlock()
	return s
}

// modify sends a modification request of a session.
func (w *world) modify(s *session, changes ...*ie.IE) *heard {
	return w.ask(message.NewSessionModificationRequest(0, 0, s.theirs, w.next(), 0, changes...))
}

// remove deletes a session.
func (w *world) remove(s *session) *heard {
	return w.ask(message.NewSessionDeletionRequest(0, 0, s.theirs, w.next(), 0))
}

// echoes sends a packet up and says whether it comes back down, with the flow's QFI.
func (w *world) echoes(s *session, text string) *downlink {
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte(text))
	down := w.gnb.receive(gtpGPDU, patience)
	if down == nil || string(down.data()) != text {
		return nil
	}
	return down
}

// sessions runs the whole life of one.
func (w *world) sessions() {
	request := w.establishment(w.rules(w.tunnel(downlinkTEID)))
	answer := w.ask(request)
	check("session/establishment", answer.cause() == ie.CauseRequestAccepted, "cause %d", answer.cause())
	check("session/load-told", answer.find(ie.LoadControlInformation) != nil, "%d IEs", len(answer.ies))
	check("session/answer-goes-to-our-seid", answer.message.SEID() == uint64(0x1000+request.Sequence()), "%#x", answer.message.SEID())
	s := w.take(request, answer)
	check("session/f-teid-chosen", s.teid != 0, "%#x", s.teid)
	check("session/ue-address-chosen", s.ue != nil, "%v", s.ue)
	down := w.echoes(s, "there and back")
	check("session/forwards", down != nil && down.teid == downlinkTEID, "%+v", down)
	check("session/qfi-marked", down != nil && down.qfi == qosFlow, "%+v", down)

	shut := w.modify(s, ie.NewUpdateQER(ie.NewQERID(1), ie.NewGateStatus(ie.GateStatusClosed, ie.GateStatusClosed)))
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte("shut out"))
	check("session/gate-shut", shut.cause() == 1 && w.gnb.receive(gtpGPDU, time.Second) == nil, "cause %d", shut.cause())
	open := w.modify(s, ie.NewUpdateQER(ie.NewQERID(1), ie.NewGateStatus(ie.GateStatusOpen, ie.GateStatusOpen)))
	check("session/gate-open", open.cause() == 1 && w.echoes(s, "open again") != nil, "cause %d", open.cause())

	w.handover(s)
	w.rulesComeAndGo(s)
	gone := w.remove(s)
	check("session/deletion", gone.cause() == ie.CauseRequestAccepted, "cause %d", gone.cause())
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte("too late"))
	lost := w.gnb.receive(gtpErrorIndication, patience)
	check("session/error-indication-when-gone", lost != nil, "%+v", lost)
	w.chosenTogether()
}

// handover moves the tunnel and asks for an End Marker on the old one (SNDEM).
func (w *world) handover(s *session) {
	const moved = downlinkTEID + 1
	changed := w.modify(s, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewUpdateForwardingParameters(
		append(w.tunnel(moved), ie.NewPFCPSMReqFlags(0x02))...)))
	marker := w.gnb.receive(gtpEndMarker, patience)
	check("session/end-marker", changed.cause() == 1 && marker != nil && marker.teid == downlinkTEID, "%+v", marker)
	down := w.echoes(s, "moved")
	check("session/handover", down != nil && down.teid == moved, "%+v", down)
}

// rulesComeAndGo adds a PDR of better precedence that drops one flow, changes it, and removes it.
func (w *world) rulesComeAndGo(s *session) {
	to := w.echo.IP.String()
	added := w.modify(s,
		ie.NewCreatePDR(ie.NewPDRID(3), ie.NewPrecedence(10), ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceCore),
			ie.NewNetworkInstance("internet"),
			ie.NewUEIPAddress(0x06, s.ue.String(), "", 0, 0),
			ie.NewSDFFilter("permit out 17 from "+to+" 7 to assigned", "", "", "", 1),
		), ie.NewFARID(3)),
		ie.NewCreateFAR(ie.NewFARID(3), ie.NewApplyAction(applyDrop)))
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte("filtered"))
	check("session/filter-added", added.cause() == 1 && w.gnb.receive(gtpGPDU, time.Second) == nil, "cause %d", added.cause())
	changed := w.modify(s, ie.NewUpdatePDR(ie.NewPDRID(3), ie.NewPrecedence(200)))
	check("session/precedence-changed", changed.cause() == 1 && w.echoes(s, "first again") != nil, "cause %d", changed.cause())
	removed := w.modify(s, ie.NewRemovePDR(ie.NewPDRID(3)), ie.NewRemoveFAR(ie.NewFARID(3)))
	check("session/rule-removed", removed.cause() == 1, "cause %d", removed.cause())
	again := w.modify(s, ie.NewRemovePDR(ie.NewPDRID(3)))
	check("session/absent-rule", again.cause() == ie.CauseRuleCreationModificationFailure && again.find(ie.FailedRuleID) != nil, "cause %d", again.cause())
}

// chosenTogether gives two PDRs one CHOOSE ID: they get one F-TEID.
func (w *world) chosenTogether() {
	pdr := func(id uint16, flow uint8) *ie.IE {
		return ie.NewCreatePDR(ie.NewPDRID(id), ie.NewPrecedence(uint32(id)), ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceAccess),
			ie.NewFTEID(0x0d, 0, nil, nil, 5),
			ie.NewQFI(flow),
		), ie.NewOuterHeaderRemoval(0, 0), ie.NewFARID(1))
	}
	answer := w.ask(w.establishment([]*ie.IE{pdr(1, 1), pdr(2, 2), uplinkFAR()}))
	var chosen []string
	for _, created := range answer.children(ie.CreatedPDR) {
		if id := find(created, ie.FTEID); id != nil {
			chosen = append(chosen, string(id.Payload))
		}
	}
	check("session/choose-id", len(chosen) == 2 && chosen[0] == chosen[1], "cause %d, %d chosen: %x", answer.cause(), len(chosen), chosen)
	fields, err := answer.find(ie.FSEID).FSEID()
	if err == nil {
		w.remove(&session{theirs: fields.SEID})
	}
}

// refusals looks at requests that cannot be done: each gets its cause, and says what is wrong.
func (w *world) refusals() {
	unknown := w.remove(&session{theirs: 0xdeadbeef})
	check("refusal/unknown-seid", unknown.cause() == ie.CauseSessionContextNotFound && unknown.message.SEID() == 0, "cause %d", unknown.cause())

	rules := w.rules(w.tunnel(downlinkTEID))
	incomplete := message.NewSessionEstablishmentRequest(0, 0, 0, w.next(), 0, append([]*ie.IE{w.nodeID()}, rules...)...)
	missing := w.ask(incomplete)
	named := missing.find(ie.OffendingIE)
	check("refusal/mandatory-missing", missing.cause() == ie.CauseMandatoryIEMissing && named != nil, "cause %d", missing.cause())

	text := ie.NewSDFFilter("permit out ip from nowhere", "", "", "", 0)
	rules[1] = ie.NewCreatePDR(ie.NewPDRID(2), ie.NewPrecedence(1), ie.NewPDI(
		ie.NewSourceInterface(ie.SrcInterfaceCore), ie.NewUEIPAddress(0x06, "10.60.1.1", "", 0, 0), text), ie.NewFARID(2))
	wrong := w.ask(w.establishment(rules))
	check("refusal/incorrect-filter", wrong.cause() == ie.CauseMandatoryIEIncorrect && wrong.find(ie.OffendingIE) != nil, "cause %d", wrong.cause())
}
