package controller

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/provision"
)

// TestReady: a replica that cannot lead, because it has not read what runs for Gateways, is not ready.
func TestReady(t *testing.T) {
	p, err := provision.New(provision.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{full: make(chan struct{}), provisioner: p}
	close(c.full)
	if err := c.Ready(); err == nil || !strings.Contains(err.Error(), "ConfigMap: not listed yet") {
		t.Errorf("it says %v", err)
	}
}
