package main

import (
	"encoding/binary"
	"net"
	"time"
)

// GTP-U message types (TS 29.281 6.1).
const (
	gtpEchoRequest     = 1
	gtpEchoResponse    = 2
	gtpErrorIndication = 26
	gtpEndMarker       = 254
	gtpGPDU            = 255
)

// gnb is the access network's end of the tunnels.
type gnb struct {
	conn  *net.UDPConn
	local net.IP
	upf   *net.UDPAddr
	heard chan []byte
}

func openGNB(local, upf net.IP) *gnb {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: local, Port: 2152})
	if err != nil {
		fatal("GTP-U socket: %v", err)
	}
	g := &gnb{conn, local, &net.UDPAddr{IP: upf, Port: 2152}, make(chan []byte, 1024)}
	go g.listen()
	return g
}

func (g *gnb) listen() {
	buffer := make([]byte, datagramMax)
	for {
		length, from, err := g.conn.ReadFromUDP(buffer)
		if err != nil || length < 8 {
			continue
		}
		if buffer[1] == gtpEchoRequest {
			// Restart Counter 0 (TS 29.281 8.2).
			answer := []byte{0x32, gtpEchoResponse, 0, 6, 0, 0, 0, 0, buffer[8], buffer[9], 0, 0, 14, 0}
			_, _ = g.conn.WriteToUDP(answer, from)
			continue
		}
		g.heard <- append([]byte(nil), buffer[:length]...)
	}
}

func (g *gnb) send(raw []byte) {
	if _, err := g.conn.WriteToUDP(raw, g.upf); err != nil {
		fatal("GTP-U: %v", err)
	}
}

// uplink sends a UDP packet of a UE through a tunnel.
func (g *gnb) uplink(teid uint32, ue net.IP, to *net.UDPAddr, payload []byte) {
	inner := udp4(ue.To4(), to.IP.To4(), 4000, uint16(to.Port), payload)
	header := []byte{0x30, gtpGPDU, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(header[2:], uint16(len(inner)))
	binary.BigEndian.PutUint32(header[4:], teid)
	g.send(append(header, inner...))
}

// errorIndication says that there is no tunnel of ours with this TEID (TS 29.281 7.3.1).
func (g *gnb) errorIndication(teid uint32) {
	message := []byte{0x32, gtpErrorIndication, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 16}
	message = binary.BigEndian.AppendUint32(message, teid)
	message = append(message, 133, 0, 4)
	g.send(append(message, g.local.To4()...))
}

// downlink is a message that came through a tunnel.
type downlink struct {
	kind    byte
	teid    uint32
	qfi     int
	payload []byte
}

// receive waits for a message of a kind; nil in vain.
func (g *gnb) receive(kind byte, within time.Duration) *downlink {
	deadline := time.After(within)
	for {
		select {
		case raw := <-g.heard:
			if raw[1] == kind {
				return read(raw)
			}
		case <-deadline:
			return nil
		}
	}
}

// read takes a message apart: the header (TS 29.281 5.1) with its extension headers (5.2).
func read(raw []byte) *downlink {
	one := &downlink{kind: raw[1], teid: binary.BigEndian.Uint32(raw[4:]), qfi: -1}
	at := 8
	if raw[0]&0x07 != 0 {
		next := raw[11]
		at = 12
		for next != 0 {
			length := 4 * int(raw[at])
			if next == 0x85 {
				one.qfi = int(raw[at+2] & 0x3f)
			}
			next = raw[at+length-1]
			at += length
		}
	}
	one.payload = raw[at:]
	return one
}

// data returns what the UDP packet in a G-PDU carries.
func (d *downlink) data() []byte {
	if d == nil || len(d.payload) < 28 {
		return nil
	}
	return d.payload[28:]
}

// udp4 builds an IPv4 packet with a UDP datagram, without UDP checksum.
func udp4(from, to net.IP, fromPort, toPort uint16, payload []byte) []byte {
	packet := make([]byte, 28, 28+len(payload))
	packet[0], packet[8], packet[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(packet[2:], uint16(28+len(payload)))
	copy(packet[12:], from)
	copy(packet[16:], to)
	var sum uint32
	for at := 0; at < 20; at += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[at:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(packet[20:], fromPort)
	binary.BigEndian.PutUint16(packet[22:], toPort)
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(payload)))
	return append(packet, payload...)
}
