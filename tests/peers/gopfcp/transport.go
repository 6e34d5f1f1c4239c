package main

import (
	"bytes"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// reliability looks at repeated requests, bundled ones, and those that nobody answers.
func (w *world) reliability() {
	request := w.establishment(w.rules(w.tunnel(downlinkTEID)))
	first := w.ask(request)
	again := w.ask(request)
	check("retransmission/same-octets", bytes.Equal(first.raw, again.raw), "% x", again.raw)
	s := w.take(request, first)

	// The first has the FO flag: another message follows it in the datagram.
	one := message.NewSessionModificationRequest(0, 1, s.theirs, w.next(), 0,
		ie.NewUpdateQER(ie.NewQERID(1), ie.NewMBR(200_000, 200_000)))
	two := message.NewSessionDeletionRequest(0, 0, s.theirs, w.next(), 0)
	w.sendRaw(append(octets(one), octets(two)...))
	changed := w.answer(one.Sequence())
	deleted := w.answer(two.Sequence())
	both := changed.cause() == ie.CauseRequestAccepted && deleted.cause() == ie.CauseRequestAccepted
	check("bundle/each-answered", both, "causes %d, %d", changed.cause(), deleted.cause())

	for name, kind := range map[string]uint8{"response": message.MsgTypeSessionDeletionResponse, "unknown": 99} {
		w.send(message.NewGeneric(kind, s.theirs, w.next(), ie.NewCause(ie.CauseRequestAccepted)))
		check("unexpected/"+name, w.silent(w.sequence), "sequence %d", w.sequence)
	}
	beat := w.ask(message.NewHeartbeatRequest(w.next(), ie.NewRecoveryTimeStamp(w.started), nil))
	check("unexpected/still-alive", beat.find(ie.RecoveryTimeStamp) != nil, "%s", beat.message.MessageTypeName())
}
