package manifest

import (
	"encoding/base64"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moongate-dev/moongate/internal/source/schema"
)

var (
	timeType        = reflect.TypeFor[metav1.Time]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	bytesType       = reflect.TypeFor[[]byte]()
)

type unmarshaler interface{ UnmarshalJSON([]byte) error }

// checkType compares a JSON-like value with its Go type: objects without a CRD (core objects, metadata) get the same reports of
// unknown fields and wrong types as those with one.
func checkType(t reflect.Type, v any, path string) []schema.Violation {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil {
		return nil // null means absent
	}
	want := ""
	switch {
	case t == timeType:
		return checkTime(v, path)
	case t == intOrStringType:
		if _, isInt := v.(int64); isInt {
			return checkInteger(reflect.TypeFor[int32](), v, path)
		}
		want = schema.IntegerOrString
	case t == bytesType:
		return checkBase64(v, path)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]()):
		return nil // it is checked when it is converted
	default:
		switch t.Kind() {
		case reflect.Struct:
			return checkStruct(t, v, path)
		case reflect.Map:
			return checkMap(t, v, path)
		case reflect.Slice:
			return checkSlice(t, v, path)
		case reflect.Int, reflect.Int32, reflect.Int64:
			return checkInteger(t, v, path)
		case reflect.String:
			want = "string"
		case reflect.Bool:
			want = "boolean"
		}
	}
	switch v.(type) {
	case string:
		if want == "string" || want == schema.IntegerOrString {
			return nil
		}
	case bool:
		if want == "boolean" {
			return nil
		}
	}
	return []schema.Violation{schema.WrongType(path, v, want)}
}

func checkStruct(t reflect.Type, v any, path string) []schema.Violation {
	m, ok := v.(map[string]any)
	if !ok {
		return []schema.Violation{schema.WrongType(path, v, "object")}
	}
	fields := jsonFields(t)
	var found []schema.Violation
	for _, name := range sortedKeys(m) {
		at := join(path, name)
		if ft, ok := fields[name]; ok {
			found = append(found, checkType(ft, m[name], at)...)
		} else {
			found = append(found, schema.UnknownField(at, name, sortedKeys(fields)))
		}
	}
	return found
}

// jsonFields returns the fields of a struct by JSON name, including those of inlined structs.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			for n, ft := range jsonFields(f.Type) {
				fields[n] = ft
			}
		case name != "" && name != "-":
			fields[name] = f.Type
		}
	}
	return fields
}

func checkMap(t reflect.Type, v any, path string) []schema.Violation {
	m, ok := v.(map[string]any)
	if !ok {
		return []schema.Violation{schema.WrongType(path, v, "object")}
	}
	var found []schema.Violation
	for _, name := range sortedKeys(m) {
		found = append(found, checkType(t.Elem(), m[name], path+"["+name+"]")...)
	}
	return found
}

func checkSlice(t reflect.Type, v any, path string) []schema.Violation {
	list, ok := v.([]any)
	if !ok {
		return []schema.Violation{schema.WrongType(path, v, "array")}
	}
	var found []schema.Violation
	for i, item := range list {
		found = append(found, checkType(t.Elem(), item, path+"["+strconv.Itoa(i)+"]")...)
	}
	return found
}

func checkInteger(t reflect.Type, v any, path string) []schema.Violation {
	i, ok := v.(int64)
	if !ok {
		return []schema.Violation{schema.WrongType(path, v, "integer")}
	}
	if t.Kind() == reflect.Int32 && (i < math.MinInt32 || i > math.MaxInt32) {
		return []schema.Violation{{Field: path, Message: schema.Show(v) + " is out of range", Remedy: "use a 32-bit number"}}
	}
	return nil
}

func checkTime(v any, path string) []schema.Violation {
	s, ok := v.(string)
	if !ok {
		return []schema.Violation{schema.WrongType(path, v, "string")}
	}
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return []schema.Violation{{Field: path, Message: strconv.Quote(schema.Show(s)) + " is not a time", Remedy: "write it as 2006-01-02T15:04:05Z"}}
	}
	return nil
}

func checkBase64(v any, path string) []schema.Violation {
	s, ok := v.(string)
	if !ok {
		return []schema.Violation{schema.WrongType(path, v, "string")}
	}
	if _, err := base64.StdEncoding.DecodeString(s); err != nil {
		return []schema.Violation{{Field: path, Message: "is not base64", Remedy: "encode the value with base64, or put it under stringData as it is"}}
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
