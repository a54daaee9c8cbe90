package match

import (
	"bytes"
	"iter"
	"slices"
	"strings"
)

// Hosts maps hostnames to values: "" (every host), "example.com" (that host)
// and "*.example.com" (one or more labels before ".example.com"). It is
// immutable; nil and the zero value are empty. Hostnames are in lower case.
type Hosts[V any] struct {
	exact pmap[V]
	wild  pmap[V] // by suffix, without "*."
	every *V      // of ""
	// labels[n] is the number of wildcards whose suffix has n labels; the last is not 0.
	// It bounds the probes for a host, whatever number of labels the client sends.
	labels depths
}

// Find returns the value of the most specific hostname that matches host: host
// itself, then the longest wildcard, then "". It does not allocate.
func (h *Hosts[V]) Find(host []byte) (v V, ok bool) {
	w := h.fitting(host)
	if found := w.next(); found != nil {
		return *found, true
	}
	return v, false
}

// Get returns the value of exactly this hostname; a wildcard is taken literally.
func (h *Hosts[V]) Get(hostname string) (v V, ok bool) {
	if found := h.get(hostname); found != nil {
		return *found, true
	}
	return v, false
}

func (h *Hosts[V]) get(hostname string) *V {
	if h == nil {
		return nil
	}
	if hostname == "" {
		return h.every
	}
	if suffix, ok := strings.CutPrefix(hostname, "*."); ok {
		return h.wild.find([]byte(suffix))
	}
	return h.exact.find([]byte(hostname))
}

// With returns a copy where hostname has the value v.
func (h *Hosts[V]) With(hostname string, v V) *Hosts[V] {
	var next Hosts[V]
	if h != nil {
		next = *h
	}
	next.set(hostname, v, nil)
	return &next
}

// set sets the value of hostname, see pmap.set.
func (h *Hosts[V]) set(hostname string, v V, by *owner) {
	suffix, isWild := strings.CutPrefix(hostname, "*.")
	switch {
	case hostname == "":
		h.every = &v
	case isWild:
		n := h.wild.n
		h.wild.set(suffix, v, by)
		if h.wild.n > n {
			h.labels = h.labels.with(labelCount(suffix))
		}
	default:
		h.exact.set(hostname, v, by)
	}
}

// Without returns a copy that lacks hostname.
func (h *Hosts[V]) Without(hostname string) *Hosts[V] {
	if h.get(hostname) == nil {
		return h
	}
	next := *h
	suffix, isWild := strings.CutPrefix(hostname, "*.")
	switch {
	case hostname == "":
		next.every = nil
	case isWild:
		next.wild = next.wild.without(suffix)
		next.labels = next.labels.without(labelCount(suffix))
	default:
		next.exact = next.exact.without(hostname)
	}
	return &next
}

// Len is the number of hostnames.
func (h *Hosts[V]) Len() int {
	if h == nil {
		return 0
	}
	n := h.exact.n + h.wild.n
	if h.every != nil {
		n++
	}
	return n
}

// All yields all entries, the most specific hostname first: exact ones, wildcards
// from longest to shortest, ""; equally specific ones in bytewise order.
func (h *Hosts[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if h == nil {
			return
		}
		for _, l := range h.exact.sorted() {
			if !yield(l.key, l.value) {
				return
			}
		}
		wild := h.wild.sorted()
		slices.SortStableFunc(wild, func(a, b leaf[V]) int { return len(b.key) - len(a.key) })
		for _, l := range wild {
			if !yield("*."+l.key, l.value) {
				return
			}
		}
		if h.every != nil {
			yield("", *h.every)
		}
	}
}

// fittingHosts iterates over the entries that match one host, the most specific first.
type fittingHosts[V any] struct {
	hosts *Hosts[V]
	host  []byte
	// labels is the number of labels of host[start:], the suffix to look up next; 0 if none is left.
	start, labels int
	stage         hostStage
}

type hostStage uint8

const (
	atExact hostStage = iota
	atWild
	atEvery
	atEnd
)

func (h *Hosts[V]) fitting(host []byte) fittingHosts[V] {
	w := fittingHosts[V]{hosts: h, host: host}
	if h == nil {
		w.stage = atEnd
	}
	return w
}

// next returns nil at the end.
func (w *fittingHosts[V]) next() *V {
	if w.stage == atExact {
		w.stage = atWild
		w.start, w.labels = longestSuffix(w.host, w.hosts.labels.deepest())
		if v := w.hosts.exact.find(w.host); v != nil {
			return v
		}
	}
	if w.stage == atWild {
		if v := w.nextWild(); v != nil {
			return v
		}
		w.stage = atEvery
	}
	if w.stage == atEvery {
		w.stage = atEnd
		return w.hosts.every
	}
	return nil
}

func (w *fittingHosts[V]) nextWild() *V {
	for w.labels > 0 {
		suffix, labels := w.host[w.start:], w.labels
		w.labels--
		w.start += bytes.IndexByte(suffix, '.') + 1
		if w.hosts.labels[labels] == 0 {
			continue
		}
		if v := w.hosts.wild.find(suffix); v != nil {
			return v
		}
	}
	return nil
}

// longestSuffix returns the longest suffix of at most limit whole labels that leaves at least one label before it.
// labels is 0 if there is none.
func longestSuffix(host []byte, limit int) (start, labels int) {
	end := len(host)
	for labels < limit {
		dot := bytes.LastIndexByte(host[:end], '.')
		if dot <= 0 {
			break
		}
		end, start = dot, dot+1
		labels++
	}
	return start, labels
}

func labelCount(suffix string) int { return strings.Count(suffix, ".") + 1 }
