package config

import "strings"

// UpgradeConnect is the Upgrade.type that stands for the CONNECT method.
const UpgradeConnect = "CONNECT"

// CheckUpgrade returns why a connection cannot be switched to a protocol, as the end of a sentence, or "" if it can (RFC 9110
// section 7.8). After a switch to another version of HTTP, or to TLS, requests would reach the backend without matching a rule.
func CheckUpgrade(protocol string) (why string) {
	name, version, versioned := strings.Cut(protocol, "/")
	switch {
	case !IsToken(name), versioned && !IsToken(version):
		return "is not the name of a protocol"
	case strings.EqualFold(name, "h2c"), strings.EqualFold(name, "h2"), strings.EqualFold(name, "http"), strings.EqualFold(name, "tls"):
		return "would carry requests that no rule has seen"
	}
	return ""
}
