package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
)

const (
	typeJSON = "application/json"
	typeNAS  = "application/vnd.3gpp.5gnas"
	typeNGAP = "application/vnd.3gpp.ngap"
)

// parts is a message with binary parts beside its JSON (TS 29.502 6.1.2.4).
type parts struct {
	json map[string]any
	n1   []byte
	n2   []byte
}

// write gives the body and its type. The JSON names the binary parts by "n1" and "n2".
func (p parts) write() (*bytes.Buffer, string, error) {
	body := &bytes.Buffer{}
	writer := multipart.NewWriter(body)
	first, err := json.Marshal(p.json)
	if err != nil {
		return nil, "", err
	}
	for _, part := range []struct {
		kind, id string
		content  []byte
	}{{typeJSON, "", first}, {typeNAS, "n1", p.n1}, {typeNGAP, "n2", p.n2}} {
		if part.content == nil {
			continue
		}
		head := textproto.MIMEHeader{"Content-Type": {part.kind}}
		if part.id != "" {
			head.Set("Content-Id", part.id)
		}
		into, err := writer.CreatePart(head)
		if err != nil {
			return nil, "", err
		}
		if _, err := into.Write(part.content); err != nil {
			return nil, "", err
		}
	}
	kind := fmt.Sprintf("multipart/related; boundary=%q", writer.Boundary())
	return body, kind, writer.Close()
}

// read takes a message apart, with binary parts or without.
func read(header http.Header, body io.Reader) (parts, error) {
	var found parts
	kind, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return found, err
	}
	if kind != "multipart/related" {
		return found, json.NewDecoder(body).Decode(&found.json)
	}
	reader := multipart.NewReader(body, parameters["boundary"])
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return found, err
		}
		switch part.Header.Get("Content-Type") {
		case typeNAS:
			found.n1 = content
		case typeNGAP:
			found.n2 = content
		default:
			if err := json.Unmarshal(content, &found.json); err != nil {
				return found, err
			}
		}
	}
}
