package config

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// FirstIgnorable is the lowest number of fields that a proxy may ignore where it does not know them. A field with a lower number may restrict what
// is served, so a Resource with one that is not known is refused.
const FirstIgnorable protowire.Number = 1000

// CheckKnown returns an error where a message, or one within it, has a field that this version does not know and that it may not ignore, or a field whose
// enum has no such value here: the sender is newer. Protobuf keeps both without a word. Filters of types that are not known are left to who compiles them.
func CheckKnown(m proto.Message) error {
	return checkKnown(m.ProtoReflect())
}

func checkKnown(m protoreflect.Message) (err error) {
	for b := m.GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 { // decoding has refused such bytes
			return protowire.ParseError(n)
		}
		if number < FirstIgnorable {
			return fmt.Errorf("field %d of its %s is unknown to this proxy: run the version of the controller", number, m.Descriptor().Name())
		}
		b = b[n:]
	}
	if packed, ok := m.Interface().(*anypb.Any); ok {
		if inner, unmarshalErr := packed.UnmarshalNew(); unmarshalErr == nil {
			return checkKnown(inner.ProtoReflect())
		}
		return nil
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Enum() != nil:
			err = checkValue(m, f, v)
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for l, i := v.List(), 0; i < l.Len() && err == nil; i++ {
				err = checkKnown(l.Get(i).Message())
			}
		default:
			err = checkKnown(v.Message())
		}
		return err == nil
	})
	return err
}

// checkValue is for a field of an enum: to take a value that is not known for the default would be to do something else than what was asked for.
func checkValue(m protoreflect.Message, f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	if f.IsList() || f.IsMap() || f.Enum().Values().ByNumber(v.Enum()) != nil {
		return nil
	}
	return fmt.Errorf("value %d of field %s of its %s is unknown to this proxy: run the version of the controller", v.Enum(), f.Name(), m.Descriptor().Name())
}
