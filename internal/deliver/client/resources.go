package client

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/hashtable"
)

// resources holds Resources by ID. The kinds of which there are thousands take less memory than in a map of messages: a Route or a
// Backend, to which the proxy refers too, is held without the Resource around it, and Endpoints, to which it does not, are held
// encoded. The zero value is empty.
type resources struct {
	routes    hashtable.Table[string, *route]
	backends  hashtable.Table[string, *backend]
	endpoints hashtable.Table[string, *endpoints]
	others    hashtable.Table[config.ID, *config.Resource]
}

type (
	route     config.Route
	backend   config.Backend
	endpoints struct {
		key     string
		encoded []byte // the Resource
	}
)

func (r *route) ID() string     { return r.Key }
func (b *backend) ID() string   { return b.Key }
func (e *endpoints) ID() string { return e.key }

func (r *route) resource() *config.Resource {
	return &config.Resource{Kind: &config.Resource_Route{Route: (*config.Route)(r)}}
}

func (b *backend) resource() *config.Resource {
	return &config.Resource{Kind: &config.Resource_Backend{Backend: (*config.Backend)(b)}}
}

func (e *endpoints) resource() *config.Resource { return decode(e.undecoded()) }

// undecoded returns a Resource without a kind that is encoded to the same bytes: enough to save it, and cheap.
func (e *endpoints) undecoded() *config.Resource {
	r := &config.Resource{}
	r.ProtoReflect().SetUnknown(e.encoded)
	return r
}

// decode returns the Resource that undecoded stands for, or r if it is decoded already.
func decode(r *config.Resource) *config.Resource {
	encoded := r.ProtoReflect().GetUnknown()
	if r.Kind != nil || len(encoded) == 0 {
		return r
	}
	whole := &config.Resource{}
	if err := proto.Unmarshal(encoded, whole); err != nil {
		panic("client: a Resource cannot be decoded: " + err.Error()) // set has encoded it
	}
	return whole
}

func (rs *resources) len() int {
	return rs.routes.Len() + rs.backends.Len() + rs.endpoints.Len() + rs.others.Len()
}

// get returns nil if there is no Resource with the ID.
func (rs *resources) get(id config.ID) *config.Resource {
	switch id.Kind {
	case config.KindRoute:
		if r := rs.routes.Get(id.Key); r != nil {
			return r.resource()
		}
	case config.KindBackend:
		if b := rs.backends.Get(id.Key); b != nil {
			return b.resource()
		}
	case config.KindEndpoints:
		if e := rs.endpoints.Get(id.Key); e != nil {
			return e.resource()
		}
	}
	return rs.others.Get(id)
}

// has reports whether there is a Resource with the ID.
func (rs *resources) has(id config.ID) bool {
	there := rs.others.Get(id) != nil
	switch id.Kind {
	case config.KindRoute:
		there = there || rs.routes.Get(id.Key) != nil
	case config.KindBackend:
		there = there || rs.backends.Get(id.Key) != nil
	case config.KindEndpoints:
		there = there || rs.endpoints.Get(id.Key) != nil
	}
	return there
}

// set adds a Resource, or replaces the one with its ID.
func (rs *resources) set(r *config.Resource) {
	rs.remove(r.ID())
	bare := len(r.ProtoReflect().GetUnknown()) == 0 // nothing is lost without the Resource around it
	switch k := r.Kind.(type) {
	case *config.Resource_Route:
		if bare {
			rs.routes.Set((*route)(k.Route))
			return
		}
	case *config.Resource_Backend:
		if bare {
			rs.backends.Set((*backend)(k.Backend))
			return
		}
	case *config.Resource_Endpoints:
		if encoded, err := proto.Marshal(r); err == nil {
			rs.endpoints.Set(&endpoints{k.Endpoints.Key, encoded})
			return
		}
	}
	rs.others.Set(r)
}

func (rs *resources) remove(id config.ID) {
	switch id.Kind {
	case config.KindRoute:
		rs.routes.Remove(id.Key)
	case config.KindBackend:
		rs.backends.Remove(id.Key)
	case config.KindEndpoints:
		rs.endpoints.Remove(id.Key)
	}
	rs.others.Remove(id)
}

// all yields the Resources in no particular order. Endpoints are not decoded, see decode.
func (rs *resources) all() iter.Seq2[config.ID, *config.Resource] {
	return func(yield func(config.ID, *config.Resource) bool) {
		for r := range rs.routes.All() {
			if !yield(config.ID{Kind: config.KindRoute, Key: r.Key}, r.resource()) {
				return
			}
		}
		for b := range rs.backends.All() {
			if !yield(config.ID{Kind: config.KindBackend, Key: b.Key}, b.resource()) {
				return
			}
		}
		for e := range rs.endpoints.All() {
			if !yield(config.ID{Kind: config.KindEndpoints, Key: e.key}, e.undecoded()) {
				return
			}
		}
		for r := range rs.others.All() {
			if !yield(r.ID(), r) {
				return
			}
		}
	}
}
