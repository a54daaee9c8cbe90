package cli

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReservedPorts checks that listeners cannot have the ports which a proxy opens for itself.
func TestReservedPorts(t *testing.T) {
	var opened []int32
	for _, address := range []string{defaultProxyAdminAddress, defaultProxyHealthAddress} {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, int32(port))
	}
	if !slices.Equal(reservedPorts, opened) {
		t.Errorf("reserved are %v, a proxy opens %v", reservedPorts, opened)
	}
}

// TestWatchNamespaces gives names that can be those of namespaces, and one that cannot.
func TestWatchNamespaces(t *testing.T) {
	for text, good := range map[string]bool{"shop,blog": true, "shop": true, "shop,not a name": false, "Shop": false} {
		o := ControllerOptions{Image: "x", Namespace: "x", Identity: "x", WatchNamespaces: strings.Split(text, ",")}
		if err := o.complete(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--watch-namespaces") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
