package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// words is what a message of the configuration says, in the order of its fields: their names and values, and those of messages within it in parentheses. Fields that
// are at their default are left out, but for a type.
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
		case f.IsMap(): // there are none yet
			all = append(all, name)
		default:
			all = append(all, name+" "+valueWords(f, v))
		}
	}
	return strings.Join(all, "; ")
}

// valueWords is one value of a field.
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

// enumWords is the name of a value without that of its type, which all values begin with.
func enumWords(value protoreflect.EnumValueDescriptor) string {
	name := string(value.Name())
	values := value.Parent().(protoreflect.EnumDescriptor).Values()
	prefix := 0
	for i := 0; i < len(name); i++ {
		if name[i] != '_' {
			continue
		}
		for j := range values.Len() {
			if !strings.HasPrefix(string(values.Get(j).Name()), name[:i+1]) {
				return strings.ToLower(strings.ReplaceAll(name[prefix:], "_", " "))
			}
		}
		prefix = i + 1
	}
	return strings.ToLower(strings.ReplaceAll(name[prefix:], "_", " "))
}
