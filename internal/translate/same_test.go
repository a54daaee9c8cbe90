package translate

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/moongate-dev/moongate/internal/translate/backendtraffic"
)

// TestSameComparesEveryField: a field that same forgets would keep a change from being translated.
func TestSameComparesEveryField(t *testing.T) {
	t.Run("readPolicy", func(t *testing.T) {
		eachFieldSet(t, func() *readPolicy { return &readPolicy{Compiled: &backendtraffic.Compiled{}} }, (*readPolicy).same)
		if (&readPolicy{}).same(&readPolicy{Compiled: &backendtraffic.Compiled{}}) {
			t.Error("an invalid policy is the same as one without settings")
		}
	})
	t.Run("xbackend", func(t *testing.T) {
		eachFieldSet(t, func() *xbackend { return &xbackend{} }, (*xbackend).same)
	})
}

// eachFieldSet sets each field of a value of its own, also those of structs within, and checks that the value is not the same as an empty one.
func eachFieldSet[T any](t *testing.T, empty func() *T, same func(a, b *T) bool) {
	t.Helper()
	if !same(empty(), empty()) {
		t.Fatal("two empty values differ")
	}
	fields := 0
	var walk func(typ reflect.Type, path string, at func(root reflect.Value) reflect.Value)
	walk = func(typ reflect.Type, path string, at func(root reflect.Value) reflect.Value) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			field := func(root reflect.Value) reflect.Value { return reflect.Indirect(at(root)).Field(i) }
			switch {
			case f.Anonymous && f.Type.Kind() == reflect.Pointer:
				walk(f.Type.Elem(), path+f.Name+".", field)
				continue
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, path+f.Name+".", field)
				continue
			}
			fields++
			set := empty()
			field(reflect.ValueOf(set).Elem()).Set(nonZero(t, f.Type))
			if same(empty(), set) || same(set, empty()) {
				t.Errorf("%s%s is not compared", path, f.Name)
			}
		}
	}
	walk(reflect.TypeFor[T](), "", func(root reflect.Value) reflect.Value { return root })
	if fields == 0 {
		t.Error("no field was set")
	}
}

// nonZero returns a value of a type of field that is not zero, nor equal to it as a message.
func nonZero(t *testing.T, typ reflect.Type) reflect.Value {
	t.Helper()
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 1, 1))
		if e := typ.Elem(); e.Kind() == reflect.Pointer {
			v.Index(0).Set(reflect.New(e.Elem()))
		}
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		if m, ok := v.Interface().(proto.Message); ok {
			m.ProtoReflect().SetUnknown(protoreflect.RawFields{0xf8, 0x7f, 0x01}) // field 2047
		}
	default:
		t.Fatalf("%s is not a type that this test sets", typ)
	}
	return v
}
