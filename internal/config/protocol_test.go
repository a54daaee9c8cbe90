package config

import "testing"

// TestBackendProtocols: each protocol is described once, and an appProtocol means one of them.
func TestBackendProtocols(t *testing.T) {
	for n, name := range BackendProtocol_name {
		p := BackendProtocol(n)
		i := p.Info()
		if i.Protocol != p || len(i.AppProtocols) == 0 || i.Cleartext == "" || i.TLS == "" {
			t.Errorf("%s is described as %+v", name, i)
		}
		for _, a := range i.AppProtocols {
			if got, ok := BackendProtocolOf(a); got != p || !ok {
				t.Errorf("appProtocol %q means %v %v, want %s", a, got, ok, name)
			}
		}
	}
	for _, a := range []string{"kubernetes.io/h2c", "grpc"} {
		if p, ok := BackendProtocolOf(a); !ok || !p.Info().HTTP2 {
			t.Errorf("appProtocol %q means %v", a, p)
		}
	}
	if p, ok := BackendProtocolOf("example.com/odd"); ok {
		t.Errorf("an unknown appProtocol means %v", p)
	}
}
