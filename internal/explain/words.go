package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// words describes a message of the configuration, in the order of its fields: their names and values, and nested messages in
// parentheses. Fields with their default value are omitted, except a type.
func words(m protoreflect.Message) string {
	var all []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) && (f.Kind() != protoreflect.EnumKind || f.Name() != "type") {
			continue
		}
		name, duration := strings.CutSuffix(string(f.Name()), "_nanos")
		name = strings.ReplaceAll(name, "_", " ")
		v := m.Get(f)
		switch {
		case f.Kind() == protoreflect.BoolKind && v.Bool():
			all = append(all, name)
		case duration:
			all = append(all, name+" "+time.Duration(v.Int()).String())
		case f.IsList():
			values := make([]string, v.List().Len())
			for j := range values {
				values[j] = valueWords(f, v.List().Get(j))
			}
			all = append(all, name+" "+strings.Join(values, ", "))
		default:
			all = append(all, name+" "+valueWords(f, v))
		}
	}
	return strings.Join(all, "; ")
}

// valueWords describes one value of a field.
func valueWords(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return "(" + words(v.Message()) + ")"
	case protoreflect.EnumKind:
		value := f.Enum().Values().ByNumber(v.Enum())
		if value == nil {
			return strconv.Itoa(int(v.Enum()))
		}
		return enumWords(value)
	case protoreflect.StringKind:
		if text := v.String(); text == "" || strings.ContainsAny(text, " ,;()\"") {
			return strconv.Quote(text)
		}
	case protoreflect.BytesKind:
		return strconv.Quote(string(v.Bytes()))
	}
	return fmt.Sprint(v.Interface())
}

// enumWords returns the name of a value without the prefix, which is the name of its type.
func enumWords(value protoreflect.EnumValueDescriptor) string {
	var kind strings.Builder
	for _, r := range string(value.Parent().Name()) {
		if unicode.IsUpper(r) && kind.Len() > 0 {
			kind.WriteByte('_')
		}
		kind.WriteRune(unicode.ToUpper(r))
	}
	name := strings.TrimPrefix(string(value.Name()), kind.String()+"_")
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}
