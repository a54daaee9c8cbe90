package upstream

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestExhausted: where the process has no descriptor left, connections that idle at other endpoints make room for one that is needed.
func TestExhausted(t *testing.T) {
	const env, each, endpoints, limit = "UPSTREAM_TEST_ADDRESSES", 60, 6, 200
	if addresses := os.Getenv(env); addresses != "" { // it is the process whose descriptors are few
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
		var list []*config.Endpoint
		for address := range strings.SplitSeq(addresses, ",") {
			list = append(list, endpoint(netip.MustParseAddrPort(address)))
		}
		_, b := newSet(t, Options{}, list...)
		for _, e := range b.Endpoints() {
			var used []*Conn
			for range each {
				used = append(used, dial(t, e))
			}
			for _, c := range used {
				c.Release()
			}
			if got := e.Stats(); got.Idle != each {
				t.Errorf("%+v, want %d idle connections", got, each)
			}
		}
		return
	}
	var addresses []string
	for range endpoints {
		addresses = append(addresses, listen(t).addrPort().String())
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestExhausted$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", env, strings.Join(addresses, ",")))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
