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

// balancing is what the load balancer of the backend gets to know of the current request. It is the same for all
// attempts.
type balancing struct {
	settings *upstream.Balancing // nil if the load balancer needs nothing
	info     upstream.PickInfo
	// cookie is the value of the cookie that the client is given. fresh means that the client had sent none.
	cookie [hashCookieSize]byte
	fresh  bool
}

// hashCookieSize is the size of 128 random bits in base64.
const hashCookieSize = 22

// beginBalancing collects what the load balancer of the backend uses of the request. It must be called after the
// backend is chosen and the filters have run.
//
//go:noinline
func (x *Exchange) beginBalancing() {
	settings := x.backend.Balancing()
	if settings == nil || settings.Hash == nil && len(settings.OverrideHeaders) == 0 {
		if x.rare != nil && x.rare.balancing != nil {
			x.rare.balancing.settings = nil
		}
		return
	}
	s := x.ensureRare()
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

// describe fills in what the load balancer gets to know of the current request.
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

// requestHash returns the hash of a request. ok is false if the request has none of the hashed values.
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
		h = h.Add(nil) // so that a value of one field hashes differently from the same value of another
	}
	var room [128]byte // longer encoded values cost an allocation
	for _, name := range c.QueryParams {
		if value, found := match.QueryValue(x.Query, name, room[:]); found {
			h, ok = h.Add(value), true
		}
		h = h.Add(nil)
	}
	return h.Sum(), ok
}

// sourceHash returns the hash of the client's address, which may come from a trusted proxy.
func (x *Exchange) sourceHash() uint64 {
	ip := x.rec.ClientAddr.Addr().As16()
	return upstream.Hash(0).Add(ip[:]).Sum()
}

// balancedL4 returns what a load balancer gets to know of a layer-4 connection: only the hash of the client's address.
// It is nil if the load balancer needs nothing.
func (x *Exchange) balancedL4() *upstream.PickInfo {
	settings := x.backend.Balancing()
	if settings == nil || !settings.Hash.GetSourceIp() {
		return nil
	}
	return &upstream.PickInfo{Hash: x.sourceHash(), Hashed: true}
}

// balancing returns what the load balancer gets to know; nil if it needs nothing.
func (x *Exchange) balancing() *balancing {
	if x.rare == nil || x.rare.balancing == nil || x.rare.balancing.settings == nil {
		return nil
	}
	return x.rare.balancing
}

var (
	semicolon = []byte(";")

	cookieField    = "cookie"
	setCookieField = []byte("Set-Cookie")
)

// cookieValue returns the value of a cookie. opening is "<name>=". ok is false if there is no cookie, or it is empty.
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

// giveHashCookie adds the hashed cookie to the head of a backend's response if the client has sent none. If the backend
// itself sets a cookie of that name, the backend's cookie is kept.
//
//go:noinline
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

// takeLoadReport reads the load report in a response's header or trailer section, and removes it unless clients are to
// receive it.
//
//go:noinline
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
