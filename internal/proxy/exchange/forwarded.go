package exchange

import (
	"bytes"
	"net/netip"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

var (
	forwardedFor   = []byte("X-Forwarded-For")
	forwardedProto = []byte("X-Forwarded-Proto")
	forwardedHost  = []byte("X-Forwarded-Host")
	schemeHTTP     = []byte("http")
	schemeHTTPS    = []byte("https")
)

// setForwarded replaces the fields that describe where the request comes from. A client's own X-Forwarded-*, Forwarded
// and X-Real-IP are removed, since a backend would trust them, and new ones are added. Via is passed on unchanged: some
// servers disable compression for requests that have it, so countPass uses another field. The fields of a trusted proxy
// are kept.
func (x *Exchange) setForwarded() {
	h := &x.Header
	if x.listener.Trusted.Contains(x.Client.Peer.Addr()) {
		x.keepForwarded()
		return
	}
	h.RemoveIf(message.ClaimsProvenance)
	h.Add(forwardedFor, x.Client.PeerText)
	x.addForwardedProto()
	h.Add(forwardedHost, x.Host)
}

func (x *Exchange) addForwardedProto() {
	if x.Client.Mode.TLS() {
		x.Header.Add(forwardedProto, schemeHTTPS)
	} else {
		x.Header.Add(forwardedProto, schemeHTTP)
	}
}

// keepForwarded keeps the fields of a trusted proxy and appends the proxy's address. The client is the one that they
// name.
func (x *Exchange) keepForwarded() {
	h := &x.Header
	h.RemoveIf(message.DisguisesProvenance)
	start := len(x.fx.Scratch)
	for i := range h.Len() {
		if f := h.At(i); isForwardedFor(f) && len(f.Value) > 0 {
			x.fx.Scratch = append(append(x.fx.Scratch, f.Value...), ", "...)
		}
	}
	if client, ok := forwardedClient(x.fx.Made(start), x.listener.Trusted); ok {
		x.rec.ClientAddr = client
	}
	x.fx.Scratch = append(x.fx.Scratch, x.Client.PeerText...)
	h.RemoveIf(isForwardedFor)
	h.Add(forwardedFor, x.fx.Made(start)) // one line, since servers may read only the first one
	if _, ok := h.Get("x-forwarded-proto"); !ok {
		x.addForwardedProto()
	}
	if _, ok := h.Get("x-forwarded-host"); !ok {
		h.Add(forwardedHost, x.Host)
	}
}

// maxForwarded is the largest number of addresses of X-Forwarded-For that are read.
const maxForwarded = 64

// forwardedClient returns the client named in X-Forwarded-For: the last address that is not a trusted proxy's, since
// the client itself may have invented those before it. If all are trusted, it is the first one. An entry that is not an
// address ends the search, and so does maxForwarded. The port is 0 if the entry has none. ok is false if there is no
// address.
func forwardedClient(list []byte, trusted snapshot.Networks) (client netip.AddrPort, ok bool) {
	for range maxForwarded {
		list = bytes.TrimRight(list, ", \t")
		if len(list) == 0 {
			break
		}
		from := bytes.LastIndexByte(list, ',') + 1
		a, valid := forwardedAddr(bytes.TrimLeft(list[from:], " \t"))
		if !valid {
			break
		}
		if client, ok = a, true; !trusted.Contains(a.Addr()) {
			break
		}
		list = list[:from]
	}
	return client, ok
}

// longestAddr is the length of the longest address with a port: "[" 39 characters "]:65535".
const longestAddr = 47

// forwardedAddr parses an address, with or without a port; IPv6 addresses may be in brackets.
func forwardedAddr(b []byte) (netip.AddrPort, bool) {
	if len(b) > longestAddr {
		return netip.AddrPort{}, false
	}
	text := string(b)
	if a, err := netip.ParseAddrPort(text); err == nil {
		return plainAddrPort(a), a.Addr().Zone() == ""
	}
	if n := len(text); n > 2 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	a, err := netip.ParseAddr(text)
	return plainAddrPort(netip.AddrPortFrom(a, 0)), err == nil && a.Zone() == ""
}

func plainAddrPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func isForwardedFor(f *message.Field) bool { return message.EqualFoldBytes(f.Name, forwardedFor) }
