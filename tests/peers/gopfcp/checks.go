package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// verdict is one line of the output: what was looked at, whether it was as the standard wants it, and what was seen.
type verdict struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	Saw   string `json:"saw"`
}

// check prints a verdict. Names are `procedure/what`, and each is used once.
func check(name string, ok bool, saw string, values ...any) {
	line, err := json.Marshal(verdict{name, ok, fmt.Sprintf(saw, values...)})
	if err != nil {
		fatal("verdict: %v", err)
	}
	fmt.Println(string(line))
}

// fatal ends the run: what follows would say nothing.
func fatal(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
