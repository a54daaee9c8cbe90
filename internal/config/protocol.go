package config

import (
	"slices"
	"strings"
)

// BackendProtocolInfo describes a BackendProtocol.
type BackendProtocolInfo struct {
	Protocol BackendProtocol
	// AppProtocols are the values of a Service port's appProtocol that mean it; "" is a port without one.
	AppProtocols []string
	// HTTP2 reports whether requests are sent by nothing else.
	HTTP2 bool
	// Upgrade is the protocol that requests by HTTP/1.1 may switch to, for which they are sent by nothing else; "" is none.
	Upgrade string
	// Cleartext and TLS say in words what requests are sent by; " over TLS to ..." follows the latter.
	Cleartext, TLS string
}

var backendProtocols = []BackendProtocolInfo{
	{Protocol: BackendProtocol_BACKEND_PROTOCOL_HTTP, AppProtocols: []string{"", "http", "https"}, Cleartext: "HTTP/1.1", TLS: "HTTP/2 or HTTP/1.1, as the backend chooses,"},
	// KEP-3726 has the names of Kubernetes.
	{Protocol: BackendProtocol_BACKEND_PROTOCOL_H2C, AppProtocols: []string{"kubernetes.io/h2c"}, HTTP2: true, Cleartext: "HTTP/2 (h2c)", TLS: "HTTP/2"},
	{Protocol: BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET, AppProtocols: []string{"kubernetes.io/ws", "kubernetes.io/wss"}, Upgrade: "websocket", Cleartext: "HTTP/1.1 and WebSocket",
		TLS: "HTTP/1.1 and WebSocket"},
}

// Info describes the protocol; one that is unknown is HTTP.
func (p BackendProtocol) Info() BackendProtocolInfo {
	for _, i := range backendProtocols {
		if i.Protocol == p {
			return i
		}
	}
	return backendProtocols[0]
}

// BackendProtocolOf returns the protocol that an appProtocol means; false is none that is known.
func BackendProtocolOf(appProtocol string) (BackendProtocol, bool) {
	for _, i := range backendProtocols {
		if slices.Contains(i.AppProtocols, appProtocol) {
			return i.Protocol, true
		}
	}
	return 0, false
}

// UpgradeAppProtocols lists the values of appProtocol with which requests may switch to a protocol; none is that it is not supported.
func UpgradeAppProtocols(protocol string) []string {
	for _, i := range backendProtocols {
		if i.Upgrade != "" && strings.EqualFold(i.Upgrade, protocol) {
			return i.AppProtocols
		}
	}
	return nil
}

// AppProtocols lists the values of appProtocol that are known.
func AppProtocols() (names []string) {
	for _, i := range backendProtocols {
		for _, name := range i.AppProtocols {
			if name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
