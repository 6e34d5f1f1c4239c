package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// Reporting Triggers (TS 29.244 8.2.19), first octet.
const (
	triggerPeriodic        = 1 << 0
	triggerVolumeThreshold = 1 << 1
	triggerTimeThreshold   = 1 << 2
	// In the second octet.
	triggerVolumeQuota = 1 << 0
)

// Usage Report Trigger (TS 29.244 8.2.41), first octet.
const (
	becausePeriodic        = 1 << 0
	becauseVolumeThreshold = 1 << 1
	becauseTimeThreshold   = 1 << 2
	becauseImmediate       = 1 << 7
	// In the second octet.
	becauseVolumeQuota = 1 << 0
)

// packetOctets is the length of the inner packets sent here: IPv4, UDP, and the payload.
const packetOctets = 28 + 172

// payload is that of a packet of that length.
func payload(number int) []byte {
	return []byte(fmt.Sprintf("%-172d", number))
}

// reportOf recognises the next session report of a session, with a flag of its type.
func reportOf(s *session, has func(*ie.IE) bool) func(*heard) bool {
	return func(h *heard) bool {
		report, is := h.message.(*message.SessionReportRequest)
		return is && report.SEID() == s.ours && report.ReportType != nil && has(report.ReportType)
	}
}

func isUsage(i *ie.IE) bool   { return i.HasUSAR() }
func isPage(i *ie.IE) bool    { return i.HasDLDR() }
func isFailure(i *ie.IE) bool { return i.HasERIR() }

// usage is what a Usage Report says.
type usage struct {
	number, reference uint32
	because           []byte
	volume            *ie.VolumeMeasurementFields
	duration          time.Duration
}

// usages reads the Usage Reports of a type in a message.
func (h *heard) usages(kind uint16) []usage {
	var all []usage
	for _, parts := range h.children(kind) {
		one := usage{}
		if number := find(parts, ie.URSEQN); number != nil {
			one.number, _ = number.URSEQN()
		}
		if reference := find(parts, ie.QueryURRReference); reference != nil {
			one.reference, _ = reference.QueryURRReference()
		}
		if measured := find(parts, ie.DurationMeasurement); measured != nil {
			one.duration, _ = measured.DurationMeasurement()
		}
		if because := find(parts, ie.UsageReportTrigger); because != nil {
			one.because = because.Payload
		}
		if volume := find(parts, ie.VolumeMeasurement); volume != nil {
			one.volume, _ = volume.VolumeMeasurement()
		}
		all = append(all, one)
	}
	return all
}

// total adds volumes up.
func total(usages []usage) (octets, packets uint64) {
	for _, one := range usages {
		if one.volume != nil {
			octets += one.volume.TotalVolume
			packets += one.volume.TotalNumberOfPackets
		}
	}
	return octets, packets
}

// usage meters a session in every way that a report can be asked for, and adds all reports up.
func (w *world) usage() {
	w.forget()
	urr := ie.NewCreateURR(ie.NewURRID(1), ie.NewMeasurementMethod(0, 1, 0),
		ie.NewReportingTriggers(triggerVolumeThreshold, 0, 0),
		ie.NewVolumeThreshold(0x01, 6*packetOctets, 0, 0),
		ie.NewMeasurementInformation(0x10)) // MNOP
	s := w.establish(w.metered(urr, w.forwarding()...))
	var reports []usage
	// Every echo counts twice, up and down: the threshold is crossed by the third.
	w.leaveUnanswered(1)
	for number := 0; number < 3; number++ {
		w.gnb.uplink(s.teid, s.ue, w.echo, payload(number))
		w.gnb.receive(gtpGPDU, patience)
	}
	first := w.request(patience, reportOf(s, isUsage))
	second := w.request(patience, reportOf(s, isUsage))
	if first == nil || second == nil {
		check("report/volume-threshold", false, "reports: %v, %v", first != nil, second != nil)
		return
	}
	reports = append(reports, first.usages(ie.UsageReportWithinSessionReportRequest)...)
	crossed := len(reports) == 1 && reports[0].because[0] == becauseVolumeThreshold && reports[0].volume.TotalVolume == 6*packetOctets
	check("report/volume-threshold", crossed, "%+v", reports)
	check("report/sent-again-unchanged", bytes.Equal(first.raw, second.raw), "% x", second.raw)

	w.gnb.uplink(s.teid, s.ue, w.echo, payload(3))
	w.gnb.receive(gtpGPDU, patience)
	asked := w.modify(s, ie.NewQueryURR(ie.NewURRID(1)), ie.NewQueryURRReference(42))
	queried := asked.usages(ie.UsageReportWithinSessionModificationResponse)
	immediate := len(queried) == 1 && queried[0].because[0] == becauseImmediate && queried[0].volume.TotalVolume == 2*packetOctets
	check("report/query", immediate, "cause %d, %+v", asked.cause(), queried)
	check("report/query-reference", immediate && queried[0].reference == 42, "%+v", queried)
	reports = append(reports, queried...)

	changed := w.modify(s, ie.NewUpdateURR(ie.NewURRID(1), ie.NewReportingTriggers(triggerPeriodic, 0, 0), ie.NewMeasurementPeriod(time.Second)))
	w.gnb.uplink(s.teid, s.ue, w.echo, payload(4))
	w.gnb.receive(gtpGPDU, patience)
	period := w.request(patience, reportOf(s, isUsage))
	if period == nil {
		check("report/periodic", false, "cause %d, no report", changed.cause())
		return
	}
	periodic := period.usages(ie.UsageReportWithinSessionReportRequest)
	check("report/periodic", len(periodic) == 1 && periodic[0].because[0] == becausePeriodic, "%+v", periodic)
	reports = append(reports, periodic...)
	w.gnb.uplink(s.teid, s.ue, w.echo, payload(5))
	w.gnb.receive(gtpGPDU, patience)
	ended := w.remove(s)
	// Reports that were on their way when the deletion was.
	for late := w.request(time.Second, reportOf(s, isUsage)); late != nil; late = w.request(time.Second, reportOf(s, isUsage)) {
		reports = append(reports, late.usages(ie.UsageReportWithinSessionReportRequest)...)
	}
	final := ended.usages(ie.UsageReportWithinSessionDeletionResponse)
	check("report/final", ended.cause() == ie.CauseRequestAccepted && len(final) == 1, "cause %d, %+v", ended.cause(), final)
	reports = append(reports, final...)
	octets, packets := total(reports)
	check("report/sum", octets == 12*packetOctets && packets == 12, "%d octets, %d packets", octets, packets)
	gapless := true
	for place, one := range reports {
		gapless = gapless && one.number == uint32(place)
	}
	check("report/numbered-without-gap", gapless, "%+v", reports)
}

// paging buffers the downlink of an idle UE: one report, and all packets in order when it is reached.
func (w *world) paging() {
	w.forget()
	rules := []*ie.IE{
		uplinkPDR(), downlinkPDR(), uplinkFAR(), qer(),
		ie.NewCreateBAR(ie.NewBARID(1), ie.NewSuggestedBufferingPacketsCount(10)),
		ie.NewCreateFAR(ie.NewFARID(2), ie.NewApplyAction(applyBuffer|applyNotify), ie.NewBARID(1)),
	}
	s := w.establish(rules)
	for number := 0; number < 3; number++ {
		w.gnb.uplink(s.teid, s.ue, w.echo, payload(number))
	}
	report := w.request(patience, reportOf(s, isPage))
	if report == nil {
		check("report/downlink-data", false, "no report")
		return
	}
	parts := report.children(ie.DownlinkDataReport)
	named := len(parts) == 1 && find(parts[0], ie.PDRID) != nil
	check("report/downlink-data", named, "% x", report.raw)
	check("report/downlink-data-once", w.request(time.Second, reportOf(s, isPage)) == nil, "another")
	reached := w.modify(s, ie.NewUpdateFAR(ie.NewFARID(2), ie.NewApplyAction(applyForward),
		ie.NewUpdateForwardingParameters(w.tunnel(downlinkTEID)...)))
	ordered := reached.cause() == ie.CauseRequestAccepted
	for number := 0; number < 3; number++ {
		ordered = ordered && bytes.Equal(w.gnb.receive(gtpGPDU, patience).data(), payload(number))
	}
	check("report/buffered-in-order", ordered, "cause %d", reached.cause())
	w.remove(s)
}

// errorIndication has the access network say that it lost a tunnel; what a stranger's TEID says is not believed.
func (w *world) errorIndication() {
	w.forget()
	s := w.establish(w.rules(w.tunnel(downlinkTEID)))
	w.gnb.errorIndication(downlinkTEID + 99)
	check("report/forged-error-indication", w.request(time.Second, reportOf(s, isFailure)) == nil, "reported")
	w.gnb.errorIndication(downlinkTEID)
	report := w.request(patience, reportOf(s, isFailure))
	if report == nil {
		check("report/error-indication", false, "no report")
		return
	}
	fields, err := report.find(ie.ErrorIndicationReport).FTEID()
	ours := err == nil && fields.TEID == downlinkTEID && fields.IPv4Address.Equal(w.gnb.local)
	check("report/error-indication", ours, "%+v", fields)
	w.remove(s)
}
