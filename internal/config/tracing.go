package config

// TraceAttributes are the names of the attributes that spans have by themselves, by OpenTelemetry's conventions: those that TraceAttribute.attribute may be.
func TraceAttributes() []string {
	return []string{
		"client.address", "error.type", "http.request.body.size", "http.request.method", "http.request.method_original", "http.request.resend_count",
		"http.response.body.size", "http.response.status_code", "http.route", "network.peer.address", "network.peer.port", "network.protocol.name",
		"network.protocol.version", "server.address", "server.port", "url.path", "url.scheme", "user_agent.original",
	}
}
