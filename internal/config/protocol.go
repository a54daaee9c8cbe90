package config

import (
	"slices"
	"strings"
)

// BackendProtocolInfo describes a BackendProtocol.
type BackendProtocolInfo struct {
	Protocol BackendProtocol
	// AppProtocols are the values of a Service port's appProtocol that select the protocol; "" means a port without appProtocol.
	AppProtocols []string
	// HTTP2 reports whether all requests are sent over HTTP/2.
	HTTP2 bool
	// Upgrade is the protocol that HTTP/1.1 requests may switch to; such requests are always sent over HTTP/1.1. "" means none.
	Upgrade string
	// Cleartext and TLS name the protocol in text; after TLS the caller appends " over TLS to ...".
	Cleartext, TLS string
}

var backendProtocols = []BackendProtocolInfo{
	{Protocol: BackendProtocol_BACKEND_PROTOCOL_HTTP, AppProtocols: []string{"", "http", "https"}, Cleartext: "HTTP/1.1", TLS: "HTTP/2 or HTTP/1.1, as the backend chooses,"},
	// The names of Kubernetes are defined in KEP-3726. grpc is not registered with IANA, but the OpenTelemetry Operator writes it to its
	// Services, and Istio knows it.
	{Protocol: BackendProtocol_BACKEND_PROTOCOL_H2C, AppProtocols: []string{"kubernetes.io/h2c", "grpc"}, HTTP2: true, Cleartext: "HTTP/2 (h2c)", TLS: "HTTP/2"},
	{Protocol: BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET, AppProtocols: []string{"kubernetes.io/ws", "kubernetes.io/wss"}, Upgrade: "websocket", Cleartext: "HTTP/1.1 and WebSocket",
		TLS: "HTTP/1.1 and WebSocket"},
}

// Info describes the protocol; an unknown one is described as HTTP.
func (p BackendProtocol) Info() BackendProtocolInfo {
	for _, i := range backendProtocols {
		if i.Protocol == p {
			return i
		}
	}
	return backendProtocols[0]
}

// BackendProtocolOf returns the protocol that an appProtocol selects; ok is false if it is unknown.
func BackendProtocolOf(appProtocol string) (BackendProtocol, bool) {
	for _, i := range backendProtocols {
		if slices.Contains(i.AppProtocols, appProtocol) {
			return i.Protocol, true
		}
	}
	return 0, false
}

// UpgradeAppProtocols returns the values of appProtocol with which requests may switch to the protocol; nil if the protocol is not
// supported.
func UpgradeAppProtocols(protocol string) []string {
	for _, i := range backendProtocols {
		if i.Upgrade != "" && strings.EqualFold(i.Upgrade, protocol) {
			return i.AppProtocols
		}
	}
	return nil
}

// AppProtocols returns the known values of appProtocol.
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
