package exchange

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/orca"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// balancing is what the load balancer of the backend is told of the present request. It is the same in all attempts.
type balancing struct {
	settings *upstream.Balancing // nil: there is nothing to tell
	info     upstream.PickInfo
	// cookie is the value of the cookie that the client is given, where it has brought none: fresh tells that.
	cookie [hashCookieSize]byte
	fresh  bool
}

// hashCookieSize is that of 128 random bits in base64.
const hashCookieSize = 22

// beginBalancing reads what the load balancer of the backend wants to know of the request. The backend is chosen already, and filters have run.
func (x *Exchange) beginBalancing() {
	settings := x.backend.Balancing()
	if settings == nil || settings.Hash == nil && len(settings.OverrideHeaders) == 0 {
		if x.seldom != nil && x.seldom.balancing != nil {
			x.seldom.balancing.settings = nil
		}
		return
	}
	s := x.mayNeed()
	if s.balancing == nil {
		s.balancing = &balancing{}
	}
	b := s.balancing
	b.settings, b.fresh = settings, false
	x.describe(settings, &b.info)
	if settings.Cookie != nil && !b.info.Hashed {
		var random [16]byte
		rand.Read(random[:]) //nolint:errcheck // it does not fail
		base64.RawURLEncoding.Encode(b.cookie[:], random[:])
		b.info.Hash, b.info.Hashed, b.fresh = upstream.Hash(0).Add(b.cookie[:]).Sum(), true, true
	}
}

// describe tells a load balancer of the present request.
func (x *Exchange) describe(settings *upstream.Balancing, info *upstream.PickInfo) {
	*info = upstream.PickInfo{}
	for _, name := range settings.OverrideHeaders {
		for i := range x.Header.Len() {
			if f := x.Header.At(i); message.EqualFold(f.Name, name) {
				info.AddOverrides(f.Value)
			}
		}
	}
	switch {
	case settings.Cookie != nil:
		if value, ok := cookieValue(&x.Header, settings.Cookie.Opening); ok {
			info.Hash, info.Hashed = upstream.Hash(0).Add(value).Sum(), true
		}
	case settings.Hash != nil:
		info.Hash, info.Hashed = x.requestHash(settings.Hash)
	}
}

// requestHash returns the hash of a request; ok is false where it has nothing of what is hashed.
func (x *Exchange) requestHash(c *config.ConsistentHash) (sum uint64, ok bool) {
	if c.SourceIp {
		return x.sourceHash(), true
	}
	h := upstream.Hash(0)
	for _, name := range c.Headers {
		if name == "host" || name == ":authority" {
			h, ok = h.Add(x.Host), true
			continue
		}
		for i := range x.Header.Len() {
			if f := x.Header.At(i); message.EqualFold(f.Name, name) {
				h, ok = h.Add(f.Value), true
			}
		}
		h = h.Add(nil) // a value of one field is not that of another
	}
	var room [128]byte // longer values that are encoded cost an allocation
	for _, name := range c.QueryParams {
		if value, found := match.QueryValue(x.Query, name, room[:]); found {
			h, ok = h.Add(value), true
		}
		h = h.Add(nil)
	}
	return h.Sum(), ok
}

// sourceHash is the hash of the client's address, which a trusted proxy may have told.
func (x *Exchange) sourceHash() uint64 {
	ip := x.rec.ClientAddr.Addr().As16()
	return upstream.Hash(0).Add(ip[:]).Sum()
}

// balancedL4 is what a load balancer is told of a connection that is no request, nil where it wants to know nothing: of what is hashed it has an address alone.
func (x *Exchange) balancedL4() *upstream.PickInfo {
	settings := x.backend.Balancing()
	if settings == nil || !settings.Hash.GetSourceIp() {
		return nil
	}
	return &upstream.PickInfo{Hash: x.sourceHash(), Hashed: true}
}

// balancing returns what there is to tell a load balancer, nil for nothing.
func (x *Exchange) balancing() *balancing {
	if x.seldom == nil || x.seldom.balancing == nil || x.seldom.balancing.settings == nil {
		return nil
	}
	return x.seldom.balancing
}

var (
	semicolon = []byte(";")

	cookieField    = "cookie"
	setCookieField = []byte("Set-Cookie")
)

// cookieValue returns the value of a cookie, whose opening is "<name>="; an empty one is none.
func cookieValue(h *message.Fields, opening []byte) (value []byte, ok bool) {
	for i := range h.Len() {
		f := h.At(i)
		if !message.EqualFold(f.Name, cookieField) {
			continue
		}
		for rest := f.Value; len(rest) > 0; {
			var pair []byte
			pair, rest, _ = bytes.Cut(rest, semicolon)
			value, named := bytes.CutPrefix(bytes.TrimLeft(pair, " \t"), opening)
			if value = bytes.TrimRight(value, " \t"); named && len(value) > 0 {
				return value, true
			}
		}
	}
	return nil, false
}

// giveHashCookie puts the cookie that is hashed into the head of a backend's response, where the client has brought none. Where the backend itself sets a cookie
// of the name, the cookie is the backend's.
func (x *Exchange) giveHashCookie() {
	b := x.balancing()
	if b == nil || !b.fresh {
		return
	}
	c := b.settings.Cookie
	for i := range x.resp.Header.Len() {
		if f := x.resp.Header.At(i); message.EqualFoldBytes(f.Name, setCookieField) && bytes.HasPrefix(bytes.TrimLeft(f.Value, " \t"), c.Opening) {
			return
		}
	}
	start := len(x.fx.Scratch)
	x.fx.Scratch = append(append(append(x.fx.Scratch, c.Opening...), b.cookie[:]...), c.Attributes...)
	x.resp.Header.Add(setCookieField, x.fx.Made(start))
}

// takeLoadReport takes in the load report of a response's header or trailer section, which is taken out unless clients get it.
func (x *Exchange) takeLoadReport(h *message.Fields) {
	settings := x.backend.Balancing()
	if settings == nil || !settings.ByReports() {
		return
	}
	if settings.InBand() {
		if r, ok := orca.FromFields(h, settings.Metrics()); ok {
			x.endpoint.Report(&r)
		}
	}
	if !settings.KeepReports {
		orca.RemoveFields(h)
	}
}
