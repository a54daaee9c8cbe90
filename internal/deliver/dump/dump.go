// Package dump prints a configuration without private keys and other secrets. It exists so that every kind of delivery prints the
// same.
//
// It must import nothing of this module but config.
package dump

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// Dump is the configuration in force, in printable form.
type Dump struct {
	Generation uint64            `json:"generation"`
	Resources  []json.RawMessage `json:"resources"` // sorted by config.CompareID
}

// redacted replaces a secret.
const redacted = "(redacted)"

// Of returns the Dump of resources; it sorts the slice and does not modify the resources.
func Of(generation uint64, resources []*config.Resource) (Dump, error) {
	slices.SortFunc(resources, func(a, b *config.Resource) int { return config.CompareID(a.ID(), b.ID()) })
	dump := Dump{Generation: generation, Resources: make([]json.RawMessage, 0, len(resources))}
	for _, r := range resources {
		text, err := protojson.Marshal(withoutSecrets(r))
		if err != nil {
			return Dump{}, err
		}
		dump.Resources = append(dump.Resources, text)
	}
	return dump, nil
}

// withoutSecrets returns the resource, or a redacted copy if it contains secrets.
func withoutSecrets(r *config.Resource) *config.Resource {
	switch r.Kind.(type) {
	case *config.Resource_Certificate:
		if r.Unread() {
			break
		}
		r = proto.CloneOf(r)
		r.GetCertificate().KeyPem = []byte(redacted)
	case *config.Resource_Listener:
		l := r.GetListener()
		if len(l.GetTracing().GetHeaders()) == 0 {
			break
		}
		r = proto.CloneOf(r)
		l = r.GetListener()
		for _, h := range l.GetTracing().GetHeaders() { // most are credentials
			h.Value = redacted
		}
	case *config.Resource_RateLimitService:
		r = proto.CloneOf(r)
		r.GetRateLimitService().Address = withoutPassword(r.GetRateLimitService().Address)
	case *config.Resource_TicketKeys:
		r = proto.CloneOf(r)
		for i := range r.GetTicketKeys().Keys {
			r.GetTicketKeys().Keys[i] = []byte(redacted)
		}
		for i := range r.GetTicketKeys().SessionKeys {
			r.GetTicketKeys().SessionKeys[i] = []byte(redacted)
		}
	}
	return r
}

// withoutPassword returns an address without user and password of a URL.
func withoutPassword(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		return address
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 { // a URL that cannot be parsed must not be shown either
		rest = redacted + rest[at:]
	}
	return scheme + "://" + rest
}
