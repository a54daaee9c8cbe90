package message

import (
	"reflect"
	"testing"
)

// fill sets every field of the struct that v points to, those of message.Fields apart.
func fill(t *testing.T, v any) {
	t.Helper()
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		f := s.Field(i)
		switch f.Interface().(type) {
		case []byte:
			f.SetBytes([]byte("x"))
		case bool:
			f.SetBool(true)
		case int:
			f.SetInt(1)
		case Fields:
			f.Addr().Interface().(*Fields).Add([]byte("a"), []byte("b"))
		case *Consumed:
			f.Set(reflect.ValueOf(&Consumed{TETrailers: true}))
		default:
			t.Fatalf("the test knows no value for %s", s.Type().Field(i).Name)
		}
	}
}

// Reset sets field by field, and so must know all of them.
func TestResetLeavesNothing(t *testing.T) {
	var request Request
	fill(t, &request)
	request.Reset()
	if request.Header.Len() != 0 || cap(request.Header.list) == 0 {
		t.Errorf("%d lines in memory for %d", request.Header.Len(), cap(request.Header.list))
	}
	request.Header = Fields{}
	if !reflect.DeepEqual(request, Request{}) {
		t.Errorf("left: %+v", request)
	}
	var response Response
	fill(t, &response)
	response.Reset()
	if response.Header.Len() != 0 || cap(response.Header.list) == 0 {
		t.Errorf("%d lines in memory for %d", response.Header.Len(), cap(response.Header.list))
	}
	response.Header = Fields{}
	if !reflect.DeepEqual(response, Response{}) {
		t.Errorf("left: %+v", response)
	}
}

// Memory that held other lines shows none of them.
func TestAddReplacesWhatWasThere(t *testing.T) {
	var f Fields
	f.Append(Field{Name: []byte("Old"), Value: []byte("old"), Line: []byte("Old: old\r\n")})
	f.Reset()
	f.Add([]byte("New"), []byte("new"))
	if got := *f.At(0); string(got.Name) != "New" || string(got.Value) != "new" || got.Line != nil {
		t.Errorf("got %q", got)
	}
	f.Reset()
	f.Append(Field{Name: []byte("A")})
	if got := *f.At(0); string(got.Name) != "A" || got.Value != nil || got.Line != nil {
		t.Errorf("got %q", got)
	}
	for range 100 {
		l := f.Extend()
		l.Name, l.Value, l.Line = []byte("N"), nil, nil
	}
	if f.Len() != 101 || string(f.At(0).Name) != "A" || string(f.At(100).Name) != "N" {
		t.Errorf("%d lines", f.Len())
	}
}
