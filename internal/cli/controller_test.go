package cli

import (
	"net"
	"slices"
	"strconv"
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
