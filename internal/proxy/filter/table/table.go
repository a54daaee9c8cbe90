// Package table lists the filters of the data plane and compiles one from the message that the control plane sent. It
// exists so that a new filter is one folder and one line here.
//
// It is the only package that imports the folders of the filters; they must not import it.
package table

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/cors"
	"github.com/moongate-dev/moongate/internal/proxy/filter/externalauth"
	"github.com/moongate-dev/moongate/internal/proxy/filter/requestheadermodifier"
	"github.com/moongate-dev/moongate/internal/proxy/filter/requestmirror"
	"github.com/moongate-dev/moongate/internal/proxy/filter/requestredirect"
	"github.com/moongate-dev/moongate/internal/proxy/filter/responseheadermodifier"
	"github.com/moongate-dev/moongate/internal/proxy/filter/urlrewrite"
)

var table = index(
	of(cors.Compile),
	of(externalauth.Compile),
	of(requestheadermodifier.Compile),
	of(requestmirror.Compile),
	of(requestredirect.Compile),
	of(responseheadermodifier.Compile),
	of(urlrewrite.Compile),
)

// Compile compiles the filter that the message describes.
func Compile(message *anypb.Any, env filter.Env) (filter.Filter, error) {
	e, ok := table[message.MessageName()]
	if !ok {
		return filter.Filter{}, &filter.Error{
			Filter:  message.GetTypeUrl(),
			Field:   "type_url",
			Problem: "this data plane does not know the filter",
			Remedy:  "run controller and data plane of the same version",
		}
	}
	return e.compile(message, env)
}

// Names returns the full names of the messages that Compile knows, sorted.
func Names() []string {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

type entry struct {
	name    protoreflect.FullName
	compile func(*anypb.Any, filter.Env) (filter.Filter, error)
}

// of returns the entry of a filter for its Compile function. M, the type of its message, is the key.
func of[M proto.Message](compile func(M, filter.Env) (filter.Filter, error)) entry {
	var zero M
	kind := zero.ProtoReflect().Type()
	return entry{
		name: kind.Descriptor().FullName(),
		compile: func(message *anypb.Any, env filter.Env) (filter.Filter, error) {
			m := kind.New().Interface().(M)
			if err := message.UnmarshalTo(m); err != nil {
				return filter.Filter{}, fmt.Errorf("filter %s: cannot be read: %w", message.MessageName(), err)
			}
			return compile(m, env)
		},
	}
}

func index(entries ...entry) map[protoreflect.FullName]entry {
	m := make(map[protoreflect.FullName]entry, len(entries))
	for _, e := range entries {
		m[e.name] = e
	}
	return m
}
