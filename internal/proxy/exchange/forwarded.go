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

// setForwarded replaces what the client says of its provenance by what we know. A client's
// own X-Forwarded-*, Forwarded and X-Real-IP are dropped, since a backend would trust
// them. Via is passed on and not added to: some servers turn off compression for
// requests that have it, so countPass has another field. A proxy that the listener trusts is believed what it says.
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

// keepForwarded keeps what a trusted proxy says of the request's provenance, and adds the proxy itself. The client is the one that it names.
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
	h.Add(forwardedFor, x.fx.Made(start)) // one line, since servers may look at the first one alone
	if _, ok := h.Get("x-forwarded-proto"); !ok {
		x.addForwardedProto()
	}
	if _, ok := h.Get("x-forwarded-host"); !ok {
		h.Add(forwardedHost, x.Host)
	}
}

// maxForwarded bounds how many addresses of X-Forwarded-For are looked at.
const maxForwarded = 64

// forwardedClient returns the client in what X-Forwarded-For has: the last address that is not a trusted proxy's, since those before it
// may be the client's own invention. Where all are trusted it is the first one; an entry that is no address ends the search, and so
// does the bound. The port is 0 where the entry has none. ok is false where there is no address.
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

// forwardedAddr reads an address, maybe with a port, and of IPv6 maybe in brackets.
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
