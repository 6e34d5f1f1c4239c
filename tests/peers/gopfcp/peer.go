package main

import (
	"net"
	"sync"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

const (
	// answerTimeout bounds the wait for an answer; the loopback of a busy machine is slow, not lossy.
	answerTimeout = 10 * time.Second
	// datagramMax is more than any UDP datagram holds.
	datagramMax = 65536
)

// heard is a message from the user plane, as octets and as go-pfcp reads it.
type heard struct {
	raw     []byte
	message message.Message
	ies     []*ie.IE
}

// find returns the first IE of a type, or nil.
func (h *heard) find(kind uint16) *ie.IE { return find(h.ies, kind) }

func find(ies []*ie.IE, kind uint16) *ie.IE {
	for _, element := range ies {
		if element.Type == kind {
			return element
		}
	}
	return nil
}

// children returns the IEs of a grouped IE of a type, of each one that is there.
func (h *heard) children(kind uint16) [][]*ie.IE {
	var all [][]*ie.IE
	for _, element := range h.ies {
		if element.Type == kind {
			inner, err := ie.ParseMultiIEs(element.Payload)
			if err != nil {
				fatal("IE %d: %v", kind, err)
			}
			all = append(all, inner)
		}
	}
	return all
}

// cause returns the value of the Cause IE, 0 without one.
func (h *heard) cause() uint8 {
	element := h.find(ie.Cause)
	if element == nil {
		return 0
	}
	cause, err := element.Cause()
	if err != nil {
		return 0
	}
	return cause
}

// peer is the control plane: one socket, requests with their answers, and what the user plane asks by itself.
type peer struct {
	conn     *net.UDPConn
	local    net.IP
	started  time.Time
	sequence uint32
	answers  chan *heard
	asked    chan *heard

	lock sync.Mutex
	// silences counts the session reports that are still to be left without an answer.
	silences int
	// accepts says whether an association that the user plane asks for is accepted.
	accepts bool
	// seids leads from our SEID to that of the user plane, for the header of report responses.
	seids map[uint64]uint64
}

func connect(local, upf net.IP) *peer {
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: local, Port: 8805}, &net.UDPAddr{IP: upf, Port: 8805})
	if err != nil {
		fatal("PFCP socket: %v", err)
	}
	p := &peer{
		conn:    conn,
		local:   local,
		started: time.Now(),
		answers: make(chan *heard, 1024),
		asked:   make(chan *heard, 1024),
		seids:   make(map[uint64]uint64),
	}
	go p.listen()
	return p
}

func (p *peer) listen() {
	buffer := make([]byte, datagramMax)
	for {
		length, err := p.conn.Read(buffer)
		if err != nil {
			continue // Port unreachable while the node starts.
		}
		rest := append([]byte(nil), buffer[:length]...)
		// Bundled messages (TS 29.244 6.5) follow each other in a datagram.
		for len(rest) >= 8 {
			end := 4 + int(rest[2])<<8 + int(rest[3])
			if end > len(rest) {
				fatal("a message of %d octets in %d", end, len(rest))
			}
			p.take(rest[:end])
			rest = rest[end:]
		}
	}
}

func (p *peer) take(raw []byte) {
	parsed, err := message.Parse(raw)
	if err != nil {
		fatal("go-pfcp cannot read % x: %v", raw, err)
	}
	header, err := message.ParseHeader(raw)
	if err != nil {
		fatal("go-pfcp cannot read the header of % x: %v", raw, err)
	}
	ies, err := ie.ParseMultiIEs(header.Payload)
	if err != nil {
		fatal("go-pfcp cannot read the IEs of % x: %v", raw, err)
	}
	one := &heard{raw, parsed, ies}
	accepted := ie.NewCause(ie.CauseRequestAccepted)
	sequence := parsed.Sequence()
	switch request := parsed.(type) {
	case *message.HeartbeatRequest:
		p.send(message.NewHeartbeatResponse(sequence, ie.NewRecoveryTimeStamp(p.started)))
	case *message.NodeReportRequest:
		p.send(message.NewNodeReportResponse(sequence, p.nodeID(), accepted, nil))
	case *message.AssociationUpdateRequest:
		p.send(message.NewAssociationUpdateResponse(sequence, p.nodeID(), accepted))
	case *message.AssociationSetupRequest:
		// Else left without an answer: it is asked again.
		if p.accepting() {
			p.send(message.NewAssociationSetupResponse(sequence, p.nodeID(), accepted, ie.NewRecoveryTimeStamp(p.started)))
		}
	case *message.SessionReportRequest:
		if seid, answer := p.reported(request.SEID()); answer {
			p.send(message.NewSessionReportResponse(0, 0, seid, sequence, 0, accepted))
		}
	default:
		p.answers <- one
		return
	}
	p.asked <- one
}

// reported says to which SEID a report is answered, and whether.
func (p *peer) reported(ours uint64) (uint64, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.silences > 0 {
		p.silences--
		return 0, false
	}
	return p.seids[ours], true
}

// accepting says whether associations that the user plane asks for are accepted.
func (p *peer) accepting() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.accepts
}

// accept has associations accepted from now on.
func (p *peer) accept() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.accepts = true
}

// leaveUnanswered keeps silent towards so many of the next session reports.
func (p *peer) leaveUnanswered(count int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.silences = count
}

func (p *peer) nodeID() *ie.IE { return ie.NewNodeID(p.local.String(), "", "") }

// next returns a fresh sequence number.
func (p *peer) next() uint32 {
	p.sequence++
	return p.sequence
}

func octets(m message.Message) []byte {
	raw := make([]byte, m.MarshalLen())
	if err := m.MarshalTo(raw); err != nil {
		fatal("go-pfcp cannot write %s: %v", m.MessageTypeName(), err)
	}
	return raw
}

func (p *peer) send(m message.Message) { p.sendRaw(octets(m)) }

func (p *peer) sendRaw(raw []byte) {
	if _, err := p.conn.Write(raw); err != nil {
		fatal("send: %v", err)
	}
}

// ask sends a request and returns its answer.
func (p *peer) ask(m message.Message) *heard {
	p.send(m)
	return p.answer(m.Sequence())
}

// answer waits for the answer with a sequence number, and steps over those to earlier requests.
func (p *peer) answer(sequence uint32) *heard {
	deadline := time.After(answerTimeout)
	for {
		select {
		case one := <-p.answers:
			if one.message.Sequence() == sequence {
				return one
			}
		case <-deadline:
			fatal("no answer to request %d", sequence)
		}
	}
}

// silent says whether nothing comes back to a request within a short time.
func (p *peer) silent(sequence uint32) bool {
	deadline := time.After(500 * time.Millisecond)
	for {
		select {
		case one := <-p.answers:
			if one.message.Sequence() == sequence {
				return false
			}
		case <-deadline:
			return true
		}
	}
}

// request waits for a request of the user plane's own that is wanted, and steps over others; nil in vain.
func (p *peer) request(within time.Duration, wanted func(*heard) bool) *heard {
	deadline := time.After(within)
	for {
		select {
		case one := <-p.asked:
			if wanted(one) {
				return one
			}
		case <-deadline:
			return nil
		}
	}
}

// forget drops the requests that came so far.
func (p *peer) forget() {
	for {
		select {
		case <-p.asked:
		default:
			return
		}
	}
}
