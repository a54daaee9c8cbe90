package match

import "iter"

// Hosts maps hostnames to values: "" (every host), "example.com" (that host)
// and "*.example.com" (one or more labels before ".example.com"). It is
// immutable; nil and the zero value are empty. Hostnames are in lower case.
type Hosts[V any] struct{ todo map[string]V }

// Find returns the value of the most specific hostname that matches host: host
// itself, then the longest wildcard, then "". It does not allocate.
func (h *Hosts[V]) Find(host []byte) (v V, ok bool) { return }

// Get returns the value of exactly this hostname, wildcards not expanded.
func (h *Hosts[V]) Get(hostname string) (v V, ok bool) { return }

// With returns a copy where hostname has the value v.
func (h *Hosts[V]) With(hostname string, v V) *Hosts[V] { return h }

// Without returns a copy that lacks hostname.
func (h *Hosts[V]) Without(hostname string) *Hosts[V] { return h }

// Len is the number of hostnames.
func (h *Hosts[V]) Len() int { return 0 }

// All yields all entries, the most specific hostname first: exact ones, wildcards
// from longest to shortest, ""; equally long ones in bytewise order.
func (h *Hosts[V]) All() iter.Seq2[string, V] { return func(func(string, V) bool) {} }
