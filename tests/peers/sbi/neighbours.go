package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// core is the SMF's neighbours, and what they know.
type core struct {
	address string
	smf     string
	client  *http.Client
	tell    *lines

	// watching is how many subscriptions the NRF has.
	watching atomic.Int64

	mutex sync.Mutex
	// policy is the decision of the PCF for sessions to come (TS 29.512 5.6.2.4).
	policy map[string]any
	// dnn is the subscription to every data network (TS 29.503 6.1.6.2.9).
	dnn map[string]any
	// granted is the volume that the CHF grants at a time; without it there is no CHF.
	granted int64
	waiting map[sessionKey]chan transfer
	known   map[sessionKey]*session
}

// services are what each neighbour offers, by its type.
var services = map[string][]string{
	"UDM": {"nudm-sdm", "nudm-uecm"},
	"PCF": {"npcf-smpolicycontrol"},
	"AMF": {"namf-comm"},
	"CHF": {"nchf-convergedcharging"},
}

// versions are the same for every service.
var versions = []any{
	map[string]any{"apiVersionInUri": "v1", "apiFullVersion": "1.0.0"},
	map[string]any{"apiVersionInUri": "v2", "apiFullVersion": "2.0.0"},
}

type handler func(request *http.Request, body map[string]any) (status int, location string, answer any)

// routes are the neighbours' resources. Versions of a service differ between SMFs; what is used of them does not.
func (c *core) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]handler{
		"PUT /nnrf-nfm/v1/nf-instances/{id}":                             c.register,
		"PATCH /nnrf-nfm/v1/nf-instances/{id}":                           done,
		"DELETE /nnrf-nfm/v1/nf-instances/{id}":                          done,
		"POST /nnrf-nfm/v1/subscriptions":                                c.watch,
		"PATCH /nnrf-nfm/v1/subscriptions/{id}":                          done,
		"DELETE /nnrf-nfm/v1/subscriptions/{id}":                         done,
		"GET /nnrf-disc/v1/nf-instances":                                 c.discover,
		"GET /nudm-sdm/{version}/{ue}/sm-data":                           c.subscription,
		"POST /nudm-sdm/{version}/{ue}/sdm-subscriptions":                c.subscribe,
		"DELETE /nudm-sdm/{version}/{ue}/sdm-subscriptions/{id}":         done,
		"PUT /nudm-uecm/v1/{ue}/registrations/smf-registrations/{id}":    c.serves,
		"DELETE /nudm-uecm/v1/{ue}/registrations/smf-registrations/{id}": done,
		"POST /npcf-smpolicycontrol/v1/sm-policies":                      c.decide,
		"POST /npcf-smpolicycontrol/v1/sm-policies/{id}/update":          c.decide,
		"POST /npcf-smpolicycontrol/v1/sm-policies/{id}/delete":          done,
		"POST /nchf-convergedcharging/{version}/chargingdata":            c.charge,
		"POST /nchf-convergedcharging/{version}/chargingdata/{id}/{op}":  c.charge,
		"POST /namf-callback/{ue}/{session}":                             c.status,
	} {
		mux.Handle(pattern, answering(handle))
	}
	mux.HandleFunc("POST /namf-comm/v1/ue-contexts/{ue}/n1-n2-messages", c.receive)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.tell.write(map[string]any{"event": "unknown", "method": r.Method, "path": r.URL.Path})
		http.NotFound(w, r)
	})
	return mux
}

// answering reads and writes the JSON around a handler.
func answering(handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body) // Some requests have none.
		status, location, answer := handle(r, body)
		if location != "" {
			w.Header().Set("Location", location)
		}
		if answer == nil {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	})
}

func done(*http.Request, map[string]any) (int, string, any) {
	return http.StatusNoContent, "", nil
}

// register is the NRF's: the profile comes back as it is (TS 29.510 5.2.2.2).
func (c *core) register(r *http.Request, body map[string]any) (int, string, any) {
	c.tell.write(map[string]any{"event": "registered"})
	return http.StatusCreated, c.address + r.URL.Path, body
}

// watch is the NRF's: the SMF wants to hear of neighbours that come and go, and none does (TS 29.510 5.2.2.5).
func (c *core) watch(r *http.Request, body map[string]any) (int, string, any) {
	watching := fmt.Sprintf("%d", c.watching.Add(1))
	body["subscriptionId"] = watching
	return http.StatusCreated, c.address + r.URL.Path + "/" + watching, body
}

// discover is the NRF's: everybody is here (TS 29.510 5.3.2.2).
func (c *core) discover(r *http.Request, _ map[string]any) (int, string, any) {
	kind := r.URL.Query().Get("target-nf-type")
	c.mutex.Lock()
	absent := kind == "CHF" && c.granted == 0
	c.mutex.Unlock()
	found := []any{}
	if names := services[kind]; names != nil && !absent {
		offered := []any{}
		for _, name := range names {
			offered = append(offered, map[string]any{
				"serviceInstanceId": name, "serviceName": name, "scheme": "http", "nfServiceStatus": "REGISTERED",
				"versions":  versions,
				"apiPrefix": c.address, "ipEndPoints": []any{c.endPoint()},
			})
		}
		found = append(found, map[string]any{
			"nfInstanceId": "00000000-0000-4000-8000-0000000000" + fmt.Sprintf("%02x", kind[0]),
			"nfType":       kind, "nfStatus": "REGISTERED", "nfServices": offered,
		})
	}
	return http.StatusOK, "", map[string]any{"validityPeriod": 100, "nfInstances": found}
}

// endPoint is where everybody is, for SMFs that take it from there and not from the prefix.
func (c *core) endPoint() map[string]any {
	host, name, _ := net.SplitHostPort(strings.TrimPrefix(c.address, "http://"))
	port, _ := strconv.Atoi(name)
	return map[string]any{"ipv4Address": host, "transport": "TCP", "port": port}
}

// subscription is the UDM's (TS 29.503 5.2.2.2.5).
func (c *core) subscription(r *http.Request, _ map[string]any) (int, string, any) {
	var slice map[string]any
	_ = json.Unmarshal([]byte(r.URL.Query().Get("single-nssai")), &slice)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	networks := map[string]any{r.URL.Query().Get("dnn"): c.dnn}
	return http.StatusOK, "", []any{map[string]any{"singleNssai": slice, "dnnConfigurations": networks}}
}

// subscribe is the UDM's: the SMF wants to hear of changes, of which there are none.
func (c *core) subscribe(r *http.Request, body map[string]any) (int, string, any) {
	body["subscriptionId"] = "1"
	return http.StatusCreated, c.address + r.URL.Path + "/1", body
}

// serves is the UDM's: the SMF serves a session (TS 29.503 5.3.2.2.4).
func (c *core) serves(r *http.Request, body map[string]any) (int, string, any) {
	return http.StatusCreated, c.address + r.URL.Path, body
}

// decide is the PCF's: the decision that was given by the command `policy` (TS 29.512 4.2.2.2).
func (c *core) decide(r *http.Request, body map[string]any) (int, string, any) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	supi, _ := body["supi"].(string)
	number, _ := body["pduSessionId"].(float64)
	if held := c.known[sessionKey{supi, int(number)}]; held != nil {
		held.notify, _ = body["notificationUri"].(string)
	}
	if r.PathValue("id") != "" {
		return http.StatusOK, "", c.policy
	}
	return http.StatusCreated, fmt.Sprintf("%s%s/%s-%d", c.address, r.URL.Path, supi, int(number)), c.policy
}

// charge is the CHF's: what was used is told, and as much granted again (TS 32.291).
func (c *core) charge(r *http.Request, body map[string]any) (int, string, any) {
	op := r.PathValue("op")
	c.tell.write(map[string]any{"event": "charging", "operation": op, "request": body})
	if op == "release" {
		return http.StatusNoContent, "", nil
	}
	c.mutex.Lock()
	granted := c.granted
	c.mutex.Unlock()
	units := []any{}
	used, _ := body["multipleUnitUsage"].([]any)
	for _, use := range used {
		usage, _ := use.(map[string]any)
		units = append(units, map[string]any{
			"ratingGroup": usage["ratingGroup"], "resultCode": "SUCCESS", "uPFID": usage["uPFID"],
			"grantedUnit":          map[string]any{"totalVolume": granted, "uplinkVolume": granted, "downlinkVolume": granted},
			"volumeQuotaThreshold": granted / 2,
		})
	}
	answer := map[string]any{
		"invocationTimeStamp":      body["invocationTimeStamp"],
		"invocationSequenceNumber": body["invocationSequenceNumber"],
		"multipleUnitInformation":  units,
	}
	if op == "" {
		return http.StatusCreated, c.address + r.URL.Path + "/1", answer
	}
	return http.StatusOK, "", answer
}

// status is the AMF's: a session is gone.
func (c *core) status(r *http.Request, body map[string]any) (int, string, any) {
	c.tell.write(map[string]any{"event": "status", "supi": r.PathValue("ue"), "request": body})
	return http.StatusNoContent, "", nil
}
