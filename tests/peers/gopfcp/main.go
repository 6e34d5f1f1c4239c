// Command gopfcp is a control plane made of github.com/wmnsk/go-pfcp: it runs every procedure of TS 29.244 against a
// user plane, is the access network's end of the tunnels beside it, and prints one line of JSON for each thing that
// it looked at.
//
//	gopfcp -smf 10.100.4.2 -upf 10.100.4.1 -gnb 10.100.3.2 -n3 10.100.3.1 -echo 10.100.6.2:7
//
// The echo server is in the data network. It ends with 0 when it came to its end, whatever was seen.
package main

import (
	"flag"
	"net"
)

// world is who takes part.
type world struct {
	*peer
	gnb  *gnb
	n3   net.IP
	echo *net.UDPAddr
	// rule is the name of a predefined rule that drops what the echo server sends.
	rule string
}

func main() {
	smf := flag.String("smf", "10.100.4.2", "our PFCP address")
	upf := flag.String("upf", "10.100.4.1", "the user plane's PFCP address")
	access := flag.String("gnb", "10.100.3.2", "our GTP-U address")
	n3 := flag.String("n3", "10.100.3.1", "the user plane's GTP-U address")
	echo := flag.String("echo", "10.100.6.2:7", "a UDP echo server in the data network")
	rule := flag.String("rule", "no-echo", "a predefined rule that drops what the echo server sends")
	flag.Parse()
	to, err := net.ResolveUDPAddr("udp", *echo)
	if err != nil {
		fatal("-echo: %v", err)
	}
	w := &world{
		peer: connect(net.ParseIP(*smf), net.ParseIP(*upf)),
		gnb:  openGNB(net.ParseIP(*access), net.ParseIP(*n3)),
		n3:   net.ParseIP(*n3),
		echo: to,
		rule: *rule,
	}
	w.beforeAssociation()
	w.association()
	w.sessions()
	w.refusals()
	w.reliability()
	w.endpoints()
	w.applications()
	w.predefined()
	w.usage()
	w.quota()
	w.duration()
	w.inactivity()
	w.rate()
	w.paging()
	w.errorIndication()
	w.sets()
	w.paths()
	w.end()
}
