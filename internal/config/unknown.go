package config

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// FirstIgnorable is the lowest number of fields that a proxy may ignore if it does not know them. A field with a lower number may
// restrict what is served, so a Resource with an unknown one is refused.
const FirstIgnorable protowire.Number = 1000

// CheckKnown returns an error if a message, or one within it, has an unknown field that must not be ignored, or a field with an
// unknown enum value: the sender is newer. Protobuf keeps both silently. Filters of unknown types are checked by the code that
// compiles them.
func CheckKnown(m proto.Message) error {
	r := m.ProtoReflect()
	return layoutOf(r.Descriptor()).check(r)
}

// layout lists the fields of a message type that may contain something unknown. Most types have few: to check only these takes a
// third of the time of protoreflect.Message.Range, and a proxy does it for each of its routes when it starts.
type layout struct {
	packed   bool // it is an Any
	messages []messageField
	enums    []protoreflect.FieldDescriptor
}

type messageField struct {
	protoreflect.FieldDescriptor
	list   bool
	layout *layout
}

var layouts sync.Map // *layout by protoreflect.MessageDescriptor

func layoutOf(d protoreflect.MessageDescriptor) *layout {
	if l, ok := layouts.Load(d); ok {
		return l.(*layout)
	}
	l := newLayout(d, map[protoreflect.MessageDescriptor]*layout{})
	layouts.Store(d, l)
	return l
}

// newLayout returns the layout of a message type. outer holds the layouts that are being built, because a type may have fields of
// its own type.
func newLayout(d protoreflect.MessageDescriptor, outer map[protoreflect.MessageDescriptor]*layout) *layout {
	if l := outer[d]; l != nil {
		return l
	}
	l := &layout{packed: d.FullName() == anyName}
	outer[d] = l
	for i := range d.Fields().Len() {
		switch f := d.Fields().Get(i); {
		case f.Enum() != nil:
			l.enums = append(l.enums, f)
		case f.Message() != nil && !f.IsMap():
			l.messages = append(l.messages, messageField{f, f.IsList(), newLayout(f.Message(), outer)})
		}
	}
	return l
}

var anyName = (*anypb.Any)(nil).ProtoReflect().Descriptor().FullName()

func (l *layout) check(m protoreflect.Message) error {
	for b := m.GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 { // decoding has already rejected such bytes
			return protowire.ParseError(n)
		}
		if number < FirstIgnorable {
			return fmt.Errorf("field %d of its %s is unknown to this proxy: run the version of the controller", number, m.Descriptor().Name())
		}
		b = b[n:]
	}
	if l.packed {
		if inner, err := m.Interface().(*anypb.Any).UnmarshalNew(); err == nil {
			return CheckKnown(inner)
		}
		return nil
	}
	for _, f := range l.enums {
		if err := checkValue(m, f); err != nil {
			return err
		}
	}
	for _, f := range l.messages {
		switch {
		case !m.Has(f.FieldDescriptor):
		case f.list:
			for all, i := m.Get(f.FieldDescriptor).List(), 0; i < all.Len(); i++ {
				if err := f.layout.check(all.Get(i).Message()); err != nil {
					return err
				}
			}
		default:
			if err := f.layout.check(m.Get(f.FieldDescriptor).Message()); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkValue checks a field of an enum type: treating an unknown value as the default would do something that was not configured.
func checkValue(m protoreflect.Message, f protoreflect.FieldDescriptor) error {
	if !m.Has(f) {
		return nil
	}
	if !f.IsList() {
		return checkNumber(m, f, m.Get(f).Enum())
	}
	for all, i := m.Get(f).List(), 0; i < all.Len(); i++ {
		if err := checkNumber(m, f, all.Get(i).Enum()); err != nil {
			return err
		}
	}
	return nil
}

func checkNumber(m protoreflect.Message, f protoreflect.FieldDescriptor, n protoreflect.EnumNumber) error {
	if f.Enum().Values().ByNumber(n) != nil {
		return nil
	}
	return fmt.Errorf("value %d of field %s of its %s is unknown to this proxy: run the version of the controller", n, f.Name(), m.Descriptor().Name())
}
