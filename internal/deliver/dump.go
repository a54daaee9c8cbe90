package deliver

import (
	"encoding/json"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// Dump is the configuration in force, to be looked at.
type Dump struct {
	Generation uint64            `json:"generation"`
	Resources  []json.RawMessage `json:"resources"` // sorted by config.CompareID
}

// redacted stands where a private key was.
const redacted = "(redacted)"

// Config is what the proxy serves, without private keys.
func (l *Local) Config() (Dump, error) {
	l.mu.Lock()
	dump := Dump{Generation: l.generation, Resources: make([]json.RawMessage, 0, len(l.served))}
	resources := make([]*config.Resource, 0, len(l.served))
	for _, id := range slices.SortedFunc(maps.Keys(l.served), config.CompareID) {
		resources = append(resources, l.served[id])
	}
	l.mu.Unlock() // Resources are immutable

	for _, r := range resources {
		if c := r.GetCertificate(); c != nil {
			r = proto.CloneOf(r)
			r.GetCertificate().KeyPem = []byte(redacted)
		}
		text, err := protojson.Marshal(r)
		if err != nil {
			return Dump{}, err
		}
		dump.Resources = append(dump.Resources, text)
	}
	return dump, nil
}
