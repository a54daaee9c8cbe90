package config

// TraceAttributes returns the names of the attributes that all spans have, by OpenTelemetry's conventions. TraceAttribute.attribute
// is one of them.
func TraceAttributes() []string {
	return []string{
		"client.address", "error.type", "http.request.body.size", "http.request.method", "http.request.method_original", "http.request.resend_count",
		"http.response.body.size", "http.response.status_code", "http.route", "network.peer.address", "network.peer.port", "network.protocol.name",
		"network.protocol.version", "server.address", "server.port", "url.path", "url.scheme", "user_agent.original",
	}
}
