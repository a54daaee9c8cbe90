package proxy

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestKeepAliveOfIdleTunnel: the system looks after the connection to a backend as soon as nothing has moved through the tunnel for a while, whether or not the
// tunnel can be suspended.
func TestKeepAliveOfIdleTunnel(t *testing.T) {
	for name, plainIO := range map[string]bool{"suspended": false, "never suspended": true} {
		t.Run(name, func(t *testing.T) {
			j := joinsTCPWith(t, Options{PlainIO: plainIO})
			client, backend := j.open()
			defer client.Close()
			defer backend.Close()
			from, to := backend.RemoteAddr().(*net.TCPAddr).Port, backend.LocalAddr().(*net.TCPAddr).Port
			testkit.Eventually(t, "keep-alive", func() bool { return timerOf(t, from, to) == keepAliveTimer })
		})
	}
}

const keepAliveTimer = "02"

// timerOf is which timer a socket of loopback has, by proc_net_tcp.
func timerOf(t *testing.T, from, to int) string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(": 0100007F:%04X 0100007F:%04X ", from, to)
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, want) {
			return strings.Split(strings.Fields(line)[5], ":")[0]
		}
	}
	t.Fatalf("no socket from port %d to %d", from, to)
	return ""
}
