package main

import (
	"fmt"
	"net"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// PFCP messages and IEs that go-pfcp has no names for (TS 29.244 7.4.7).
const (
	setModificationRequest = 16
	sessionChangeInfo      = 290
)

// endpoints has PDRs name traffic endpoints, whose F-TEID and UE address the user plane chooses, and a framed route.
func (w *world) endpoints() {
	answer := w.ask(w.establishment([]*ie.IE{
		ie.NewCreatePDR(ie.NewPDRID(1), ie.NewPrecedence(1), ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceAccess), ie.NewTrafficEndpointID(1),
		), ie.NewOuterHeaderRemoval(6, 0), ie.NewFARID(1)),
		ie.NewCreatePDR(ie.NewPDRID(2), ie.NewPrecedence(1), ie.NewPDI(
			ie.NewSourceInterface(ie.SrcInterfaceCore), ie.NewTrafficEndpointID(2),
		), ie.NewFARID(2)),
		uplinkFAR(),
		ie.NewCreateFAR(append([]*ie.IE{ie.NewFARID(2)}, w.forwarding()...)...),
		ie.NewCreateTrafficEndpoint(ie.NewTrafficEndpointID(1), ie.NewFTEID(0x05, 0, nil, nil, 0)),
		ie.NewCreateTrafficEndpoint(ie.NewTrafficEndpointID(2),
			ie.NewNetworkInstance("internet"),
			ie.NewUEIPAddress(0x14, "", "", 0, 0),
			ie.NewFramedRoute("10.60.250.0/24 0.0.0.0 1"),
		),
	}))
	s := &session{}
	for _, created := range answer.children(ie.CreatedTrafficEndpoint) {
		if id := find(created, ie.FTEID); id != nil {
			fields, err := id.FTEID()
			if err == nil {
				s.teid = fields.TEID
			}
		}
		if address := find(created, ie.UEIPAddress); address != nil {
			fields, err := address.UEIPAddress()
			if err == nil {
				s.ue = fields.IPv4Address
			}
		}
	}
	check("endpoint/created", answer.cause() == ie.CauseRequestAccepted && s.teid != 0 && s.ue != nil, "cause %d, %+v", answer.cause(), s)
	if s.teid == 0 || s.ue == nil {
		return
	}
	fields, err := answer.find(ie.FSEID).FSEID()
	if err != nil {
		fatal("F-SEID: %v", err)
	}
	s.theirs = fields.SEID
	check("endpoint/forwards", w.echoes(s, "by endpoint") != nil, "%+v", s)
	behind := &session{theirs: s.theirs, teid: s.teid, ue: net.IPv4(10, 60, 250, 5)}
	check("endpoint/framed-route", w.echoes(behind, "from behind the UE") != nil, "%v", behind.ue)
	removed := w.modify(s, ie.NewRemoveTrafficEndpoint(ie.NewTrafficEndpointID(1)))
	w.gnb.uplink(s.teid, s.ue, w.echo, []byte("too late"))
	check("endpoint/removed", removed.cause() == ie.CauseRequestAccepted && w.gnb.receive(gtpErrorIndication, patience) != nil, "cause %d", removed.cause())
	w.remove(s)
}

// quota stops traffic when it is used up, says so, and lets it go on when there is more.
func (w *world) quota() {
	w.forget()
	urr := ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 0),
		ie.NewReportingTriggers(0, triggerVolumeQuota, 0),
		ie.NewVolumeQuota(0x01, 4*packetOctets, 0, 0))
	s := w.establish(w.metered(urr, w.forwarding()...))
	for number := 0; number < 2; number++ {
		w.gnb.uplink(s.teid, s.ue, w.echo, payload(number))
		w.gnb.receive(gtpGPDU, patience)
	}
	report := w.request(patience, reportOf(s, isUsage))
	if report == nil {
		check("quota/reported", false, "no report")
		return
	}
	said := report.usages(ie.UsageReportWithinSessionReportRequest)
	used := len(said) == 1 && len(said[0].because) > 1 && said[0].because[1] == becauseVolumeQuota && said[0].volume.TotalVolume == 4*packetOctets
	check("quota/reported", used, "%+v", said)
	w.gnb.uplink(s.teid, s.ue, w.echo, payload(2))
	check("quota/stops", w.gnb.receive(gtpGPDU, time.Second) == nil, "a packet")
	more := w.modify(s, ie.NewUpdateURR(ie.NewURRID(1), ie.NewVolumeQuota(0x01, 4*packetOctets, 0, 0)))
	check("quota/renewed", more.cause() == ie.CauseRequestAccepted && w.echoes(s, "again") != nil, "cause %d", more.cause())
	w.remove(s)
}

// duration measures time from the start, and is told when a second has passed.
func (w *world) duration() {
	w.forget()
	urr := ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 0, 1),
		ie.NewReportingTriggers(triggerTimeThreshold, 0, 0),
		ie.NewTimeThreshold(time.Second),
		ie.NewMeasurementInformation(0x08)) // ISTM
	s := w.establish(w.metered(urr, w.forwarding()...))
	report := w.request(patience, reportOf(s, isUsage))
	if report == nil {
		check("report/time-threshold", false, "no report")
		return
	}
	said := report.usages(ie.UsageReportWithinSessionReportRequest)
	passed := len(said) == 1 && said[0].because[0] == becauseTimeThreshold && said[0].duration >= time.Second
	check("report/time-threshold", passed, "%+v", said)
	w.remove(s)
}

// inactivity is reported once for a session without traffic.
func (w *world) inactivity() {
	w.forget()
	s := w.establish(append(w.rules(w.tunnel(downlinkTEID)), ie.NewUserPlaneInactivityTimer(time.Second)))
	report := w.request(patience, reportOf(s, func(i *ie.IE) bool { return i.HasUPIR() }))
	check("report/inactivity", report != nil, "%v", report != nil)
	w.remove(s)
}

// rate sends much more than the maximum bit rate allows.
func (w *world) rate() {
	const sent = 100
	s := w.establish(w.rules(w.tunnel(downlinkTEID)))
	slow := w.modify(s, ie.NewUpdateQER(ie.NewQERID(1), ie.NewMBR(1, 1)))
	for number := 0; number < sent; number++ {
		w.gnb.uplink(s.teid, s.ue, w.echo, payload(number))
	}
	came := 0
	for w.gnb.receive(gtpGPDU, time.Second) != nil {
		came++
	}
	check("rate/limits", slow.cause() == 1 && 0 < came && came < sent/2, "cause %d, %d of %d", slow.cause(), came, sent)
	fast := w.modify(s, ie.NewUpdateQER(ie.NewQERID(1), ie.NewMBR(100_000, 100_000)))
	check("rate/lifted", fast.cause() == 1 && w.echoes(s, "fast again") != nil, "cause %d", fast.cause())
	w.remove(s)
}

// sets deletes the sessions of an FQ-CSID together, and moves the reports of another.
func (w *world) sets() {
	var lost []*session
	for range [2]int{} {
		lost = append(lost, w.establish(append(w.rules(w.tunnel(downlinkTEID)), ie.NewFQCSID(w.local.String(), 7))))
	}
	kept := w.establish(append(w.rules(w.tunnel(downlinkTEID)), ie.NewFQCSID(w.local.String(), 8)))
	deleted := w.ask(message.NewSessionSetDeletionRequest(w.next(), w.nodeID(), ie.NewFQCSID(w.local.String(), 7)))
	_, is := deleted.message.(*message.SessionSetDeletionResponse)
	check("set/deletion", is && deleted.cause() == ie.CauseRequestAccepted, "cause %d", deleted.cause())
	gone := ""
	for _, s := range lost {
		gone += fmt.Sprint(w.remove(s).cause(), " ")
	}
	check("set/deletion-of-all", gone == "65 65 ", "causes %s", gone)
	change := ie.NewGroupedIE(sessionChangeInfo,
		ie.NewFQCSID(w.local.String(), 8), ie.NewAlternativeSMFIPAddress(w.local, nil))
	changed := w.ask(message.NewGenericWithoutSEID(setModificationRequest, w.next(), w.nodeID(), change))
	response := changed.message.MessageType() == setModificationRequest+1
	check("set/modification", response && changed.cause() == ie.CauseRequestAccepted, "cause %d", changed.cause())
	check("set/others-stay", w.remove(kept).cause() == ie.CauseRequestAccepted, "%+v", kept)
}

// preparedRelease asks for all usage before the association ends (PARPS): sessions end with reports, then the node says so.
func (w *world) preparedRelease() {
	w.forget()
	urr := ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 0), ie.NewReportingTriggers(0, 0, 0))
	s := w.establish(w.metered(urr, w.forwarding()...))
	w.echoes(s, "counted")
	asked := w.ask(message.NewAssociationUpdateRequest(w.next(), w.nodeID(), ie.NewPFCPAUReqFlags(1)))
	report := w.request(patience, reportOf(s, isUsage))
	if report == nil {
		check("association/prepared-release", false, "cause %d, no report", asked.cause())
		return
	}
	said := report.usages(ie.UsageReportWithinSessionReportRequest)
	ended := len(said) == 1 && said[0].volume != nil && said[0].volume.TotalVolume == 2*(28+7)
	check("association/prepared-release", ended && report.find(ie.PFCPSRReqFlags) != nil, "%+v", said)
	last := w.request(patience, func(h *heard) bool {
		_, is := h.message.(*message.AssociationUpdateRequest)
		return is && h.find(ie.PFCPAssociationReleaseRequest) != nil
	})
	check("association/all-usage-said", last != nil, "%v", last != nil)
}
