package client

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/intern"
)

// sharing makes new Resources share memory with each other and with those that are held. Decoding allocates each text and each
// message anew, while thousands of routes have equal ones, and the key of a Backend occurs in three Resources.
type sharing struct {
	attachments intern.Values[[]*config.Attachment]
	matches     intern.Values[[]*config.Match]
	zones       intern.Values[string]
}

func newSharing() sharing {
	return sharing{
		attachments: intern.Values[[]*config.Attachment]{Equal: equalAttachments},
		matches:     intern.Values[[]*config.Match]{Equal: equalMatches},
		zones:       intern.Values[string]{Equal: func(a, b string) bool { return a == b }},
	}
}

// equalAttachments and equalMatches first compare what differs in most that are not equal: proto.Equal takes much longer.

func equalAttachments(a, b []*config.Attachment) bool {
	return slices.EqualFunc(a, b, func(a, b *config.Attachment) bool {
		return slices.EqualFunc(a.Hostnames, b.Hostnames, sameEffective) && proto.Equal(a, b)
	})
}

func sameEffective(a, b *config.Hostname) bool { return a.Effective == b.Effective }

func equalMatches(a, b []*config.Match) bool {
	return slices.EqualFunc(a, b, func(a, b *config.Match) bool {
		return a.GetPath().GetValue() == b.GetPath().GetValue() && proto.Equal(a, b)
	})
}

// share replaces texts and messages of the generation's Resources by equal ones. It must be called before they are applied: later
// they are immutable.
func (h *holding) share(g *generation, upserts []*config.Resource) {
	key := func(kind config.Kind, key string) string {
		id := config.ID{Kind: kind, Key: key}
		if r := cmp.Or(h.resources.get(id), g.upserts[id]); r != nil {
			return r.ID().Key
		}
		return key
	}
	for _, r := range upserts {
		switch k := r.Kind.(type) {
		case *config.Resource_Backend:
			b := k.Backend
			b.Key = key(config.KindBackend, b.Key)
			b.Namespace, b.Name = part(b.Key, b.Namespace), part(b.Key, b.Name)
		case *config.Resource_Endpoints:
			k.Endpoints.Key = key(config.KindBackend, k.Endpoints.Key)
			for _, e := range k.Endpoints.Endpoints {
				e.Zone = h.sharing.zones.Of(e.Zone)
			}
		case *config.Resource_Route:
			rt := k.Route
			rt.Key = key(config.KindRoute, rt.Key)
			rt.Namespace, rt.Name = part(rt.Key, rt.Namespace), part(rt.Key, rt.Name)
			for _, a := range rt.Attachments {
				a.Listener = key(config.KindListener, a.Listener)
				for _, host := range a.Hostnames {
					host.Original = part(host.Effective, host.Original)
				}
			}
			rt.Attachments = h.sharing.attachments.Of(rt.Attachments)
			for _, rule := range rt.Rules {
				rule.Matches = h.sharing.matches.Of(rule.Matches)
				for _, ref := range rule.BackendRefs {
					ref.Backend = key(config.KindBackend, ref.Backend)
				}
			}
		}
	}
}

// part returns s as a part of text if it is one.
func part(text, s string) string {
	if i := strings.Index(text, s); i >= 0 {
		return text[i : i+len(s)]
	}
	return s
}
