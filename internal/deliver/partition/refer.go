package partition

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// referring are the names of string fields that contain keys of other Resources, in any message. A filter that refers to a backend
// therefore needs no line here; a test compares them with the comments of the .proto files.
var referring = map[protoreflect.Name][]config.Kind{
	"backend":      {config.KindBackend, config.KindEndpoints},
	"backends":     {config.KindBackend, config.KindEndpoints},
	"authorities":  {config.KindAuthorities},
	"certificate":  {config.KindCertificate},
	"certificates": {config.KindCertificate},
}

// walker finds the references of a Resource, without visiting fields that cannot contain any.
type walker struct {
	plans map[protoreflect.FullName]*plan
}

// plan describes where a message type can contain references.
type plan struct {
	any    bool // it is an Any
	keys   []protoreflect.FieldDescriptor
	nested []protoreflect.FieldDescriptor
}

// references returns what a Resource refers to; sorted, distinct.
func (w *walker) references(r *config.Resource) []config.ID {
	var out []config.ID
	w.walk(r.ProtoReflect(), &out)
	slices.SortFunc(out, config.CompareID)
	return slices.Compact(out)
}

func (w *walker) walk(m protoreflect.Message, out *[]config.ID) {
	p := w.plan(m.Descriptor())
	if p.any {
		// A type that is not linked in is unknown to proxies of this version too.
		if inner, err := m.Interface().(*anypb.Any).UnmarshalNew(); err == nil {
			w.walk(inner.ProtoReflect(), out)
		}
		return
	}
	for _, f := range p.keys {
		each(m, f, func(v protoreflect.Value) {
			for _, kind := range referring[f.Name()] {
				if key := v.String(); key != "" {
					*out = append(*out, config.ID{Kind: kind, Key: key})
				}
			}
		})
	}
	for _, f := range p.nested {
		each(m, f, func(v protoreflect.Value) { w.walk(v.Message(), out) })
	}
}

// each calls visit with the values of a field that is set, singular or repeated.
func each(m protoreflect.Message, f protoreflect.FieldDescriptor, visit func(protoreflect.Value)) {
	switch {
	case !m.Has(f):
	case f.IsList():
		list := m.Get(f).List()
		for i := range list.Len() {
			visit(list.Get(i))
		}
	default:
		visit(m.Get(f))
	}
}

func (w *walker) plan(d protoreflect.MessageDescriptor) *plan {
	if p := w.plans[d.FullName()]; p != nil {
		return p
	}
	p := &plan{any: d.FullName() == anyName}
	w.plans[d.FullName()] = p
	for f := range fields(d) {
		switch {
		case f.Kind() == protoreflect.StringKind && referring[f.Name()] != nil && !p.any:
			p.keys = append(p.keys, f)
		case f.Message() != nil && mayRefer(f.Message(), map[protoreflect.FullName]bool{}):
			p.nested = append(p.nested, f)
		}
	}
	return p
}

var anyName = (*anypb.Any)(nil).ProtoReflect().Descriptor().FullName()

// mayRefer reports whether a message of the type, or a nested one, can contain a reference.
func mayRefer(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if d.FullName() == anyName {
		return true
	}
	if seen[d.FullName()] {
		return false
	}
	seen[d.FullName()] = true
	for f := range fields(d) {
		if f.Kind() == protoreflect.StringKind && referring[f.Name()] != nil || f.Message() != nil && mayRefer(f.Message(), seen) {
			return true
		}
	}
	return false
}

// fields returns the fields of a message type.
func fields(d protoreflect.MessageDescriptor) func(func(protoreflect.FieldDescriptor) bool) {
	return func(yield func(protoreflect.FieldDescriptor) bool) {
		list := d.Fields()
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}
