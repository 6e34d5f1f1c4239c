// Command sbi is what surrounds an SMF in a 5G core, as far as the SMF sees it on the service-based interface: NRF,
// UDM, PCF, CHF and AMF in one. As the AMF it also drives the SMF: it sets up, idles, wakes, hands over and releases
// PDU sessions, for a gNB that is elsewhere.
//
//	sbi -listen 127.0.0.10:8000 -smf http://127.0.0.2:8000
//
// Commands come as lines of JSON and are carried out side by side. Each is answered with a line that has its `id`,
// and `error` where it failed. Lines with `event` tell what the SMF asked for by itself.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
)

// lines writes lines of JSON, one at a time.
type lines struct {
	mutex sync.Mutex
	out   *json.Encoder
}

func (l *lines) write(line any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err := l.out.Encode(line); err != nil {
		os.Exit(0) // Nobody listens any more.
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.10:8000", "our address on the service-based interface")
	smf := flag.String("smf", "http://127.0.0.2:8000", "the SMF's")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sbi: %v\n", err)
		os.Exit(1)
	}
	// Some SMFs speak HTTP/2 alone, with prior knowledge.
	var asked, served http.Protocols
	asked.SetUnencryptedHTTP2(true)
	served.SetUnencryptedHTTP2(true)
	served.SetHTTP1(true)
	core := &core{
		address: "http://" + *listen,
		smf:     *smf,
		client:  &http.Client{Transport: &http.Transport{Protocols: &asked}},
		tell:    &lines{out: json.NewEncoder(os.Stdout)},
		policy:  map[string]any{},
		waiting: map[sessionKey]chan transfer{},
		known:   map[sessionKey]*session{},
	}
	server := &http.Server{Handler: core.routes(), Protocols: &served}
	go func() {
		fmt.Fprintf(os.Stderr, "sbi: %v\n", server.Serve(listener))
		os.Exit(1)
	}()
	core.tell.write(map[string]any{"event": "listening"})
	core.obey(bufio.NewScanner(os.Stdin))
}

// obey carries out commands until there are no more.
func (c *core) obey(input *bufio.Scanner) {
	input.Buffer(nil, 1<<20)
	for input.Scan() {
		var order command
		if err := json.Unmarshal(input.Bytes(), &order); err != nil {
			c.tell.write(map[string]any{"error": err.Error()})
			continue
		}
		go func() {
			answer, err := c.carryOut(order)
			if answer == nil {
				answer = map[string]any{}
			}
			answer["id"] = order.ID
			if err != nil {
				answer["error"] = err.Error()
			}
			c.tell.write(answer)
		}()
	}
}
