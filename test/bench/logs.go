//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// checkLogs makes sure that every contender logged what it was measured with.
// A line may be dropped under load, but only few: a log that is hardly written costs
// nothing and proves nothing.
func (b *bench) checkLogs(contenders []*contender, all []*series) error {
	time.Sleep(2 * time.Second) // nginx flushes once a second
	for i, c := range contenders {
		path := filepath.Join(c.dir, "access.log")
		if c.name == "haproxy" {
			path = c.log // it logs to stdout
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines, requests := bytes.Count(data, []byte("\n")), 0.0
		for _, rate := range all[i].rate {
			requests += rate * b.window.Seconds()
		}
		if float64(lines) < 0.9*requests {
			return fmt.Errorf("%s logged %d lines for more than %.0f requests", c.name, lines, requests)
		}
	}
	return nil
}
