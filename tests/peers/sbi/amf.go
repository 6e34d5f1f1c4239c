package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// patience is how long an SMF may take on a slow machine.
const patience = 30 * time.Second

// command is a line that we are sent.
type command struct {
	ID int64  `json:"id"`
	Do string `json:"do"`
	// Which session.
	SUPI    string `json:"supi"`
	Session int    `json:"session"`
	// For `create`.
	DNN   string         `json:"dnn"`
	Slice map[string]any `json:"slice"`
	Type  byte           `json:"type"`
	// For `activate`, `serve`, `switch` and `handover`: the gNB's end of the tunnel.
	GNB tunnel `json:"gnb"`
	// For `handover`: the new gNB's end of the tunnel for packets that the old one has left.
	Forwarding tunnel `json:"forwarding"`
	// For `add`: the flow that the gNB has set up.
	QFI int64 `json:"qfi"`
	// For `policy` and `subscribe`.
	Decision map[string]any `json:"decision"`
	Network  map[string]any `json:"network"`
	Granted  int64          `json:"granted"`
}

type sessionKey struct {
	supi   string
	number int
}

// session is an SM context of the SMF.
type session struct {
	resource string
	// notify is where the PCF sends changes of its decision.
	notify string
	flows  []int64
}

func (c *core) carryOut(order command) (map[string]any, error) {
	key := sessionKey{order.SUPI, order.Session}
	if order.Do == "configure" {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.policy, c.dnn, c.granted = order.Decision, order.Network, order.Granted
		return nil, nil
	}
	if order.Do == "create" {
		return c.create(key, order)
	}
	c.mutex.Lock()
	held := c.known[key]
	c.mutex.Unlock()
	if held == nil {
		return nil, fmt.Errorf("there is no session %d of %s", order.Session, order.SUPI)
	}
	switch order.Do {
	case "activate":
		return nil, c.answerSetup(held, order.GNB)
	case "idle":
		_, err := c.modify(held, map[string]any{"upCnxState": "DEACTIVATED"}, nil)
		return nil, err
	case "serve":
		return c.serve(held, order.GNB)
	case "switch":
		n2, err := pathSwitch(order.GNB, held.flows)
		if err != nil {
			return nil, err
		}
		_, err = c.modify(held, map[string]any{"n2SmInfoType": "PATH_SWITCH_REQ"}, n2)
		return nil, err
	case "handover":
		return c.handOver(held, order.GNB, order.Forwarding)
	case "complete":
		_, err := c.modify(held, map[string]any{"hoState": "COMPLETED"}, nil)
		return nil, err
	case "decide":
		_, err := c.post(held.notify+"/update", parts{json: map[string]any{
			"resourceUri": held.notify, "smPolicyDecision": order.Decision,
		}}, false)
		return nil, err
	case "add":
		n2, err := modifyResponse(order.QFI)
		if err != nil {
			return nil, err
		}
		_, err = c.modify(held, map[string]any{"n2SmInfoType": "PDU_RES_MOD_RSP"}, n2)
		return nil, err
	case "release":
		_, err := c.post(held.resource+"/release", parts{json: map[string]any{"cause": "REL_DUE_TO_DUPLICATE_SESSION_ID"}}, true)
		c.mutex.Lock()
		delete(c.known, key)
		c.mutex.Unlock()
		return nil, err
	}
	return nil, fmt.Errorf("%q is no command", order.Do)
}

// create sets up a session up to what the UE and the gNB are told (TS 23.502 4.3.2.2.1 up to step 11).
func (c *core) create(key sessionKey, order command) (map[string]any, error) {
	came := make(chan transfer, 1)
	held := &session{}
	c.mutex.Lock()
	c.waiting[key], c.known[key] = came, held
	c.mutex.Unlock()
	defer func() {
		c.mutex.Lock()
		delete(c.waiting, key)
		c.mutex.Unlock()
	}()
	network := map[string]any{"mcc": "208", "mnc": "93"}
	response, err := c.post(c.smf+"/nsmf-pdusession/v1/sm-contexts", parts{
		json: map[string]any{
			"supi": key.supi, "gpsi": "msisdn-" + key.supi[5:], "pei": "imeisv-1110000000000000", "pduSessionId": key.number,
			"dnn": order.DNN, "sNssai": order.Slice, "servingNfId": "00000000-0000-4000-8000-000000000041",
			"guami": map[string]any{"plmnId": network, "amfId": "cafe00"}, "servingNetwork": network,
			"requestType": "INITIAL_REQUEST", "n1SmMsg": map[string]any{"contentId": "n1"}, "anType": "3GPP_ACCESS",
			"ratType": "NR", "ueLocation": location(network), "smContextStatusUri": fmt.Sprintf("%s/namf-callback/%s/%d", c.address, key.supi, key.number),
		},
		n1: establishmentRequest(key.number, order.Type),
	}, true)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	held.resource = c.resource(response.Header.Get("Location"))
	c.mutex.Unlock()
	select {
	case told := <-came:
		if told.Refused != 0 {
			return nil, fmt.Errorf("the SMF refuses the session, cause %d", told.Refused)
		}
		held.flows = told.QFIs
		return map[string]any{"told": told}, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("the SMF says nothing to the UE within %v", patience)
	}
}

// location is a cell and its tracking area (TS 29.571 5.4.4.9).
func location(network map[string]any) map[string]any {
	return map[string]any{"nrLocation": map[string]any{
		"tai":  map[string]any{"plmnId": network, "tac": "000001"},
		"ncgi": map[string]any{"plmnId": network, "nrCellId": "000000010"},
	}}
}

// resource is where an SM context is. free5GC's SMF knows it by the URN of the UUID that its Location ends with, others
// by its last part as it is.
func (c *core) resource(location string) string {
	name := location[strings.LastIndex(location, "/")+1:]
	if len(name) == len("00000000-0000-4000-8000-000000000000") {
		name = "urn:uuid:" + name
	}
	return c.smf + "/nsmf-pdusession/v1/sm-contexts/" + name
}

// answerSetup tells the SMF the gNB's end of the tunnel.
func (c *core) answerSetup(held *session, gnb tunnel) error {
	n2, err := setupResponse(gnb, held.flows)
	if err != nil {
		return err
	}
	_, err = c.modify(held, map[string]any{"n2SmInfoType": "PDU_RES_SETUP_RSP"}, n2)
	return err
}

// serve is a service request of an idle UE (TS 23.502 4.2.3.2).
func (c *core) serve(held *session, gnb tunnel) (map[string]any, error) {
	answer, err := c.modify(held, map[string]any{"upCnxState": "ACTIVATING"}, nil)
	if err != nil {
		return nil, err
	}
	told, err := understand(parts{n2: answer.n2})
	if err != nil {
		return nil, err
	}
	return map[string]any{"told": told}, c.answerSetup(held, gnb)
}

// handOver prepares an N2 handover (TS 23.502 4.9.1.3.2): where the old gNB sends what it has left is told.
func (c *core) handOver(held *session, gnb, forwarding tunnel) (map[string]any, error) {
	required, err := handoverRequired()
	if err != nil {
		return nil, err
	}
	state := map[string]any{"hoState": "PREPARING", "n2SmInfoType": "HANDOVER_REQUIRED"}
	if _, err = c.modify(held, state, required); err != nil {
		return nil, err
	}
	acknowledged, err := handoverAcknowledge(gnb, forwarding, held.flows)
	if err != nil {
		return nil, err
	}
	state = map[string]any{"hoState": "PREPARED", "n2SmInfoType": "HANDOVER_REQ_ACK"}
	answer, err := c.modify(held, state, acknowledged)
	if err != nil {
		return nil, err
	}
	to, err := forwardingTunnel(answer.n2)
	return map[string]any{"forwarding": to}, err
}

func (c *core) modify(held *session, change map[string]any, n2 []byte) (parts, error) {
	if n2 != nil {
		change["n2SmInfo"] = map[string]any{"contentId": "n2"}
	}
	response, err := c.post(held.resource+"/modify", parts{json: change, n2: n2}, true)
	if err != nil || response.StatusCode == http.StatusNoContent {
		return parts{}, err
	}
	defer response.Body.Close()
	return read(response.Header, response.Body)
}

// post sends to the SMF; what it does not accept is an error.
func (c *core) post(url string, message parts, multipart bool) (*http.Response, error) {
	body, kind, err := message.write()
	if !multipart {
		var content []byte
		content, err = json.Marshal(message.json)
		body, kind = bytes.NewBuffer(content), typeJSON
	}
	if err != nil {
		return nil, err
	}
	response, err := c.client.Post(url, kind, body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return nil, fmt.Errorf("%s: %s: %q", url, response.Status, said)
	}
	return response, nil
}

// receive is the AMF's N1N2MessageTransfer (TS 29.518 5.2.2.3.1): what a session that is being set up waits for, or a
// UE to be paged.
func (c *core) receive(w http.ResponseWriter, r *http.Request) {
	message, err := read(r.Header, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	number, _ := message.json["pduSessionId"].(float64)
	key := sessionKey{r.PathValue("ue"), int(number)}
	told, err := understand(message)
	if err != nil {
		c.tell.write(map[string]any{"event": "unreadable", "why": err.Error()})
	}
	c.mutex.Lock()
	came := c.waiting[key]
	delete(c.waiting, key)
	c.mutex.Unlock()
	w.Header().Set("Content-Type", typeJSON)
	if came != nil {
		_ = json.NewEncoder(w).Encode(map[string]any{"cause": "N1_N2_TRANSFER_INITIATED"})
		came <- told
		return
	}
	c.tell.write(map[string]any{"event": "paging", "supi": key.supi, "session": key.number, "n1": message.n1 != nil, "told": told})
	w.Header().Set("Location", fmt.Sprintf("%s%s/%d", c.address, r.URL.Path, key.number))
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(map[string]any{"cause": "ATTEMPTING_TO_REACH_UE"})
}
