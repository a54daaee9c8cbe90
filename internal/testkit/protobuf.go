package testkit

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// AddField adds a field with that number to a message, which this version need not know, as in a message from a newer program.
func AddField(t testing.TB, m proto.Message, number protowire.Number) {
	t.Helper()
	field := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), 1)
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(field, m); err != nil {
		t.Fatal(err)
	}
}
