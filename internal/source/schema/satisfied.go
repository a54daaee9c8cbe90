package schema

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

const (
	// maxRemembered is the maximum number of values that are remembered for a schema; maxEncoded is the maximum length of one of
	// them, encoded.
	maxRemembered = 4096
	maxEncoded    = 512
	// maxFields is the maximum number of fields of a map that is encoded.
	maxFields = 16
)

// satisfiedValues remembers values for which all rules hold, and the cost of evaluating them. Thousands of routes have the same
// parentRefs, matches and filters, and a comparison costs far less than the rules. A rule depends on nothing but the value. It is
// safe for concurrent use.
type satisfiedValues struct {
	mu    sync.Mutex
	costs map[satisfiedValue]int64
}

type satisfiedValue struct {
	rules   *celRules
	encoded string // from appendEncoded
}

// satisfied returns the cost of evaluating all rules, if it is remembered that they hold.
func (s *satisfiedValues) satisfied(r *celRules, encoded []byte) (cost int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cost, known = s.costs[satisfiedValue{r, string(encoded)}]
	return cost, known
}

func (s *satisfiedValues) remember(r *celRules, encoded []byte, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.costs == nil || len(s.costs) >= maxRemembered { // frequent values are soon remembered again
		s.costs = map[satisfiedValue]int64{}
	}
	s.costs[satisfiedValue{r, string(encoded)}] = cost
}

// appendEncoded appends a unique encoding of a value; ok is false if it is too large, or not of a type that objects contain.
func appendEncoded(b []byte, value any) (_ []byte, ok bool) {
	switch value := value.(type) {
	case nil:
		b = append(b, 'n')
	case bool:
		if value {
			b = append(b, 't')
		} else {
			b = append(b, 'f')
		}
	case int64:
		b = binary.BigEndian.AppendUint64(append(b, 'i'), uint64(value)) //nolint:gosec // the conversion is unique
	case float64:
		b = binary.BigEndian.AppendUint64(append(b, 'd'), math.Float64bits(value))
	case string:
		b, ok = appendString(b, value)
		return b, ok
	case []any:
		if len(b)+len(value) > maxEncoded {
			return b, false
		}
		b = binary.AppendUvarint(append(b, 'l'), uint64(len(value)))
		for _, v := range value {
			if b, ok = appendEncoded(b, v); !ok {
				return b, false
			}
		}
	case map[string]any:
		return appendMap(b, value)
	default:
		return b, false
	}
	return b, len(b) <= maxEncoded
}

func appendString(b []byte, s string) (_ []byte, ok bool) {
	if len(b)+len(s) > maxEncoded {
		return b, false
	}
	return append(binary.AppendUvarint(append(b, 's'), uint64(len(s))), s...), true
}

func appendMap(b []byte, m map[string]any) (_ []byte, ok bool) {
	if len(m) > maxFields {
		return b, false
	}
	var room [maxFields]string
	names := room[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	b = binary.AppendUvarint(append(b, 'm'), uint64(len(m)))
	for _, name := range names {
		if b, ok = appendString(b, name); !ok {
			return b, false
		}
		if b, ok = appendEncoded(b, m[name]); !ok {
			return b, false
		}
	}
	return b, len(b) <= maxEncoded
}
